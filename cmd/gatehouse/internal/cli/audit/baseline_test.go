package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/summary"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
)

// now is the time of the tests.
func now() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }

// violation returns a violation of a rule, with its entry.
func violation(name string, status audit.Status) audit.Result {
	return audit.Result{
		Object: pod("shop", name), Status: status, Kind: "AdmissionPolicy", Policy: "limits", Rule: "validations[memory]", Message: "set it",
		Entry: &baseline.Entry{Object: "shop/Deployment/" + name, Digest: sha256.Sum256([]byte(name))},
	}
}

// baselineRun audits results with a baseline, and returns the report, of which the audit is complete unless partial.
func baselineRun(t *testing.T, flags baselineFlags, partial bool, results ...audit.Result) (*report, error) {
	t.Helper()
	of := &config.Config{}
	of.Policy.Configuration = &policy.Configuration{}
	of.Policy.Configuration.Exceptions.OwnNamespaces = []string{"pay", "shop"}
	f := &auditFlags{baseline: flags, failOn: newThresholds()}
	file, err := flags.open(now())
	if err != nil {
		return nil, err
	}
	a := summary.New(1)
	c := newCollector(file, flags.add || !file.exists, now(), of.Policy.ReachOf, a)
	for _, r := range results {
		c.Object(r.Object)
		c.Result(r)
	}
	r := newReport(f, "the policies", &audit.Outcome{Complete: !partial}, a.Summary())
	r.conclude(f.failOn.List(violationsName))
	of.Policy.AdmissionPolicies = []policy.AdmissionPolicy{{AdmissionPolicy: v1alpha1.AdmissionPolicy{}}}
	of.Policy.AdmissionPolicies[0].Name = "limits"
	of.Policy.AdmissionPolicies[0].Spec.ValidationActions = []admissionregistrationv1.ValidationAction{"Deny"}
	return r, f.concludeBaseline(r, c, of, false, false)
}

// counted says what became of a baseline.
func counted(r *report) string {
	b := r.Baseline
	text := fmt.Sprintf("%d entries, %d added, %d pruned, %d gone, %d new, %d fail, %d baselined, %s", b.Entries, b.Added, b.Pruned, b.Gone, b.New, r.Totals.Fail, r.Totals.Baselined, r.Result)
	if b.Written {
		text += ", written"
	}
	return text
}

// TestBaselineFile follows a file from its first run to its end: only flags that say so change it.
func TestBaselineFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "baseline.yaml")
	first := baselineFlags{path: path, expires: "2027-03-31", reason: "later"}
	a, b, c := violation("a", audit.Fail), violation("b", audit.Warn), violation("c", audit.Fail)
	old := violation("old", audit.Fail)
	old.HasEnded = true
	excepted := violation("x", audit.Skip)
	excepted.Exception = "shop/some"
	other := violation("y", audit.Skip)
	other.Baseline = "shop/other"
	own := violation("a", audit.Skip)
	own.Baseline = "gatehouse-system/baseline"
	params := violation("p", audit.Fail)
	params.Rule, params.Entry, params.NotCovered = "validations[params]", nil, "it reads params"
	for _, step := range []struct {
		name    string
		flags   baselineFlags
		partial bool
		results []audit.Result
		want    string
	}{
		{"the first run", first, false, []audit.Result{a, a, b, old, excepted, other, params}, "2 entries, 2 added, 0 pruned, 0 gone, 0 new, 1 fail, 4 baselined, fail, written"},
		{"the same again", baselineFlags{path: path}, false, []audit.Result{own, b, old, excepted}, "2 entries, 0 added, 0 pruned, 0 gone, 0 new, 0 fail, 2 baselined, pass"},
		{"a new violation", baselineFlags{path: path}, false, []audit.Result{a, b, c}, "2 entries, 0 added, 0 pruned, 0 gone, 1 new, 1 fail, 2 baselined, fail"},
		{"a new violation is pruned", baselineFlags{path: path, prune: true}, false, []audit.Result{a, b, c}, "2 entries, 0 added, 0 pruned, 0 gone, 1 new, 1 fail, 2 baselined, fail"},
		{"a new violation is added", baselineFlags{path: path, add: true}, false, []audit.Result{a, b, c}, "3 entries, 1 added, 0 pruned, 0 gone, 0 new, 0 fail, 3 baselined, pass, written"},
		{"one is mended", baselineFlags{path: path}, false, []audit.Result{a, b}, "3 entries, 0 added, 0 pruned, 1 gone, 0 new, 0 fail, 2 baselined, pass"},
		{"one is left in what has ended", baselineFlags{path: path}, false, []audit.Result{a, b, {
			Object: c.Object, Status: audit.Fail, Kind: c.Kind, Policy: c.Policy, Rule: c.Rule, Entry: c.Entry, HasEnded: true,
		}}, "3 entries, 0 added, 0 pruned, 1 gone, 0 new, 0 fail, 3 baselined, pass"},
		{"not everything was read", baselineFlags{path: path, prune: true}, true, []audit.Result{a, b}, "3 entries, 0 added, 0 pruned, 0 gone, 0 new, 0 fail, 2 baselined, cannot-decide"},
		{"pruned", baselineFlags{path: path, prune: true}, false, []audit.Result{a, b}, "2 entries, 0 added, 1 pruned, 0 gone, 0 new, 0 fail, 2 baselined, pass, written"},
		{"another end", baselineFlags{path: path, expires: "2027-06-30T18:00:00+02:00"}, false, []audit.Result{a, b}, "2 entries, 0 added, 0 pruned, 0 gone, 0 new, 0 fail, 2 baselined, pass, written"},
	} {
		before, _ := os.ReadFile(path)
		r, err := baselineRun(t, step.flags, step.partial, step.results...)
		if err != nil {
			t.Fatal(step.name, err)
		}
		if got := counted(r); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
		after, err := os.ReadFile(path)
		if err != nil || bytes.Equal(before, after) == r.Baseline.Written {
			t.Errorf("%s: written is %v, %v", step.name, r.Baseline.Written, err)
		}
	}
	text, err := os.ReadFile(path)
	const want = `# Violations that are allowed until they are mended. 'gatehouse audit --baseline' writes this file.
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyBaseline
metadata:
  name: baseline
  namespace: gatehouse-system
spec:
  reason: later
  expiresAt: "2027-06-30T16:00:00Z"
  rules:
    - kind: AdmissionPolicy
      policy: limits
      rule: validations[memory]
      entries:
        - shop/Deployment/a@sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb
        - shop/Deployment/b@sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d
`
	if err != nil || string(text) != want {
		t.Errorf("the file is, %v\n%swant\n%s", err, text, want)
	}
}

// TestLargeBaseline: a file has as many documents as its entries need, which keep theirs.
func TestLargeBaseline(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "large.yaml")
	var all []audit.Result
	for i := range 2*baseline.MaxEntries + 500 {
		all = append(all, violation(fmt.Sprintf("app-%04d", i), audit.Fail))
	}
	r, err := baselineRun(t, baselineFlags{path: path, expires: "2027-03-31", reason: "later"}, false, all...)
	if err != nil || !slices.Equal(r.Baseline.Documents, []string{"gatehouse-system/large", "gatehouse-system/large-2", "gatehouse-system/large-3"}) {
		t.Fatalf("%v: %+v", err, r)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read, found := config.InspectText(path, text)
	if err := found.Err(); err != nil || len(read.Policy.Baselines) != 3 || read.Policy.Baselines[2].Entries() != 500 {
		t.Fatalf("%v: %d documents", err, read.Documents)
	}
	// What is left of the second document is nothing.
	left := slices.Concat(all[:baseline.MaxEntries], all[2*baseline.MaxEntries:])
	if r, err = baselineRun(t, baselineFlags{path: path, prune: true}, false, left...); err != nil || !slices.Equal(r.Baseline.Empty, []string{"gatehouse-system/large-2"}) || r.Baseline.Pruned != baseline.MaxEntries {
		t.Fatalf("%v: %s, %v are empty", err, counted(r), r.Baseline.Empty)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, documents := strings.Split(string(text), "---\n"), strings.Split(string(after), "---\n")
	if documents[0] != before[0] || documents[2] != before[2] || strings.Contains(documents[1], "entries") {
		t.Error("entries have moved to other documents")
	}
	// It is filled again.
	if r, err = baselineRun(t, baselineFlags{path: path, add: true}, false, all...); err != nil || len(r.Baseline.Documents) != 3 || r.Baseline.Entries != int64(len(all)) {
		t.Errorf("%v: %s in %q", err, counted(r), r.Baseline.Documents)
	}
}

// TestDeletedDocument: a document in between that was deleted, as the report advises, takes its name with it, and no other gets it twice.
func TestDeletedDocument(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "large.yaml")
	text := "---\n"
	for _, name := range []string{"large", "large-3"} {
		text += "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyBaseline\nmetadata: {name: " + name + ", namespace: gatehouse-system, annotations: {kubectl.kubernetes.io/last-applied-configuration: x, a: b}}\n" +
			"spec:\n  reason: r\n  expiresAt: \"2027-01-01T00:00:00Z\"\n  rules:\n  - {kind: AdmissionPolicy, policy: limits, rule: \"validations[memory]\", entries: ["
		for i := range baseline.MaxEntries {
			text += fmt.Sprintf("%q, ", violation(fmt.Sprintf("%s-%d", name, i), audit.Fail).Entry)
		}
		text += "]}\n---\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []baselineFlags{{path: path, add: true}, {path: path}} {
		r, err := baselineRun(t, flags, false, violation("new", audit.Fail))
		if err != nil || !slices.Equal(r.Baseline.Documents, []string{"gatehouse-system/large", "gatehouse-system/large-3", "gatehouse-system/large-2"}) || r.Totals.Baselined != 1 {
			t.Fatalf("%v: %+v", err, r)
		}
	}
	if after, err := os.ReadFile(path); err != nil || bytes.Contains(after, []byte("last-applied")) || bytes.Count(after, []byte("a: b")) != 2 {
		t.Errorf("%v: the annotations are wrong in\n%.600s", err, after)
	}
}

// TestBaselineAsServers: an entry counts as it does for a server, by the namespace and the expiry of its document.
func TestBaselineAsServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, namespace, expires, want, sentence string }{
		{"a namespace for all objects", "gatehouse-system", "2027-01-01", "0 fail, 2 baselined", ""},
		{"a namespace for its own", "shop", "2027-01-01", "0 fail, 2 baselined", ""},
		{"another namespace for its own", "pay", "2027-01-01", "1 fail, 1 baselined", "1 entry does nothing"},
		{"a namespace for none", "other", "2027-01-01", "1 fail, 1 baselined", "1 entry does nothing"},
		{"one of two has expired", "gatehouse-system", "2026-01-01", "1 fail, 1 baselined", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "baseline.yaml")
			text := ""
			for _, d := range []struct{ name, namespace, expires string }{{"a", tt.namespace, tt.expires}, {"b", "gatehouse-system", "2027-01-01"}} {
				text += fmt.Sprintf("---\napiVersion: gatehouse.dev/v1alpha1\nkind: PolicyBaseline\nmetadata: {name: %s, namespace: %s}\nspec: {reason: r, expiresAt: \"%sT00:00:00Z\", rules: [{kind: AdmissionPolicy, policy: limits, rule: \"validations[memory]\", entries: [%q]}]}\n",
					d.name, d.namespace, d.expires, violation(d.name, audit.Fail).Entry)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := baselineRun(t, baselineFlags{path: path}, false, violation("a", audit.Fail), violation("b", audit.Fail))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%d fail, %d baselined", r.Totals.Fail, r.Totals.Baselined); got != tt.want || r.Baseline.New != 0 {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := strings.Join(r.Baseline.sentences(), "; "); !strings.Contains(got, tt.sentence) || tt.sentence == "" && strings.Contains(got, "nothing:") {
				t.Errorf("got %s, want %q", got, tt.sentence)
			}
		})
	}
}

// TestBaselineTable compares what people read.
func TestBaselineTable(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "baseline.yaml")
	a, c := violation("a", audit.Fail), violation("c", audit.Fail)
	params := violation("p", audit.Fail)
	params.Rule, params.Entry, params.NotCovered = "validations[params]", nil, "it reads params"
	if _, err := baselineRun(t, baselineFlags{path: path, expires: "2027-03-31", reason: "later"}, false, a, violation("b", audit.Fail)); err != nil {
		t.Fatal(err)
	}
	r, err := baselineRun(t, baselineFlags{path: path}, false, a, c, params)
	if err != nil {
		t.Fatal(err)
	}
	r.Baseline.File, r.Baseline.Partial = "baseline.yaml", true
	var out strings.Builder
	r.Baseline.print(decision.LinePrinter(&out))
	const want = `
 ENTRIES     ADDED    PRUNED      GONE       NEW  RULE
       2         0         0         1         1  AdmissionPolicy limits, validations[memory]

not in the baseline:
  AdmissionPolicy limits, validations[params]: it reads params (1 violation)

baseline.yaml: not changed, 2 entries until 2027-03-31T00:00:00Z
baseline.yaml: 1 violation is not in it (hint: mend them, or accept them with --add)
baseline.yaml: 1 entry is no longer needed (hint: --prune drops them)
baseline.yaml: the audit is not complete, so violations of what was not judged may be missing (hint: mend that, and audit again with --add)
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// TestBaselineMistakes: what is wrong with the flags or the file is said before the cluster is asked.
func TestBaselineMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyBaseline\nmetadata: {name: a, namespace: gatehouse-system}\nspec: {reason: r, expiresAt: "
	good := in("good.yaml", head+"\"2027-01-01T00:00:00Z\"}\n")
	late := in("late.yaml", head+"\"2026-01-01T00:00:00Z\"}\n")
	missing := filepath.Join(dir, "missing.yaml")
	for name, c := range map[string]struct {
		flags    baselineFlags
		filtered bool
		want     string
	}{
		"flags without a file":       {baselineFlags{prune: true}, false, "are for --baseline FILE"},
		"no end":                     {baselineFlags{path: missing, reason: "r"}, false, "a new one needs --expires DATE and --reason TEXT"},
		"no reason":                  {baselineFlags{path: missing, expires: "2027-01-01"}, false, "a new one needs --expires DATE and --reason TEXT"},
		"a blank reason":             {baselineFlags{path: missing, expires: "2027-01-01", reason: " "}, false, "--reason must say why"},
		"an end in the past":         {baselineFlags{path: missing, expires: "2026-11-28", reason: "r"}, false, `--expires "2026-11-28" has passed`},
		"an end that is no time":     {baselineFlags{path: missing, expires: "soon", reason: "r"}, false, `--expires "soon": must be a day or a time`},
		"both":                       {baselineFlags{path: good, add: true, prune: true}, false, "exclude each other"},
		"a part of the objects":      {baselineFlags{path: good, prune: true}, true, "--prune needs all objects"},
		"nothing to prune":           {baselineFlags{path: missing, prune: true}, false, "there is no such file"},
		"no directory":               {baselineFlags{path: filepath.Join(dir, "none", "b.yaml"), expires: "2027-01-01", reason: "r"}, false, "the directory does not exist"},
		"a name that is none":        {baselineFlags{path: filepath.Join(dir, "My Baseline.yaml")}, false, "must be a file such as baseline.yaml"},
		"another kind of file":       {baselineFlags{path: filepath.Join(dir, "baseline.json")}, false, "must be a file such as baseline.yaml"},
		"another kind":               {baselineFlags{path: in("kind.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")}, false, "is not a PolicyBaseline"},
		"another kind beside it":     {baselineFlags{path: in("both.yaml", head+"\"2027-01-01T00:00:00Z\"}\n---\napiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\n")}, false, "is not a PolicyBaseline"},
		"an empty file":              {baselineFlags{path: in("empty.yaml", "# nothing\n")}, false, "there is no PolicyBaseline in it"},
		"a file that is no YAML":     {baselineFlags{path: in("text.yaml", "a: [\n")}, false, "is no file of PolicyBaselines"},
		"an unknown field":           {baselineFlags{path: in("field.yaml", strings.Replace(head, "reason", "reasons", 1)+"\"2027-01-01T00:00:00Z\"}\n")}, false, "spec.reasons: unknown field"},
		"adding to one that is over": {baselineFlags{path: late, add: true}, false, "it expired at 2026-01-01T00:00:00Z (hint: give it another end with --expires DATE)"},
		"no reason in it":            {baselineFlags{path: in("reason.yaml", strings.Replace(head, "reason: r", "reason: ''", 1)+"\"2027-01-01T00:00:00Z\"}\n")}, false, "spec.reason: is required (hint: explain the baseline to readers of the audit log)"},
		"no end in it":               {baselineFlags{path: in("end.yaml", strings.Replace(head, ", expiresAt: ", "}\n", 1))}, false, "spec.expiresAt: is required"},
		"a kind that has no rules":   {baselineFlags{path: in("rules.yaml", head+"\"2027-01-01T00:00:00Z\", rules: [{kind: Pod, policy: p, rule: r}]}\n")}, false, `spec.rules[0].kind: "Pod" is not allowed`},
		"too many entries":           {baselineFlags{path: in("many.yaml", head+"\"2027-01-01T00:00:00Z\", rules: [{kind: AdmissionPolicy, policy: p, rule: r, entries: ["+strings.Repeat("\"sha256:"+strings.Repeat("a", 64)+"\", ", baseline.MaxEntries+1)+"]}]}\n")}, false, "the document has more than 1000 entries: split it into several"},
		"a directory":                {baselineFlags{path: directoryIn(t, dir)}, false, "is a directory, and must be a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var problems cli.Problems
			c.flags.check(&problems, c.filtered, now())
			err := problems.Err()
			if err == nil && c.flags.path != "" {
				_, err = c.flags.open(now())
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	// One that is over allows nothing, and can be given another end.
	over := in("over.yaml", head+"\"2026-01-01T00:00:00Z\"}\n")
	for _, flags := range []baselineFlags{{path: over}, {path: over, expires: "2027-01-01"}} {
		r, err := baselineRun(t, flags, false, violation("a", audit.Fail))
		if err != nil || r.Baseline.Expired != (flags.expires == "") || r.Totals.Fail != 1 {
			t.Errorf("%+v: %v, %+v", flags, err, r)
		}
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
}

// directoryIn makes a directory with the name of a file.
func directoryIn(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "directory.yaml")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// FuzzBaselineFile reads any file: it is refused, or what is written of it allows the same.
func FuzzBaselineFile(f *testing.F) {
	f.Add("apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyBaseline\nmetadata: {name: a, namespace: b}\nspec: {reason: r, expiresAt: \"2027-01-01T00:00:00Z\", rules: [{kind: AdmissionPolicy, policy: p, rule: r, entries: [\"a/b/c@sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\"]}]}\n")
	f.Add("---\n# nothing\n---\na: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "baseline.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		first := &known{path: path, entries: map[baseline.RuleName]map[baseline.Digest]*knownEntry{}}
		if first.read() != nil {
			return
		}
		written, err := first.encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, written, 0o600); err != nil {
			t.Fatal(err)
		}
		second := &known{path: path, entries: map[baseline.RuleName]map[baseline.Digest]*knownEntry{}}
		if err := second.read(); err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		if !slices.Equal(first.sizes, second.sizes) || !slices.Equal(first.names(), second.names()) {
			t.Errorf("got %v %v, want %v %v", second.names(), second.sizes, first.names(), first.sizes)
		}
	})
}
