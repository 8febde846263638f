package openreports_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
)

// violation returns a result about a pod.
func violation(namespace, policy, pod string, status audit.Status) audit.Result {
	return audit.Result{
		Object: audit.Object{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: namespace, Name: pod, UID: "0a1b2c3d-0000-4000-8000-" + pod},
		Status: status, Kind: "AdmissionPolicy", Policy: policy, Rule: "validations[0]", Message: "every container must have a memory limit",
	}
}

func collect(outcome *audit.Outcome, results ...audit.Result) []v1alpha1.Report {
	f := openreports.New()
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
	out := collect(&audit.Outcome{
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
	for _, r := range out {
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
		"  fail limits " + fmt.Sprintf(limits, "c"),
		"  fail limits " + fmt.Sprintf(limits, "a"),
		"  error limits " + fmt.Sprintf(limits, "e"),
		"  warn names " + fmt.Sprintf(limits, "b"),
		`"web" fail 0 warn 1 error 0 skip 0`,
		"  warn ndots " + fmt.Sprintf(limits, "w"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the reports are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestBounds: a policy that everything violates does not displace the results of others, all reports together are bounded, and the
// totals are true.
func TestBounds(t *testing.T) {
	t.Parallel()
	var all []audit.Result
	for i := range 200 {
		for k := range 100 {
			all = append(all, violation(fmt.Sprintf("team-%04d", i), "everything", fmt.Sprintf("pod-%04d", k), audit.Fail))
		}
		all = append(all, violation(fmt.Sprintf("team-%04d", i), "some", "pod-0001", audit.Warn))
	}
	out := collect(&audit.Outcome{}, all...)
	results := 0
	for _, r := range out {
		if results += len(r.Results); r.Summary.Fail != 100 || r.Summary.Warn != 1 {
			t.Errorf("the totals of %s are %+v", r.Namespace, r.Summary)
		}
	}
	if n := len(out[0].Results); n != 31 || out[0].Results[30].Policy != "some" || len(out) != 200 || results != 5000 {
		t.Errorf("the first of %d reports has %d results, all have %d", len(out), n, results)
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
			out := collect(&audit.Outcome{}, r)
			encoded, err := json.Marshal(out)
			if err != nil || len(encoded) > 4<<10 || !utf8.Valid(encoded) {
				t.Fatalf("%d bytes, %v", len(encoded), err)
			}
			for _, s := range []string{out[0].Results[0].Description, out[0].Results[0].Subjects[0].Name, out[0].Results[0].Rule} {
				if strings.ContainsAny(s, "\x00\x07\x1b\n\r\u202e") || len(s) > 500 {
					t.Errorf("it has %q", s)
				}
			}
		})
	}
}

// TestManyUnread: what was not read is counted completely and named up to a bound.
func TestManyUnread(t *testing.T) {
	t.Parallel()
	var outcome audit.Outcome
	for i := range 200 {
		outcome.Coverage = append(outcome.Coverage, audit.Coverage{
			GroupVersionResource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("r%03d", i)}, Complete: i < 140,
		})
	}
	out := collect(&outcome)
	if len(out) != 1 || out[0].Summary.Error != 60 || len(out[0].Results) != 51 {
		t.Fatalf("the reports are %+v", out)
	}
	if got := out[0].Results[49].Rule; got != "r189.example.org" {
		t.Errorf("the last but one is %q", got)
	}
	if got := out[0].Results[50].Description; !strings.HasPrefix(got, "and 10 more resources") {
		t.Errorf("the last is %q", got)
	}
}
