package record

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/test/support/chromium"
)

// hostileTexts are what a stranger can put into names, messages and values that are recorded.
func hostileTexts() []string {
	return []string{
		"\x1b[2J\x1b]0;title\x07\x1b[31mred",
		"line\nline\r\nline",
		"\u202egnp.exe\u2066 bidi \u200b zero width \ufeff",
		`<script>window.ran = true; document.title = "ran"</script>`,
		`<img src="http://127.0.0.1:9/x.png" onerror="window.ran = true">`,
		`"><svg onload="window.ran = true"></svg>`,
		`</style></title><link rel="stylesheet" href="http://127.0.0.1:9/x.css"><iframe src="http://127.0.0.1:9/"></iframe>`,
		`<meta http-equiv="refresh" content="0;url=http://127.0.0.1:9/">`,
		`javascript:window.ran=true`,
		`{{.Report}} ${{ secrets.X }} ::error::x ]]>`,
		strings.Repeat("very-long-name-", 500),
		strings.Repeat("W", 5000),
		"\xff\xfe invalid",
	}
}

// hostileReport is a report with every hostile text in every place where text of a recording can be.
func hostileReport() *replayReport {
	report := &replay.Report{
		Reviews: 100, Unchanged: 50, Changed: map[replay.Change]int64{}, Undecided: map[string]int64{}, Gaps: 3,
		Begin: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), End: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
	}
	for i, text := range hostileTexts() {
		change := replay.Changes()[i%len(replay.Changes())]
		report.Changed[change]++
		report.Undecided[text] = 1
		report.Problems = append(report.Problems, text)
		report.Notes = append(report.Notes, text)
		answer := &replay.Answer{
			Decision: "denied", Message: text, Warnings: []string{text, text}, Patch: text, User: text, Groups: []string{text},
		}
		report.Groups = append(report.Groups, replay.Group{
			Change: change, Rule: replay.Rule{Kind: text, Name: text, Rule: text}, Namespace: text, Kind: text, Reviews: 1,
			Workloads: hostileTexts(), Users: hostileTexts(), MoreUsers: true,
			Examples: []replay.Example{{
				Review: replay.Subject{
					Recording: text, ID: text, Endpoint: text, User: text, Operation: text, Kind: text, Namespace: text, Name: text, Workload: text,
				},
				Before: &replay.Answer{Decision: "allowed", Message: text}, After: answer,
			}, {Review: replay.Subject{ID: text}}},
		})
	}
	return newReplayReport(&replayFlags{config: "./new"}, report)
}

// checkInert fails for characters that a terminal or browser does not show as such.
func checkInert(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !strconv.IsPrint(r) {
			t.Errorf("character %U is in %q", r, text)
			return
		}
	}
}

// TestHostileTextsAreInert renders a hostile report.
func TestHostileTextsAreInert(t *testing.T) {
	t.Parallel()
	r := hostileReport()
	var table, html bytes.Buffer
	r.print(&table)
	if err := r.writeHTML(&html); err != nil {
		t.Fatal(err)
	}
	checkInert(t, table.String())
	checkInert(t, html.String())
	for _, tag := range []string{"<script", "<img", "<svg", "<iframe", "<link", "onerror=\"", `http-equiv="refresh"`} {
		if strings.Contains(html.String(), tag) {
			t.Errorf("%q is in the HTML", tag)
		}
	}
	if !strings.Contains(html.String(), `&lt;script&gt;window.ran = true`) {
		t.Error("the text of the script is not in the HTML")
	}
	for line := range strings.Lines(table.String()) {
		if most := 12000; len(line) > most {
			t.Errorf("a line has %d bytes", len(line))
		}
	}
	if err := r.exit(); err == nil {
		t.Error("problems are no error")
	} else {
		checkInert(t, cli.ErrorText(err))
	}
}

// TestHostileReviewIsInert shows one review.
func TestHostileReviewIsInert(t *testing.T) {
	t.Parallel()
	for _, text := range hostileTexts() {
		shown := replayedReview{
			Review:    replay.Subject{Recording: text, ID: text, Endpoint: text, User: text, Operation: text, Kind: text, Namespace: text, Name: text, Workload: text},
			Before:    &replay.Answer{Decision: text, Message: text, Warnings: []string{text}, User: text},
			Undecided: text, Diff: "--- before\n+" + text + "\n",
			Profiles: []replayedProfile{{Profile: text, Detail: text, Steps: []string{text}}},
		}
		var out bytes.Buffer
		shown.print(&out, true)
		checkInert(t, strings.ReplaceAll(out.String(), "\ufffd", "?"))
	}
}

// TestReplayProgress shows the rate and the remaining time.
func TestReplayProgress(t *testing.T) {
	t.Parallel()
	for want, done := range map[string]replay.Progress{
		"1000 reviews, 500/s, 20 %, 8s left":  {Reviews: 1000, Read: 20, Size: 100},
		"1000 reviews, 500/s, 100 %, 0s left": {Reviews: 1000, Read: 120, Size: 100},
		"1000 reviews, 500/s":                 {Reviews: 1000, Read: 120},
	} {
		if got := progressText(done, 2*time.Second); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestChoose chooses the review of --show.
func TestChoose(t *testing.T) {
	t.Parallel()
	items := func(ids ...string) (out []replay.Item) {
		for _, id := range ids {
			out = append(out, replay.Item{Review: &record.Review{ID: id}})
		}
		return out
	}
	for name, c := range map[string]struct {
		show      string
		found     []replay.Item
		want, err string
	}{
		"exact":    {"a", items("ab", "a"), "a", ""},
		"prefix":   {"a", items("ab"), "ab", ""},
		"the same": {"a", items("ab", "ab"), "ab", ""},
		"several":  {"a", items("ab", "ac", "a\x1b"), "", `--show "a": is the beginning of several IDs: ab, ac, a\x1b`},
		"many":     {"a", items("a1", "a2", "a3", "a4", "a5", "a6"), "", `--show "a": is the beginning of several IDs: a1, a2, a3, a4, a5, …`},
		"none":     {"a", nil, "", `--show "a": there is no such review in the recording`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := (&replayFlags{show: c.show}).choose(c.found)
			switch {
			case c.err != "" && (err == nil || err.Error() != c.err):
				t.Errorf("got %v, want %s", err, c.err)
			case c.err == "" && (err != nil || got.Review.ID != c.want):
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// TestPageInBrowser opens the HTML of a hostile report in Chromium, with its content security policy and without: nothing of the
// report is executed or loaded. On a small screen and in the dark it can be read.
func TestPageInBrowser(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := hostileReport().writeHTML(&out); err != nil {
		t.Fatal(err)
	}
	const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">` + "\n"
	if !strings.Contains(out.String(), policy) {
		t.Fatal("there is no content security policy")
	}
	for name, c := range map[string]struct {
		text string
		of   chromium.Options
		dark bool
	}{
		"phone, dark": {out.String(), chromium.Options{Width: 360, Height: 740, Dark: true}, true},
		"no policy":   {strings.Replace(out.String(), policy, "", 1), chromium.Options{Width: 1280, Height: 800}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "replay.html")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			page := chromium.Open(t, file, c.of)
			var got struct {
				Ran                     bool
				Title, Text             string
				Elements                []string
				Scroll, Client, Headers int
				Background, Color       string
				Contrast                float64
			}
			page.Evaluate(`document.querySelectorAll("details").forEach(d => d.open = true)`+`, (() => {
				const of = s => (s.match(/[\d.]+/g) || []).slice(0, 3).map(Number)
				const light = s => of(s).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0)
				const style = getComputedStyle(document.body)
				const ratios = [...document.querySelectorAll("p, dt, dd, th, td, h1, h2, h3, span, summary, caption, li")].map(e => {
					let box = e
					while (box && /rgba\(.*, 0\)|transparent/.test(getComputedStyle(box).backgroundColor)) box = box.parentElement
					const [a, b] = [light(getComputedStyle(e).color), light(getComputedStyle(box).backgroundColor)].sort((a, b) => b - a)
					return (a + 0.05) / (b + 0.05)
				})
				return {
					Ran: window.ran === true, Title: document.title, Text: document.body.innerText,
					Elements: [...new Set([...document.querySelectorAll("*")].map(e => e.localName))],
					Scroll: document.documentElement.scrollWidth, Client: document.documentElement.clientWidth,
					Headers: document.querySelectorAll("th[scope]").length, Background: style.backgroundColor, Color: style.color, Contrast: Math.min(...ratios),
				}
			})()`, &got)
			if path := os.Getenv("SCREENSHOTS"); path != "" {
				if err := os.WriteFile(filepath.Join(path, strings.ReplaceAll(name, ", ", "-")+".png"), page.Screenshot(0), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got.Ran || !strings.HasPrefix(got.Title, "gatehouse replay: ") {
				t.Errorf("a script has run: the title is %q", got.Title)
			}
			for _, text := range hostileTexts()[3:9] {
				if !strings.Contains(got.Text, text) {
					t.Errorf("the page does not show %q", text)
				}
			}
			for _, name := range []string{"script", "img", "svg", "iframe", "link", "a", "form", "object", "embed"} {
				if slices.Contains(got.Elements, name) {
					t.Errorf("there is an element %q", name)
				}
			}
			if requests := page.Requests(); len(requests) > 0 {
				t.Errorf("the page has sent requests: %q", requests)
			}
			if messages := page.Messages(); len(messages) > 0 {
				t.Errorf("the browser reports %q", messages)
			}
			if got.Scroll > got.Client || got.Client != c.of.Width {
				t.Errorf("the page is %d wide, and the screen %d", got.Scroll, got.Client)
			}
			const least = 4.5 // WCAG 2, level AA
			if got.Contrast < least {
				t.Errorf("the contrast of a text is %.1f", got.Contrast)
			}
			want := "rgb(255, 255, 255)"
			if c.dark {
				want = "rgb(13, 17, 23)"
			}
			if got.Background != want || got.Headers == 0 {
				t.Errorf("got background %s, want %s, and %d headers", got.Background, want, got.Headers)
			}
		})
	}
}

// TestShowHintIsForShells pastes the hint of an example into a shell, which must find the ID of a stranger's review, and run nothing.
func TestShowHintIsForShells(t *testing.T) {
	t.Parallel()
	report := hostileReport()
	for _, id := range []string{"\x1b$(echo pwned)`echo pwned`", "\u202e$(echo pwned)", strings.Repeat("$(echo pwned)", 20)} {
		example := &report.Report.Groups[0].Examples[0]
		example.Review.ID = id
		var table bytes.Buffer
		report.print(&table)
		_, hint, _ := strings.Cut(table.String(), " --show ")
		hint, _, _ = strings.Cut(hint, "\n")
		read, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+hint).Output()
		if err != nil || len(read) == 0 || !strings.HasPrefix(id, string(read)) {
			t.Errorf("a shell reads %s as %q, want the beginning of %q (%v)", hint, read, id, err)
		}
	}
}
