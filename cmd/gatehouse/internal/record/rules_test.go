package record_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

func compile(t *testing.T, c v1alpha1.RecordingConfiguration) *record.Rules {
	t.Helper()
	rules, found := record.CompileRules("recording.yaml", &c)
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return rules
}

func podRequest() []byte {
	return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"shop","userInfo":{"username":"anna","groups":[]},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop"}}}}`)
}

func TestRulesMatch(t *testing.T) {
	t.Parallel()
	rule := func(resource string) *admissionregistrationv1.MatchResources {
		return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}}}
	}
	labelled := func(value string) *admissionregistrationv1.MatchResources {
		return &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": value}}}
	}
	condition := func(text string) []admissionregistrationv1.MatchCondition {
		return []admissionregistrationv1.MatchCondition{{Name: "c", Expression: text}}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"env": "prod"}}}
	for _, tt := range []struct {
		name  string
		match v1alpha1.RecordingMatch
		want  bool
	}{
		{"resource", v1alpha1.RecordingMatch{MatchConstraints: rule("pods")}, true},
		{"another resource", v1alpha1.RecordingMatch{MatchConstraints: rule("services")}, false},
		{"namespace label", v1alpha1.RecordingMatch{MatchConstraints: labelled("prod")}, true},
		{"another namespace label", v1alpha1.RecordingMatch{MatchConstraints: labelled("dev")}, false},
		{"condition", v1alpha1.RecordingMatch{MatchConditions: condition("request.namespace == 'shop'")}, true},
		{"another condition", v1alpha1.RecordingMatch{MatchConditions: condition("request.namespace == 'dev'")}, false},
		{"condition that fails", v1alpha1.RecordingMatch{MatchConditions: condition("object.spec.x == 1")}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rules := compile(t, v1alpha1.RecordingConfiguration{Match: tt.match})
			c := record.Candidate{Review: &record.Review{ID: "1", Decision: review.Denied}, Body: podRequest(), Namespace: "shop", Object: namespace}
			if got := rules.Keep(t.Context(), &c); got != tt.want {
				t.Errorf("Keep = %v, want %v", got, tt.want)
			}
			c.Body = nil
			if !rules.Keep(t.Context(), &c) {
				t.Error("a token review is not recorded")
			}
		})
	}
}

func TestRulesSampling(t *testing.T) {
	t.Parallel()
	none, half := 0.0, 0.5
	for _, tt := range []struct {
		name      string
		sampling  v1alpha1.RecordingSampling
		candidate record.Candidate
		// least and most are of 1,000 reviews.
		least, most int
	}{
		{"all by default", v1alpha1.RecordingSampling{}, record.Candidate{}, 1000, 1000},
		{"none", v1alpha1.RecordingSampling{Default: &none}, record.Candidate{}, 0, 0},
		{"half", v1alpha1.RecordingSampling{Default: &half}, record.Candidate{}, 450, 550},
		{"denials", v1alpha1.RecordingSampling{Default: &none}, record.Candidate{Review: &record.Review{Decision: review.Denied}}, 1000, 1000},
		{"cannot decide", v1alpha1.RecordingSampling{Default: &none}, record.Candidate{Review: &record.Review{Decision: review.Unknown}}, 1000, 1000},
		{"warnings", v1alpha1.RecordingSampling{Default: &none}, record.Candidate{Warned: true}, 1000, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rules := compile(t, v1alpha1.RecordingConfiguration{Sampling: tt.sampling})
			kept := 0
			for i := range 1000 {
				c := tt.candidate
				one := record.Review{Decision: review.Allowed}
				if c.Review != nil {
					one = *c.Review
				}
				one.ID = fmt.Sprint("uid-", i)
				c.Review = &one
				first := rules.Keep(t.Context(), &c)
				if rules.Keep(t.Context(), &c) != first {
					t.Fatal("the same review is kept once and not the other time")
				}
				if first {
					kept++
				}
			}
			if kept < tt.least || kept > tt.most {
				t.Errorf("%d of 1000 are kept, want %d to %d", kept, tt.least, tt.most)
			}
		})
	}
}

func TestReadRules(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: gatehouse.dev/v1alpha1\nkind: RecordingConfiguration\n"
	for _, tt := range []struct{ name, text, want string }{
		{"all", head, ""},
		{"everything set", head + "match: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods]}]}, matchConditions: [{name: x, expression: \"request.namespace != 'dev'\"}]}\n" +
			"sampling: {default: 0.01}\n" +
			"redaction: {paths: ['spec.containers[*].args'], annotations: ['*.internal/*']}\n", ""},
		{"unknown field", head + "samples: {}\n", `samples: unknown field`},
		{"condition does not compile", head + "match: {matchConditions: [{name: x, expression: 'request.nothing == 1'}]}\n", "match.matchConditions[0].expression"},
		{"share", head + "sampling: {default: 2}\n", "sampling.default: 2 must be from 0 to 1"},
		{"negative share", head + "sampling: {default: -1}\n", "sampling.default: -1 must be from 0 to 1"},
		{"path of a label", head + "redaction: {paths: [metadata.labels]}\n", "metadata cannot be redacted"},
		{"another kind", "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\n", "must hold one document, a RecordingConfiguration"},
		{"two documents", head + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n", "must hold one document"},
		{"empty", "", "must hold one document"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "recording.yaml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, _, found := record.ReadRules(file)
			err := found.Err()
			if tt.want == "" && (err != nil || c == nil) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
