package baseline_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
)

func digits() string { return strings.Repeat("0123456789abcdef", 4) }

func TestParseEntry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, object, err string }{
		{name: "in a namespace", text: "shop/Deployment/web@sha256:" + digits(), object: "shop/Deployment/web"},
		{name: "cluster-scoped", text: "Namespace/shop@sha256:" + digits(), object: "Namespace/shop"},
		{name: "a name with a digest", text: "Role/a@sha256:b@sha256:" + digits(), object: "Role/a@sha256:b"},
		{name: "a digest alone", text: "sha256:" + digits()},
		{name: "nothing before the separator", text: "@sha256:" + digits(), err: `"@sha256:` + digits()[:52] + `…" is not an entry`},
		{name: "capitals", text: "a/b@sha256:" + strings.ToUpper(digits()), err: "is not an entry"},
		{name: "a digit too few", text: "a/b@sha256:" + digits()[1:], err: "is not an entry"},
		{name: "a digit too many", text: "a/b@sha256:" + digits() + "0", err: "is not an entry"},
		{name: "no digits", text: "a/b@sha256:" + strings.Repeat("x", 64), err: "is not an entry"},
		{name: "another algorithm", text: "a/b@sha512:" + digits(), err: "is not an entry"},
		{name: "nothing", err: `"" is not an entry: write NAMESPACE/KIND/NAME@sha256:DIGITS, with 64 hexadecimal digits in lower case`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, err := baseline.ParseEntry(tt.text)
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %s", err, tt.err)
				}
			case err != nil || e.Object != tt.object || e.String() != tt.text:
				t.Errorf("got %+v, %v", e, err)
			}
		})
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add("shop/Deployment/web@sha256:" + digits())
	f.Add("sha256:" + digits())
	f.Fuzz(func(t *testing.T, text string) {
		if e, err := baseline.ParseEntry(text); err == nil && e.String() != text {
			t.Errorf("%q is read as %q", text, e.String())
		}
	})
}

// TestCompact keeps the digests alone, in order, and writes them again.
func TestCompact(t *testing.T) {
	t.Parallel()
	low, high := strings.Repeat("0", 64), strings.Repeat("f", 64)
	rules, problems := baseline.Compact(&v1alpha1.PolicyBaselineSpec{Rules: []v1alpha1.BaselineRule{
		{Kind: "AdmissionPolicy", Policy: "p", Rule: "validations[0]", Entries: []string{"a/b@sha256:" + high, "c/d@sha256:" + low}},
	}})
	if len(problems) > 0 || len(rules) != 1 || len(rules[0].Digests) != 2 {
		t.Fatal(rules, problems)
	}
	if got := baseline.Expand(rules); strings.Join(got[0].Entries, " ") != "sha256:"+low+" sha256:"+high || got[0].Rule != "validations[0]" {
		t.Errorf("got %v", got)
	}
	var last baseline.Digest
	last[0] = 1
	if !rules[0].Has(rules[0].Digests[1]) || rules[0].Has(last) {
		t.Error("a digest is not found, or one that is not there is")
	}
	// A hostile document is refused before its entries are read.
	hostile := v1alpha1.PolicyBaselineSpec{Rules: make([]v1alpha1.BaselineRule, 2)}
	hostile.Rules[1].Entries = make([]string, baseline.MaxEntries+1)
	rules, problems = baseline.Compact(&hostile)
	if len(rules) != 0 || len(problems) != 4 || problems[3].Field != "spec.rules[1].entries" || !strings.Contains(problems[3].Detail, "more than 1000 entries: split it into several") {
		t.Errorf("got %v, %v", rules, problems)
	}
}
