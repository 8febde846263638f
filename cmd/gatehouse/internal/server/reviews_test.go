package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestPoliciesAreObserved wants what became of a policy to be shown, once for a
// review, and nothing of a dry run, which leaves no trace but its answer.
func TestPoliciesAreObserved(t *testing.T) {
	t.Parallel()
	named := v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "named"}}
	named.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	named.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "object.metadata.name != 'bad'", Message: "a bad name"}}
	named.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		},
	}}}
	snapshot, err := webhooks.Compile(webhooks.Spec{Policy: policy.Spec{
		AdmissionPolicies: []policy.AdmissionPolicy{{AdmissionPolicy: named}}, Now: time.Now,
	}})
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[webhooks.Snapshot]
	current.Store(snapshot)

	const passed, violated = `AdmissionPolicy "named" validations[0] Passed`, `AdmissionPolicy "named" validations[0] Violated`
	for _, tc := range []struct {
		name, object, dryRun string
		want                 string
	}{
		{"kept", "good", "false", passed},
		{"violated", "bad", "false", violated},
		{"kept in a dry run", "good", "true", ""},
		{"violated in a dry run", "bad", "true", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var rules []string
			whole := 0
			handler := server.Reviews(&current, server.ReviewOptions{
				Login: http.NotFoundHandler(),
				Bytes: 2 * review.MaxAdmissionBytes, Observe: func(*review.Outcome) {}, Profiles: func([]sidecar.Verdict) {},
				Policies: func(observations []policy.Observation) {
					for _, o := range observations {
						if o.Rule == "" && o.Elapsed > 0 {
							whole++
							continue
						}
						rules = append(rules, fmt.Sprintf("%s %q %s %s", o.Kind, o.Policy, o.Rule, o.Outcome))
					}
				},
				Now: time.Now,
			})
			body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",
				"kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},
				"name":%[1]q,"namespace":"shop","operation":"CREATE","userInfo":{"username":"jane"},"dryRun":%[2]s,
				"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%[1]q,"namespace":"shop"}}}}`, tc.object, tc.dryRun)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate?timeout=10s", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if allowed := fmt.Sprintf(`"allowed":%v`, tc.object == "good"); !strings.Contains(w.Body.String(), allowed) {
				t.Errorf("no %s in %s", allowed, w.Body)
			}
			if got := strings.Join(rules, ", "); got != tc.want {
				t.Errorf("observed %q, want %q", got, tc.want)
			}
			if want := strings.Count(tc.want, "AdmissionPolicy"); whole != want {
				t.Errorf("%d observations of the whole policy with a time, want %d", whole, want)
			}
		})
	}
}
