package review_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// accessBody is what kube-apiserver sends, with what stands in its members replaced.
func accessBody(replace ...string) string {
	return strings.NewReplacer(replace...).Replace(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{` +
		`"resourceAttributes":{"namespace":"shop","verb":"get","group":"apps","version":"v1","resource":"deployments","subresource":"scale","name":"web"},` +
		`"user":"jane","groups":["dev","system:authenticated"],"extra":{"gatehouse.dev/scope":["view","namespace=shop"],"a":null},"uid":"u1"},"status":{"allowed":false}}`)
}

func TestDecodeAccess(t *testing.T) {
	t.Parallel()
	const nonResource = `"nonResourceAttributes":{"path":"/metrics","verb":"get"},"x":{`
	for _, body := range []string{accessBody(), accessBody(`"resourceAttributes":{`, nonResource), accessBody("/v1", "/v1beta1", `"groups"`, `"group"`)} {
		got, version, err := review.DecodeAccess([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		var want authorizationv1.SubjectAccessReview
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatal(err)
		}
		want.Spec.Groups = nil
		if !reflect.DeepEqual(got, want.Spec) || version != want.APIVersion {
			t.Errorf("decoded %s\n%+v, want\n%+v", version, got, want.Spec)
		}
	}
	for _, tc := range []struct{ name, body, want string }{
		{"nothing", "", "invalid JSON at byte 0: unexpected end"},
		{"another kind", accessBody(`"SubjectAccessReview"`, `"TokenReview"`), `kind: must be "SubjectAccessReview"`},
		{"the version of another kind", accessBody("authorization.k8s.io", "authentication.k8s.io"), `apiVersion: must be "authorization.k8s.io/v1" or "authorization.k8s.io/v1beta1"`},
		{"an unknown version", accessBody("/v1", "/v2"), `apiVersion: must be "authorization.k8s.io/v1"`},
		{"no spec", `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1"}`, "spec: required"},
		{"neither a resource nor a URL", accessBody(`"resourceAttributes"`, `"x"`), "spec: exactly one of resourceAttributes and nonResourceAttributes is required"},
		{"both", accessBody(`"resourceAttributes":{`, `"nonResourceAttributes":{},"resourceAttributes":{`), "spec: exactly one of"},
		{"a resource twice", accessBody(`"user":`, `"resourceAttributes":{},"user":`), `member "resourceAttributes" occurs twice`},
		{"a verb twice", accessBody(`"verb":"get"`, `"verb":"get","verb":"delete"`), `spec.resourceAttributes: must be written with each member once, but "verb" occurs twice`},
		{"an extra key twice", accessBody(`"a":null`, `"gatehouse.dev/scope":["edit"]`), `spec.extra: must be written with each member once`},
		{"an extra that is no list", accessBody(`["view","namespace=shop"]`, `"view"`), "spec.extra: must be an array of strings"},
		{"an extra value that is no text", accessBody(`["view","namespace=shop"]`, `[1]`), "spec.extra: must be a string"},
		{"an escaped member", accessBody(`"extra"`, `"e\u0078tra"`), "written without escapes"},
		{"an escaped verb", accessBody(`"verb"`, `"v\u0065rb"`), "written without escapes"},
		{"a verb that is no text", accessBody(`"verb":"get"`, `"verb":["get"]`), "spec.resourceAttributes.verb: must be a string"},
		{"attributes that are a list", accessBody(`"resourceAttributes":{`, `"resourceAttributes":[],"x":{`), "spec.resourceAttributes: must be an object"},
	} {
		if _, _, err := review.DecodeAccess([]byte(tc.body)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// FuzzDecodeAccess: what is decoded is what encoding/json reads.
func FuzzDecodeAccess(f *testing.F) {
	f.Add(accessBody())
	f.Fuzz(func(t *testing.T, body string) {
		got, _, err := review.DecodeAccess([]byte(body))
		if err != nil {
			return
		}
		var want authorizationv1.SubjectAccessReview
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			return // of another member
		}
		if got.User != want.Spec.User || (got.ResourceAttributes == nil) != (want.Spec.ResourceAttributes == nil) ||
			got.ResourceAttributes != nil && (got.ResourceAttributes.Verb != want.Spec.ResourceAttributes.Verb || got.ResourceAttributes.Name != want.Spec.ResourceAttributes.Name) {
			t.Errorf("%s: %+v", body, got)
		}
	})
}

// accessOf decides by the name of the object.
func accessOf(_ context.Context, r *review.AccessRequest) review.AccessResponse {
	switch r.Spec.ResourceAttributes.Name {
	case "denied":
		return review.AccessResponse{Status: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "outside of\nit"}, Reason: "outside-scope", Detail: "view"}
	case "unknown":
		return review.AccessResponse{Status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "not yet"}, Reason: "unknown-scope"}
	case "once":
		return review.AccessResponse{Status: authorizationv1.SubjectAccessReviewStatus{EvaluationError: "not yet"}, Reason: "probe", Code: http.StatusServiceUnavailable}
	case "panic":
		panic("secret")
	}
	return review.AccessResponse{Reason: "rule"}
}

// TestAccessInTheAPIServer: kube-apiserver's own authorizer, in both versions, takes the answers for what they are. It asks again about
// what cannot be decided, except after a 503, and then denies: nothing is a no opinion by mistake.
func TestAccessInTheAPIServer(t *testing.T) {
	t.Parallel()
	const (
		deny      = authorizer.DecisionDeny
		noOpinion = authorizer.DecisionNoOpinion
		attempts  = 3
	)
	for name, c := range map[string]struct {
		decision authorizer.Decision
		reason   string
		isError  bool
		calls    int32
		outcome  review.Decision
		why      string
	}{
		"web":     {noOpinion, "", false, 1, review.NoOpinion, "rule"},
		"denied":  {deny, "outside of it", false, 1, review.Denied, "outside-scope"},
		"unknown": {deny, "", true, attempts, review.Unknown, "unknown-scope"},
		"once":    {deny, "", true, 1, review.Unknown, "probe"},
		"panic":   {deny, "", true, attempts, review.Unknown, "panic"},
	} {
		for _, version := range []string{"v1", "v1beta1"} {
			t.Run(name+" "+version, func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int32
				seen := make(observed, attempts)
				handler := review.Access(accessOf, options(seen))
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					calls.Add(1)
					handler.ServeHTTP(w, r)
				}))
				server.Config.ErrorLog = log.New(io.Discard, "", 0)
				server.StartTLS()
				t.Cleanup(server.Close)
				ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
				client, err := webhook.New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, version, time.Minute, time.Minute,
					wait.Backoff{Duration: time.Millisecond, Steps: attempts}, deny, []apiserver.WebhookMatchCondition{}, "gatehouse", metrics.NoopAuthorizerMetrics{}, authorizationcel.NewDefaultCompiler())
				if err != nil {
					t.Fatal(err)
				}
				decision, reason, err := client.Authorize(t.Context(), authorizer.AttributesRecord{
					User: &user.DefaultInfo{Name: "jane", Groups: []string{"dev"}, Extra: map[string][]string{"a": {"b"}}},
					Verb: "get", Namespace: "shop", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Name: name, ResourceRequest: true,
				})
				if decision != c.decision || reason != c.reason || (err != nil) != c.isError || calls.Load() != c.calls {
					t.Errorf("got %v, %q, %v after %d calls", decision, reason, err, calls.Load())
				}
				out := <-seen
				if out.Decision != c.outcome || out.Reason != c.why || out.User != "jane" || out.Operation != "get" || out.Resource.Resource != "deployments" || out.Object != name || out.Namespace != "shop" {
					t.Errorf("outcome is %+v", out)
				}
			})
		}
	}
}

// TestHostileAccess: what is no review that can be answered is an HTTP error, never a 200.
func TestHostileAccess(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body   string
		status int
		reason string
	}{
		"no review":      {"{}", http.StatusBadRequest, "malformed"},
		"a token review": {tokenBody, http.StatusBadRequest, "malformed"},
		"too large":      {accessBody("jane", strings.Repeat("x", 1<<20)), http.StatusRequestEntityTooLarge, "too-large"},
		"a panic":        {accessBody(`"web"`, `"panic"`), http.StatusInternalServerError, "panic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(observed, 1)
			recorder := post(t, review.Access(accessOf, options(seen)), "/?timeout=3s", tc.body)
			if recorder.Code != tc.status || recorder.Header().Get("Retry-After") != "" || strings.Contains(recorder.Body.String(), "secret") {
				t.Errorf("got %d %s", recorder.Code, recorder.Body)
			}
			if out := <-seen; out.Reason != tc.reason {
				t.Errorf("outcome is %+v", out)
			}
		})
	}
	full := options(make(observed, 1))
	full.InFlight = review.NewBudget(0)
	if recorder := post(t, review.Access(accessOf, full), "/", accessBody()); recorder.Code < http.StatusBadRequest || recorder.Header().Get("Retry-After") != "" {
		t.Errorf("without memory: %d, Retry-After %q", recorder.Code, recorder.Header().Get("Retry-After"))
	}
}
