package baseline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
)

func header() *v1alpha1.PolicyBaseline {
	return &v1alpha1.PolicyBaseline{
		ObjectMeta: metav1.ObjectMeta{Name: "strict", Namespace: "gatehouse-system"},
		Spec:       v1alpha1.PolicyBaselineSpec{Reason: "rollout", ExpiresAt: metav1.NewTime(time.Date(2027, 3, 31, 0, 0, 0, 0, time.UTC))},
	}
}

func entryOf(i int) *baseline.Entry {
	return &baseline.Entry{Object: fmt.Sprintf("shop/Deployment/d%04d", i), Digest: baseline.Digest{byte(i >> 8), byte(i)}}
}

// TestDocuments writes, reads and prunes a baseline that is too large for one document.
func TestDocuments(t *testing.T) {
	t.Parallel()
	rule, other := baseline.RuleName{Kind: "AdmissionPolicy", Policy: "p", Rule: "validations[0]"}, baseline.RuleName{Kind: "AdmissionPolicy", Policy: "a", Rule: "podSecurity.hostPorts"}
	var all, now baseline.Violations
	for i := range 2100 {
		all.Add(rule, entryOf(2099-i), "")
		all.Add(rule, entryOf(i), "") // twice
		if i%2 == 0 {
			now.Add(rule, entryOf(i), "")
		}
	}
	all.Add(other, entryOf(7), "")
	now.Add(rule, entryOf(5000), "")
	now.Add(rule, nil, "it reads params")
	now.Add(rule, nil, "it reads params")
	documents := all.Documents(header())
	var names []string
	size := 0
	for i := range documents {
		names = append(names, fmt.Sprint(documents[i].Namespace, "/", documents[i].Name))
		for _, r := range documents[i].Spec.Rules {
			size += len(r.Entries)
			if !slices.IsSorted(r.Entries) {
				t.Error("the entries are not sorted")
			}
		}
	}
	if fmt.Sprint(names) != "[gatehouse-system/strict gatehouse-system/strict-2 gatehouse-system/strict-3]" || size != 2101 || documents[0].Spec.Rules[0].Policy != "a" || len(documents[0].Spec.Rules[1].Entries) != 999 {
		t.Errorf("got %v with %d entries", names, size)
	}
	again, err := baseline.Read(documents)
	if err != nil || again.Len() != 2101 {
		t.Fatal(again.Len(), err)
	}
	if dropped := again.Prune(&now); dropped != 1051 || again.Len() != 1050 {
		t.Errorf("dropped %d, left are %d", dropped, again.Len())
	}
	text, err := baseline.Encode(again.Documents(header()))
	if err != nil {
		t.Fatal(err)
	}
	const begins = `apiVersion: gatehouse.dev/v1alpha1
kind: PolicyBaseline
metadata:
  name: strict
  namespace: gatehouse-system
spec:
  expiresAt: "2027-03-31T00:00:00Z"
  notCovered:
  - kind: AdmissionPolicy
    policy: p
    reason: it reads params
    rule: validations[0]
    violations: 2
  reason: rollout
  rules:
  - kind: AdmissionPolicy
    policy: p
    rule: validations[0]
    entries:
    - shop/Deployment/d0000@sha256:0000000000000000000000000000000000000000000000000000000000000000
    - shop/Deployment/d0002@sha256:0002000000000000000000000000000000000000000000000000000000000000
`
	if !strings.HasPrefix(string(text), begins) || strings.Count(string(text), "\n---\n") != 1 {
		t.Errorf("got\n%.1500s", text)
	}
	var read v1alpha1.PolicyBaseline
	if err := yaml.UnmarshalStrict([]byte(strings.Split(string(text), "\n---\n")[0]), &read); err != nil || len(read.Spec.Rules[0].Entries) != baseline.MaxEntries || !read.Spec.ExpiresAt.Equal(&header().Spec.ExpiresAt) {
		t.Errorf("got %v", err)
	}
	if _, err := baseline.Read([]v1alpha1.PolicyBaseline{{Spec: v1alpha1.PolicyBaselineSpec{Rules: []v1alpha1.BaselineRule{{Rule: "r", Entries: []string{"x"}}}}}}); err == nil {
		t.Error("an entry that is none is read")
	}
	var empty baseline.Violations
	if documents := empty.Documents(header()); len(documents) != 1 || len(documents[0].Spec.Rules) != 0 {
		t.Errorf("got %v", documents)
	}
}
