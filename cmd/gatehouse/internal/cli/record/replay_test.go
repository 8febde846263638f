package record

import (
	"bytes"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
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
			Decision: "denied", Message: text, Warnings: []string{text, text}, Patch: text,
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
	var table bytes.Buffer
	r.print(&table)
	checkInert(t, table.String())
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
			Before:    &replay.Answer{Decision: text, Message: text, Warnings: []string{text}},
			Undecided: text, Diff: "--- before\n+" + text + "\n",
			Profiles: []replayedProfile{{Profile: text, Detail: text, Steps: []string{text}}},
		}
		var out bytes.Buffer
		shown.print(&out, true)
		checkInert(t, strings.ReplaceAll(out.String(), "\ufffd", "?"))
	}
}

// TestChoose chooses the review of --show.
func TestChoose(t *testing.T) {
	t.Parallel()
	items := func(ids ...string) (out []*replay.Item) {
		for _, id := range ids {
			out = append(out, &replay.Item{Review: &record.Review{ID: id}})
		}
		return out
	}
	for name, c := range map[string]struct {
		show      string
		found     []*replay.Item
		want, err string
	}{
		"exact":    {"a", items("ab", "a"), "a", ""},
		"prefix":   {"a", items("ab"), "ab", ""},
		"the same": {"a", items("ab", "ab"), "ab", ""},
		"several":  {"a", items("ab", "a\x1b", "ac"), "", `--show "a": is the beginning of several IDs: ab, a\x1b …`},
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
