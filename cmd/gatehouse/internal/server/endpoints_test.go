package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// TestPoliciesAreObserved checks that policies are observed once for a review, and not
// for a dry run, which leaves no trace but its answer.
func TestPoliciesAreObserved(t *testing.T) {
	t.Parallel()
	named := v1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "named"}}
	named.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	named.Spec.Validations = []v1alpha1.Validation{{Validation: admissionregistrationv1.Validation{Expression: "object.metadata.name != 'bad'", Message: "a bad name"}}}
	named.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		},
	}}}
	spec := webhooks.Spec{Policy: policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{{AdmissionPolicy: named}}}}
	for _, tc := range []struct {
		name, object, dryRun string
		want                 string
	}{
		{"kept", "good", "false", `AdmissionPolicy "named" validations[0] Passed`},
		{"violated", "bad", "false", `AdmissionPolicy "named" validations[0] Violated`},
		{"kept in a dry run", "good", "true", ""},
		{"violated in a dry run", "bad", "true", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var rules []string
			timed := 0
			handler := newReviews(t, spec, func(o *server.ReviewOptions) {
				o.Policies = func(observations []policy.Observation) {
					for _, o := range observations {
						if o.Rule == "" && o.Elapsed > 0 {
							timed++
							continue
						}
						rules = append(rules, fmt.Sprintf("%s %q %s %s", o.Kind, o.Policy, o.Rule, o.Outcome))
					}
				}
			})
			body := strings.NewReplacer(`"name":"a"`, `"name":"`+tc.object+`"`, `"dryRun":false`, `"dryRun":`+tc.dryRun).Replace(admissionBody)
			w := call(t, handler, "/validate", body, nil)
			if allowed := fmt.Sprintf(`"allowed":%v`, tc.object == "good"); !strings.Contains(w.Body.String(), allowed) {
				t.Errorf("no %s in %s", allowed, w.Body)
			}
			if got := strings.Join(rules, ", "); got != tc.want {
				t.Errorf("observed %q, want %q", got, tc.want)
			}
			if want := strings.Count(tc.want, "AdmissionPolicy"); timed != want {
				t.Errorf("%d observations of the whole policy with a time, want %d", timed, want)
			}
		})
	}
}

// TestClientCertificates checks that token reviews are answered only to callers with a
// verified and valid client certificate, and admission reviews too where that is
// required. People need none.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	valid, expired := time.Now().Add(time.Hour), time.Now().Add(-time.Second)
	required := []string{"a client certificate is required here"}
	for _, tc := range []struct {
		name   string
		caller *tls.ConnectionState
		// want is in the answer where certificates are required, nil for a decision.
		want []string
	}{
		{"nobody", new(tls.ConnectionState), required},
		{"without TLS", nil, required},
		{"a certificate that was not verified", certified(valid, false), required},
		{"a certificate that has expired since", certified(expired, true), []string{"has expired"}},
		{"a verified certificate", certified(valid, true), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, admissionToo := range []bool{true, false} {
				var last review.Outcome
				handler := newReviews(t, webhooks.Spec{}, func(o *server.ReviewOptions) {
					o.Observe, o.RequireClientCertificate = func(o *review.Outcome) { last = *o }, admissionToo
				})
				for path, hint := range map[string]string{
					"/mutate": "kubeConfigFile in the API server's AdmissionConfiguration", "/validate": "kubeConfigFile in the API server's AdmissionConfiguration",
					"/authenticate": "API server's webhook kubeconfig", "/login": "", "/whoami": "",
				} {
					body, status := admissionBody, http.StatusForbidden
					if path == "/authenticate" {
						body, status = tokenBody, http.StatusOK // with an error: an API server would retry any other
					}
					w := call(t, handler, path, body, tc.caller)
					if hint == "" || tc.want == nil || !admissionToo && path != "/authenticate" {
						if w.Code != http.StatusOK {
							t.Errorf("%s, required for admission %v: not answered: %d %s", path, admissionToo, w.Code, w.Body)
						}
						continue
					}
					if w.Code != status || last.Decision != review.Refused || last.Reason != "caller" {
						t.Errorf("%s, required for admission %v: status %d, outcome %s %s, want %d, refused, caller", path, admissionToo, w.Code, last.Decision, last.Reason, status)
					}
					if tc.want[0] != required[0] {
						hint = "" // the caller knows how to show one
					}
					for _, text := range append([]string{hint}, tc.want...) {
						if !strings.Contains(w.Body.String(), text) {
							t.Errorf("%s: no %q in %q", path, text, w.Body)
						}
					}
					// Such callers must not hold connections either.
					if kept := w.Header().Get("Connection") != "close"; kept != (tc.caller != nil && len(tc.caller.VerifiedChains) > 0) {
						t.Errorf("%s: the connection is kept: %v", path, kept)
					}
				}
			}
		})
	}
}

// TestIncompleteConfiguration: while the configuration is incomplete no endpoint decides by
// it. Only custom resources are reviewed, which can complete it.
func TestIncompleteConfiguration(t *testing.T) {
	t.Parallel()
	var complete atomic.Bool
	var outcomes []review.Outcome
	handler := newReviews(t, webhooks.Spec{}, func(o *server.ReviewOptions) {
		o.Login = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") })
		o.Observe = func(o *review.Outcome) { outcomes = append(outcomes, *o) }
		o.CustomResources = crdadmission.New(func() *config.Config { return new(config.Config) })
		o.CheckComplete = func() error {
			if complete.Load() {
				return nil
			}
			return errors.New("some are missing")
		}
	})
	admissionOf := func(group, resource string) string {
		return strings.NewReplacer(`"group":""`, `"group":"`+group+`"`, `"configmaps"`, `"`+resource+`"`).Replace(admissionBody)
	}
	for _, tc := range []struct {
		name, path, body string
		code             int
		says, detail     string
	}{
		{"mutate", "/mutate", admissionOf("", "pods"), 500, "cannot decide", "some are missing"},
		{"validate", "/validate", admissionOf("", "configmaps"), 500, "cannot decide", "some are missing"},
		{"custom resource", "/validate", admissionOf("gatehouse.dev", "others"), 200, `"allowed":true`, ""},
		{"authenticate", "/authenticate", tokenBody, 200, `"error":`, "some are missing"},
		{"login", "/login", "{}", 503, "try again", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			send := func() (int, string) {
				outcomes = nil
				w := call(t, handler, tc.path, tc.body, certified(time.Now().Add(time.Hour), true))
				return w.Code, w.Body.String()
			}
			complete.Store(false)
			code, body := send()
			if code != tc.code || !strings.Contains(body, tc.says) || strings.Contains(body, `"authenticated":true`) {
				t.Errorf("answered %d %s, want %d and %q", code, body, tc.code, tc.says)
			}
			if tc.detail != "" && (len(outcomes) != 1 || outcomes[0].Decision != review.Unknown || !strings.Contains(outcomes[0].Detail, tc.detail)) {
				t.Errorf("the outcomes are %+v", outcomes)
			}
			complete.Store(true)
			if code, body := send(); code != 200 || strings.Contains(body, `"error"`) {
				t.Errorf("with a complete configuration it answers %d %s", code, body)
			}
		})
	}
}
