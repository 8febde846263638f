package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
)

// pod returns a pod.
func pod(namespace, name string) audit.Object {
	return audit.Object{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: namespace, Name: name}
}

// deployment returns a Deployment.
func deployment(namespace, name string) audit.Object {
	return audit.Object{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Namespace: namespace, Name: name}
}

// sampleFlags are those of the samples.
func sampleFlags() *auditFlags {
	f := &auditFlags{config: "./candidate", failOn: newThresholds()}
	f.Context, f.WithCluster = "prod", true
	return f
}

// sampleOutcome is an audit that took two seconds and read everything.
func sampleOutcome() *audit.Outcome {
	began := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	return &audit.Outcome{
		Began: began, Ended: began.Add(2 * time.Second), Digest: "0123", Complete: true,
		Coverage: []audit.Coverage{
			{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Objects: 1200, Complete: true},
			{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Kind: "Deployment", Objects: 3, Complete: true},
		},
		Skipped: []audit.Skipped{{Kind: "AdmissionPolicy", Policy: "owners", Rule: "owner", Reason: "it reads request.userInfo, which an audit does not know"}},
		Unknown: []string{"widgets.example.com"},
	}
}

// sampleSummary has results of every status, and every state of injection.
func sampleSummary(examples int) *summary.Summary {
	a := summary.New(examples)
	rule := func(o audit.Object, s audit.Status, rule, message string) audit.Result {
		return audit.Result{Object: o, Status: s, Kind: "AdmissionPolicy", Policy: "limits", Rule: rule, Message: message}
	}
	for i := range 1200 {
		o := pod([]string{"shop", "pay", "web"}[i%3], fmt.Sprintf("pod-%04d", i))
		a.Object(o)
		if i%4 == 0 {
			a.Result(rule(o, audit.Fail, "memory", "set resources.limits.memory"))
		}
		a.Injection(o, "proxy", summary.States()[i%len(summary.States())])
	}
	checkout, legacy, broken := deployment("shop", "checkout"), deployment("shop", "legacy"), deployment("pay", "broken")
	a.Object(checkout)
	r := rule(checkout, audit.Warn, "image", "use a digest")
	r.Template = "spec.template"
	a.Result(r)
	a.Object(legacy)
	r = rule(legacy, audit.Skip, "image", "use a digest")
	r.Exception = "shop/legacy-images"
	a.Result(r)
	a.Object(broken)
	a.Result(audit.Result{Object: broken, Status: audit.Change, Kind: "MutatingAdmissionPolicy", Policy: "ndots", Message: "would change /spec/template"})
	return a.Summary()
}

// complete returns the report of a summary, as run does.
func complete(f *auditFlags, outcome *audit.Outcome, sum *summary.Summary, change ...func(*report)) *report {
	r := newReport(f, f.Describe(f.config), outcome, sum)
	for _, one := range change {
		one(r)
	}
	r.conclude(f.failOn.List(violationsName))
	return r
}

// TestOutputs compares the formats of a report with files.
func TestOutputs(t *testing.T) {
	t.Parallel()
	partial := sampleOutcome()
	partial.Complete = false
	partial.Coverage[1].Complete, partial.Coverage[1].Objects, partial.Coverage[1].Right = false, 0, `list deployments in namespace "pay"`
	for name, c := range map[string]struct {
		output  string
		outcome *audit.Outcome
	}{
		"table.txt":        {"table", sampleOutcome()},
		"partial.txt":      {"table", partial},
		"report.json":      {"json", sampleOutcome()},
		"last-line.ndjson": {"ndjson", sampleOutcome()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sampleFlags()
			f.output = c.output
			r := complete(f, c.outcome, sampleSummary(2))
			var out bytes.Buffer
			buffered := bufio.NewWriter(&out)
			if err := errors.Join(f.write(buffered, r), buffered.Flush()); err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join("testdata", name), out.Bytes())
		})
	}
}

// compareGolden compares an output with a file, which UPDATE_GOLDEN=1 writes.
func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, got, 0o600)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// TestExitCodes decides by limits, and by what was not judged, which has precedence.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	problem := func(r *report) {
		r.addUnjudged("%s", `missing right: get configmaps in namespace "shop"`)
		r.addUnjudged("and 3 more problems of looking up objects")
	}
	for name, c := range map[string]struct {
		failOn []string
		change func(*report)
		want   int
		says   string
	}{
		"violations":              {nil, nil, cli.ExitNo, "violations: 300 of 1,203 objects, allowed is 0"},
		"allowed":                 {[]string{"violations=300"}, nil, cli.ExitYes, ""},
		"one more":                {[]string{"violations=299"}, nil, cli.ExitNo, "violations: 300 of 1,203 objects, allowed is 299"},
		"warnings":                {[]string{"violations=1203", "warnings"}, nil, cli.ExitNo, "warnings: 1 of 1,203 objects, allowed is 0"},
		"warnings and violations": {[]string{"warnings"}, nil, cli.ExitNo, "violations: 300 of 1,203 objects, allowed is 0"},
		"stale sidecars":          {[]string{"violations=1203", "stale"}, nil, cli.ExitNo, "stale: 240 of 1,203 objects, allowed is 0"},
		"excepted":                {[]string{"violations=1203", "excepted=1"}, nil, cli.ExitYes, ""},
		"a missing right":         {nil, problem, cli.ExitUnknown, `missing right: get configmaps in namespace "shop"`},
		"interrupted":             {nil, func(r *report) { r.addStop(cancelled, context.Canceled) }, cli.ExitUnknown, "the audit was interrupted: objects that are not counted were not judged"},
		"a resource":              {nil, func(r *report) { r.Complete = false }, cli.ExitUnknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sampleFlags()
			for _, value := range c.failOn {
				if err := f.failOn.Set(value); err != nil {
					t.Fatal(err)
				}
			}
			r := complete(f, sampleOutcome(), sampleSummary(0), func(r *report) {
				if c.change != nil {
					c.change(r)
				}
			})
			code := cli.ExitYes
			if err := r.exit(); err != nil {
				code = cli.WorstCode(err)
			}
			if code != c.want {
				t.Errorf("got exit code %d, want %d", code, c.want)
			}
			if c.says != "" && !slices.Contains(append(r.Exceeded, r.Unjudged...), c.says) {
				t.Errorf("got %q and %q, want %q", r.Exceeded, r.Unjudged, c.says)
			}
		})
	}
}

// TestUndecided: objects that cannot be decided, and kinds that nothing matches are no success.
func TestUndecided(t *testing.T) {
	t.Parallel()
	f := sampleFlags()
	f.kinds = []string{"gadgets"}
	a := summary.New(1)
	a.Object(pod("shop", "a"))
	a.Result(audit.Result{Object: pod("shop", "a"), Status: audit.Error, Message: "namespace is not known"})
	outcome := sampleOutcome()
	outcome.Unknown = append(outcome.Unknown, "gadgets: no active policy or profile matches this kind")
	r := newReport(f, f.Describe(f.config), outcome, a.Summary())
	r.conclude(f.failOn.List(violationsName))
	want := []string{
		"--kind gadgets: no active policy or profile matches this kind",
		"1 object cannot be decided",
	}
	if !slices.Equal(r.Unjudged, want) || r.Result != cannotDecide || r.Complete {
		t.Errorf("got %q, %s", r.Unjudged, r.Result)
	}
}

// TestPossibleException: a violation that an exception may exempt is an error in all formats, and not excepted.
func TestPossibleException(t *testing.T) {
	t.Parallel()
	a := summary.New(1)
	a.Object(pod("shop", "a"))
	a.Result(audit.Result{Object: pod("shop", "a"), Status: audit.Error, Kind: "AdmissionPolicy", Policy: "limits", Rule: "memory", Exception: "shop/some", Message: "set it"})
	r := complete(sampleFlags(), sampleOutcome(), a.Summary())
	var table bytes.Buffer
	r.print(&table)
	if r.Result != cannotDecide || r.Totals.Excepted != 0 || !strings.Contains(table.String(), "error     Pod shop/a: set it (PolicyException shop/some)") {
		t.Errorf("%s, %+v\n%s", r.Result, r.Totals, table.String())
	}
}

// hostileTexts are what a tenant can put into names of objects and namespaces, and into messages.
func hostileTexts() []string {
	return []string{
		"\x1b[2J\x1b]0;title\x07\x1b[31mred",
		"line\nline\r\nline",
		"\u202egnp.exe\u2066 bidi \u200b zero width \ufeff",
		`<script>window.ran = true</script>`,
		`<img src="http://127.0.0.1:9/x.png" onerror="window.ran = true">`,
		`</style></title><link rel="stylesheet" href="http://127.0.0.1:9/x.css"><iframe src="http://127.0.0.1:9/"></iframe>`,
		`{{.Report}} ${{ secrets.X }} ::error::x ]]>`,
		strings.Repeat("W", 5000),
		"\xff\xfe invalid",
	}
}

// TestHostileTextsAreInert renders a report with hostile texts in every place.
func TestHostileTextsAreInert(t *testing.T) {
	t.Parallel()
	f := sampleFlags()
	outcome := sampleOutcome()
	a := summary.New(3)
	f.kinds, f.namespaces, f.config, f.Context = hostileTexts(), hostileTexts(), hostileTexts()[3], hostileTexts()[0]
	for _, text := range hostileTexts() {
		o := audit.Object{GroupVersionKind: schema.GroupVersionKind{Group: text, Version: text, Kind: text}, Namespace: text, Name: text}
		a.Object(o)
		for _, status := range []audit.Status{audit.Fail, audit.Warn, audit.Error, audit.Skip} {
			r := audit.Result{Object: o, Status: status, Kind: text, Policy: text, Binding: text, Rule: text, Template: text, Message: text}
			if status == audit.Skip {
				r.Exception = text
			}
			a.Result(r)
		}
		a.Injection(o, text, audit.Extra)
		outcome.Skipped = append(outcome.Skipped, audit.Skipped{Kind: text, Policy: text, Rule: text, Reason: text})
		outcome.Unknown = append(outcome.Unknown, text)
		outcome.Coverage = append(outcome.Coverage, audit.Coverage{GroupVersionResource: schema.GroupVersionResource{Resource: text}, Problem: text, Right: text})
	}
	r := newReport(f, f.Describe(f.config), outcome, a.Summary())
	for _, text := range hostileTexts() {
		r.addUnjudged("%s", text)
	}
	r.conclude(f.failOn.List(violationsName))
	var table, jsonText bytes.Buffer
	r.print(&table)
	if err := cli.WriteJSON(&jsonText, r); err != nil {
		t.Fatal(err)
	}
	checkInert(t, table.String())
	for line := range strings.Lines(table.String()) {
		if most := 12000; len(line) > most {
			t.Errorf("a line has %d bytes", len(line))
		}
	}
	var value any
	if err := json.Unmarshal(jsonText.Bytes(), &value); err != nil {
		t.Error(err)
	}
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
