package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
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

// TestWhoIsAnswered wants token reviews to be answered only to callers with a
// client certificate that was verified and has not ended, and admission reviews
// too where that is required. People show none and are answered all the same.
func TestWhoIsAnswered(t *testing.T) {
	t.Parallel()
	snapshot, err := webhooks.Compile(webhooks.Spec{Policy: policy.Spec{Now: time.Now}, Authn: authn.Spec{Now: time.Now}})
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[webhooks.Snapshot]
	current.Store(snapshot)
	now := time.Now()
	valid, ended := &x509.Certificate{NotAfter: now.Add(time.Hour)}, &x509.Certificate{NotAfter: now.Add(-time.Second)}
	shown := func(certificate *x509.Certificate, verified bool) *tls.ConnectionState {
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
		if verified {
			state.VerifiedChains = [][]*x509.Certificate{state.PeerCertificates}
		}
		return state
	}
	const (
		required  = "a client certificate is required here"
		admission = "kubeConfigFile in the API server's AdmissionConfiguration"
		token     = "API server's webhook kubeconfig"
		expired   = "has expired"
	)
	for _, tc := range []struct {
		name   string
		caller *tls.ConnectionState
		// what the answer to an admission review and to a token review says, where
		// certificates are required for both; "" is an answer.
		admission, token []string
	}{
		{"nobody", new(tls.ConnectionState), []string{required, admission}, []string{required, token}},
		{"without TLS", nil, []string{required, admission}, []string{required, token}},
		{"a certificate that was not verified", shown(valid, false), []string{required, admission}, []string{required, token}},
		{"a certificate that has ended since", shown(ended, true), []string{expired}, []string{expired}},
		{"a verified certificate", shown(valid, true), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, admissionToo := range []bool{true, false} {
				var last review.Outcome
				handler := server.Reviews(&current, server.ReviewOptions{
					Bytes: 2 * review.MaxAdmissionBytes, Observe: func(o *review.Outcome) { last = *o }, Profiles: func([]sidecar.Verdict) {},
					Policies: func([]policy.Observation) {}, RequireClientCertificate: admissionToo,
					Login: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Now: time.Now,
				})
				for path, want := range map[string][]string{
					"/mutate": tc.admission, "/validate": tc.admission, "/authenticate": tc.token, "/login": nil, "/whoami": nil,
				} {
					if !admissionToo && path != "/authenticate" {
						want = nil
					}
					body := admissionBody
					if path == "/authenticate" {
						body = tokenBody
					}
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path+"?timeout=10s", strings.NewReader(body))
					r.Header.Set("Content-Type", "application/json")
					r.TLS = tc.caller
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)
					if want == nil {
						if w.Code != http.StatusOK {
							t.Errorf("%s, required for admission %v: not answered: %d %s", path, admissionToo, w.Code, w.Body)
						}
						continue
					}
					status := http.StatusForbidden
					if path == "/authenticate" {
						status = http.StatusOK // an answer with an error: an API server would ask again after others
					}
					if w.Code != status || last.Decision != review.Refused || last.Reason != "caller" {
						t.Errorf("%s, required for admission %v: status %d, outcome %s %s, want %d, refused, caller", path, admissionToo, w.Code, last.Decision, last.Reason, status)
					}
					for _, text := range want {
						if !strings.Contains(w.Body.String(), text) {
							t.Errorf("%s: no %q in %q", path, text, w.Body)
						}
					}
					// Whoever may not ask must not hold connections either.
					if kept := w.Header().Get("Connection") != "close"; kept != (tc.caller != nil && len(tc.caller.VerifiedChains) > 0) {
						t.Errorf("%s: the connection is kept: %v", path, kept)
					}
				}
			}
		})
	}
}

// TestNotWhole: while the configuration lacks something nothing is decided by it, in any endpoint, but that custom
// resources are reviewed, with which it could be mended.
func TestNotWhole(t *testing.T) {
	t.Parallel()
	snapshot, err := webhooks.Compile(webhooks.Spec{Policy: policy.Spec{Now: time.Now}, Authn: authn.Spec{Now: time.Now}})
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[webhooks.Snapshot]
	current.Store(snapshot)
	certificates := []*x509.Certificate{{NotAfter: time.Now().Add(time.Hour)}}
	var whole atomic.Bool
	var outcomes []review.Outcome
	handler := server.Reviews(&current, server.ReviewOptions{
		Login: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "welcome") }),
		Bytes: 2 * review.MaxAdmissionBytes, Observe: func(o *review.Outcome) { outcomes = append(outcomes, *o) },
		Profiles: func([]sidecar.Verdict) {}, Policies: func([]policy.Observation) {}, Now: time.Now,
		Documents: crdadmission.New(crdadmission.Options{Current: func() *config.Config { return new(config.Config) }}),
		Whole: func() error {
			if whole.Load() {
				return nil
			}
			return errors.New("some are missing")
		},
	})
	admissionOf := func(group, resource string) string {
		return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",
			"kind":{"group":%[1]q,"version":"v1","kind":"X"},"resource":{"group":%[1]q,"version":"v1","resource":%[2]q},
			"name":"x","namespace":"shop","operation":"CREATE","userInfo":{"username":"jane"},
			"object":{"kind":"X","apiVersion":"v1","metadata":{"name":"x","namespace":"shop"}}}}`, group, resource)
	}
	for _, tc := range []struct {
		name, path, body string
		code             int
		says, detail     string
	}{
		{"mutate", "/mutate", admissionOf("", "pods"), 500, "could not decide", "some are missing"},
		{"validate", "/validate", admissionOf("", "configmaps"), 500, "could not decide", "some are missing"},
		{"our own", "/validate", admissionOf("gatehouse.dev", "others"), 200, `"allowed":true`, ""},
		{"authenticate", "/authenticate", `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"t"}}`, 200, `"error":`, "some are missing"},
		{"login", "/login", "{}", 503, "try again", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ask := func() (int, string) {
				outcomes = nil
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tc.path+"?timeout=10s", strings.NewReader(tc.body))
				r.Header.Set("Content-Type", "application/json")
				r.TLS = &tls.ConnectionState{PeerCertificates: certificates, VerifiedChains: [][]*x509.Certificate{certificates}}
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, r)
				return recorder.Code, recorder.Body.String()
			}
			whole.Store(false)
			code, body := ask()
			if code != tc.code || !strings.Contains(body, tc.says) || strings.Contains(body, `"authenticated":true`) {
				t.Errorf("answered %d %s, want %d and %q", code, body, tc.code, tc.says)
			}
			if tc.detail != "" && (len(outcomes) != 1 || outcomes[0].Decision != review.Unknown || !strings.Contains(outcomes[0].Detail, tc.detail)) {
				t.Errorf("the outcomes are %+v", outcomes)
			}
			whole.Store(true)
			if code, body := ask(); code != 200 || strings.Contains(body, `"error"`) {
				t.Errorf("with everything there it answers %d %s", code, body)
			}
		})
	}
}
