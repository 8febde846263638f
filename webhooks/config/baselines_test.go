package config_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// baselineDocument returns a PolicyBaseline whose spec ends with these lines.
func baselineDocument(spec string) string {
	return "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyBaseline\nmetadata: {name: strict, namespace: gatehouse-system}\nspec:\n" + spec
}

// TestBaselineDocument reads a baseline without the names of objects, and writes what allows the same.
func TestBaselineDocument(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	document := baselineDocument(`  reason: rollout
  expiresAt: 2027-03-31T00:00:00Z
  rules:
  - {kind: AdmissionPolicy, policy: p, rule: "validations[0]", entries: ["shop/Deployment/web@sha256:` + sum + `"]}
  notCovered: [{kind: AdmissionPolicy, policy: p, rule: "validations[1]", reason: it reads request.userInfo, violations: 3}]
`)
	read := func(text string) *policy.Baseline {
		t.Helper()
		c, found := config.InspectText("b.yaml", []byte(text))
		if found.Err() != nil || len(c.Policy.Baselines) != 1 {
			t.Fatal(found, text)
		}
		return &c.Policy.Baselines[0]
	}
	b := read(document)
	if b.Spec.Reason != "rollout" || len(b.Spec.Rules) != 0 || len(b.Rules) != 1 || len(b.Rules[0].Digests) != 1 || b.Rules[0].Digests[0][0] != 0xab {
		t.Errorf("got %+v", b)
	}
	c, _ := config.InspectText("b.yaml", []byte(document))
	encoded, err := c.Encode(func(object []byte) []byte { return object })
	if err != nil {
		t.Fatal(err)
	}
	if again := read(string(encoded)); !again.Rules[0].Has(b.Rules[0].Digests[0]) || !again.Spec.ExpiresAt.Equal(&b.Spec.ExpiresAt) || again.Spec.Reason != "rollout" {
		t.Errorf("got %+v of\n%s", again, encoded)
	}
	if own := c.Own(); len(own.Policy.Baselines) != 1 || own.Policy.Baselines[0].Source != "b.yaml" {
		t.Errorf("got %+v", own.Policy.Baselines)
	}

	var object map[string]any
	if err := yaml.Unmarshal([]byte(document), &object); err != nil {
		t.Fatal(err)
	}
	r := config.ReadResource(&unstructured.Unstructured{Object: object})
	value, is := r.Value.(*policy.Baseline)
	if r.Found.Err() != nil || !is || len(value.Rules) != 1 {
		t.Fatalf("got %+v, %v", r.Value, r.Found)
	}
	empty, _ := config.InspectBeside("")
	if with, found := empty.With([]*config.Resource{r}); found.Err() != nil || len(with.Policy.Baselines) != 1 || with.Policy.Baselines[0].Source != config.ClusterSource {
		t.Errorf("got %v, %v", with, found)
	}
}

func TestBaselineDocumentErrors(t *testing.T) {
	t.Parallel()
	rule := func(entries string) string {
		return baselineDocument("  reason: r\n  expiresAt: 2027-03-31T00:00:00Z\n  rules: [{kind: AdmissionPolicy, policy: p, rule: r, entries: [" + entries + "]}]\n")
	}
	for _, tt := range []struct{ name, document, want string }{
		{"no namespace", strings.Replace(rule(""), ", namespace: gatehouse-system", "", 1), "PolicyBaseline/strict: metadata.namespace: is missing: a PolicyBaseline needs a namespace"},
		{"a field that there is not", baselineDocument("  objects: []\n"), "spec.objects: unknown field"},
		{"a day", baselineDocument("  reason: r\n  expiresAt: 2027-03-31\n"), `spec.expiresAt: "2027-03-31" is not a time such as`},
		{"no digest", rule(`"shop/Deployment/web"`), `PolicyBaseline/gatehouse-system/strict: spec.rules[0].entries[0]: "shop/Deployment/web" is not an entry: write NAMESPACE/KIND/NAME@sha256:DIGITS`},
		{"many that are wrong", rule(strings.TrimSuffix(strings.Repeat("x, ", 900), ", ")), "and 850 more problems"},
		{"many", rule(strings.TrimSuffix(strings.Repeat("x, ", 1001), ", ")), "spec.rules[0].entries: the document has more than 1000 entries: split it into several"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, found := config.InspectText("b.yaml", []byte(tt.document))
			if err := found.Err(); err == nil || !strings.Contains(err.Error(), tt.want) || len(found) > 60 {
				t.Errorf("got %d: %v\nwant %s", len(found), err, tt.want)
			}
		})
	}
}
