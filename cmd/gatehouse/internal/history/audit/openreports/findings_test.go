package openreports_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
)

var defaults = openreports.Limits{Results: openreports.DefaultResults, Bytes: openreports.DefaultBytes}

// violation returns a result about a pod.
func violation(namespace, policy, pod string, status audit.Status) audit.Result {
	return audit.Result{
		Object: audit.Object{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: namespace, Name: pod, UID: "0a1b2c3d-0000-4000-8000-" + pod},
		Status: status, Kind: "AdmissionPolicy", Policy: policy, Rule: "validations[0]", Message: "every container must have a memory limit",
	}
}

func collect(limits openreports.Limits, outcome *audit.Outcome, results ...audit.Result) openreports.Reports {
	f := openreports.New(limits)
	for _, r := range results {
		f.Object(r.Object)
		f.Result(r)
	}
	return f.Reports(outcome)
}

// TestReports: one report for each namespace with findings, and one for the cluster, with totals beside the results.
func TestReports(t *testing.T) {
	t.Parallel()
	exempt := violation("shop", "limits", "d", audit.Skip)
	exempt.Exception = "shop/legacy"
	node := violation("", "names", "n", audit.Warn)
	node.Object.GroupVersionKind = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}
	out := collect(defaults, &audit.Outcome{
		Coverage: []audit.Coverage{
			{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Complete: true},
			{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Problem: "at 10.0.0.1:41234: forbidden", Right: "list secrets"},
			{GroupVersionResource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, Problem: "at 10.0.0.1:41234: EOF"},
		},
		Skipped: []audit.Skipped{{Kind: "AdmissionPolicy", Policy: "owners", Reason: "it reads request.userInfo, which an audit does not know"}},
	},
		violation("shop", "names", "b", audit.Warn), violation("shop", "limits", "c", audit.Fail), violation("shop", "limits", "a", audit.Fail),
		violation("shop", "limits", "e", audit.Error), exempt, violation("bank", "limits", "x", audit.Fail), violation("quiet", "limits", "y", audit.Skip), node,
		violation("web", "ndots", "w", audit.Change),
	)
	var got []string
	for _, r := range out.All {
		got = append(got, fmt.Sprintf("%q fail %d warn %d error %d skip %d", r.Namespace, r.Summary.Fail, r.Summary.Warn, r.Summary.Error, r.Summary.Skip))
		for _, one := range r.Results {
			name := ""
			if len(one.Subjects) > 0 {
				name = one.Subjects[0].APIVersion + " " + one.Subjects[0].Kind + " " + one.Subjects[0].Name
			}
			got = append(got, fmt.Sprintf("  %s %s %s: %s: %s", one.Result, one.Policy, one.Rule, name, one.Description))
		}
	}
	const limits = "validations[0]: v1 Pod %s: every container must have a memory limit"
	want := []string{
		`"" fail 0 warn 1 error 2 skip 1`,
		"  error gatehouse-audit secrets: : secrets were not read: Gatehouse lacks the right to list secrets",
		"  error gatehouse-audit widgets.example.org: : not all widgets.example.org were read: the log of Gatehouse has the reason",
		"  warn names validations[0]: example.org/v1 Widget n: every container must have a memory limit",
		"  skip owners : : it reads request.userInfo, which an audit does not know",
		`"bank" fail 1 warn 0 error 0 skip 0`,
		"  fail limits " + fmt.Sprintf(limits, "x"),
		`"shop" fail 2 warn 1 error 1 skip 1`,
		"  fail limits " + fmt.Sprintf(limits, "a"),
		"  fail limits " + fmt.Sprintf(limits, "c"),
		"  error limits " + fmt.Sprintf(limits, "e"),
		"  warn names " + fmt.Sprintf(limits, "b"),
		`"web" fail 0 warn 1 error 0 skip 0`,
		"  warn ndots " + fmt.Sprintf(limits, "w"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the reports are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestShares: a policy that everything violates does not displace the results of others, the totals are true, and the order in
// which the results come does not matter.
func TestShares(t *testing.T) {
	t.Parallel()
	var all []audit.Result
	for i := range 1000 {
		all = append(all, violation("shop", "everything", fmt.Sprintf("pod-%04d", i), audit.Fail))
	}
	for i := range 3 {
		all = append(all, violation("shop", "some", fmt.Sprintf("pod-%04d", i), audit.Warn))
	}
	for i := range 30 {
		all = append(all, violation("shop", "many", fmt.Sprintf("pod-%04d", i), audit.Fail))
	}
	limits := openreports.Limits{Results: 20, Bytes: openreports.DefaultBytes}
	want := collect(limits, &audit.Outcome{}, all...)
	counts := map[string]int{}
	for _, r := range want.All[0].Results {
		counts[r.Policy]++
	}
	if !reflect.DeepEqual(counts, map[string]int{"everything": 8, "many": 9, "some": 3}) && !reflect.DeepEqual(counts, map[string]int{"everything": 9, "many": 8, "some": 3}) {
		t.Errorf("results by policy: %v", counts)
	}
	if s := want.All[0].Summary; s.Fail != 1030 || s.Warn != 3 {
		t.Errorf("the totals are %+v", s)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := collect(limits, &audit.Outcome{}, all...); !reflect.DeepEqual(got, want) {
			t.Fatalf("in another order the reports are\n%+v\nwant\n%+v", got, want)
		}
	}
}

// TestCeiling: above the ceiling there are fewer results, then totals alone, then fewer reports, whatever the order of the results.
func TestCeiling(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		namespaces, pods int
		bytes            int
		results, omitted int
	}{
		"everything is reported":   {10, 10, 1 << 20, 100, 0},
		"fewer results":            {50, 200, 512 << 10, 25, 0},
		"one of each":              {100, 200, 150 << 10, 1, 0},
		"totals alone":             {80, 200, 96 << 10, 0, 0},
		"fewer reports":            {500, 5, 64 << 10, 0, 430},
		"more results than memory": {300, 300, openreports.DefaultBytes, 12, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []audit.Result
			for i := range c.namespaces {
				for k := range c.pods {
					all = append(all, violation(fmt.Sprintf("team-%03d", i), "everything", fmt.Sprintf("pod-%04d", k), audit.Fail))
				}
			}
			limits := openreports.Limits{Results: 100, Bytes: c.bytes}
			out := collect(limits, &audit.Outcome{}, all...)
			if out.Bytes > c.bytes {
				t.Errorf("%d bytes, at most %d are allowed", out.Bytes, c.bytes)
			}
			t.Logf("%d bytes, %d results each, %d omitted", out.Bytes, out.Results, out.Omitted)
			if out.Results != c.results || out.Omitted < c.omitted || c.omitted == 0 && out.Omitted > 0 {
				t.Errorf("%d results each, %d omitted, want %d and %d", out.Results, out.Omitted, c.results, c.omitted)
			}
			for _, r := range out.All {
				if r.Summary.Fail != c.pods {
					t.Errorf("the total of %s is %d, want %d", r.Namespace, r.Summary.Fail, c.pods)
				}
			}
			random := rand.New(rand.NewPCG(1, 2))
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			if again := collect(limits, &audit.Outcome{}, all...); !reflect.DeepEqual(again, out) {
				t.Error("in another order the reports are others")
			}
		})
	}
}

// TestHostile: names and messages of strangers are bounded, printable and valid, however long they are.
func TestHostile(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"an escape": "\x1b[31mred\x1b]0;title\a", "lines": "a\n::error::b\r\nc", "no UTF-8": "\xff\xfe\x00", "long": strings.Repeat("é", 100_000),
		"long of what is escaped": strings.Repeat("\x00", 100_000), "right to left": "a\u202eb",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := violation("shop", "limits", "a", audit.Fail)
			r.Message, r.Rule, r.Object.Name, r.Template, r.Binding = text, text, text, text, text
			out := collect(defaults, &audit.Outcome{}, r)
			encoded, err := json.Marshal(out.All)
			if err != nil || len(encoded) > 4<<10 || !utf8.Valid(encoded) {
				t.Fatalf("%d bytes, %v", len(encoded), err)
			}
			for _, s := range []string{out.All[0].Results[0].Description, out.All[0].Results[0].Subjects[0].Name, out.All[0].Results[0].Rule} {
				if strings.ContainsAny(s, "\x00\x07\x1b\n\r\u202e") || len(s) > 500 {
					t.Errorf("it has %q", s)
				}
			}
		})
	}
}

// TestMemory: however many results there are, few are kept.
func TestMemory(t *testing.T) {
	t.Parallel()
	f := openreports.New(openreports.Limits{Results: 500, Bytes: openreports.MinBytes})
	for i := range 20_000 {
		f.Result(violation(fmt.Sprintf("team-%03d", i%700), "everything", fmt.Sprintf("pod-%05d", i), audit.Fail))
	}
	out := f.Reports(&audit.Outcome{})
	results := 0
	for _, r := range out.All {
		results += len(r.Results)
	}
	if results > openreports.MinBytes/200 || out.Bytes > openreports.MinBytes {
		t.Errorf("%d results of %d bytes", results, out.Bytes)
	}
	if got := f.Policies()[openreports.Policy{Kind: "AdmissionPolicy", Name: "everything"}].Fail; got != 20_000 {
		t.Errorf("%d violations", got)
	}
}

// TestManyUnread: what was not read is counted completely and named up to a bound, wherever it is in the order.
func TestManyUnread(t *testing.T) {
	t.Parallel()
	var outcome audit.Outcome
	for i := range 200 {
		outcome.Coverage = append(outcome.Coverage, audit.Coverage{
			GroupVersionResource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("r%03d", i)}, Complete: i < 140,
		})
	}
	out := collect(defaults, &outcome)
	if len(out.All) != 1 || out.All[0].Summary.Error != 60 || len(out.All[0].Results) != 51 {
		t.Fatalf("the reports are %+v", out.All)
	}
	if got := out.All[0].Results[0].Description; !strings.HasPrefix(got, "and 10 more resources") {
		t.Errorf("the first is %q", got)
	}
	if got := out.All[0].Results[50].Rule; got != "r189.example.org" {
		t.Errorf("the last is %q", got)
	}
}

// TestLargestFirst: the long results of one tenant do not take the results or the reports of others.
func TestLargestFirst(t *testing.T) {
	t.Parallel()
	var all []audit.Result
	for i := range 10 {
		for k := range 50 {
			all = append(all, violation(fmt.Sprintf("small-%d", i), "limits", fmt.Sprintf("pod-%02d", k), audit.Fail))
		}
		for k := range 100 {
			r := violation(fmt.Sprintf("large-%d", i), "limits", fmt.Sprintf("%s-%02d", strings.Repeat("x", 240), k), audit.Fail)
			r.Message = strings.Repeat("x", 400)
			all = append(all, r)
		}
	}
	out := collect(openreports.Limits{Results: 100, Bytes: 700 << 10}, &audit.Outcome{}, all...)
	if len(out.All) != 20 || out.Bytes > 700<<10 || out.Bytes < 350<<10 {
		t.Fatalf("%d reports of %d bytes", len(out.All), out.Bytes)
	}
	for i := range out.All {
		r := &out.All[i]
		if n := len(r.Results); strings.HasPrefix(r.Namespace, "small") != (n == 50) {
			t.Errorf("%s has %d results", r.Namespace, n)
		}
	}
}
