package authn_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// caller is the API server's side of the protocol, its own code, in front of a
// Set behind the least codec that there can be.
type caller struct {
	authenticator.Token
	calls *atomic.Int32
}

// newCaller is an API server whose own audience is apiServer.
func newCaller(t *testing.T, version string, current func() *authn.Set) caller {
	t.Helper()
	var calls atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read: %v", err)
		}
		var req authentication.Request
		if err := json.Unmarshal(body, &req.TokenReview); err != nil {
			t.Errorf("decode: %v", err)
		}
		if req.APIVersion != "authentication.k8s.io/"+version {
			t.Errorf("the API server asked in %q", req.APIVersion)
		}
		resp := current().Decide(r.Context(), inputOf(req)).Response()
		answer := authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: req.APIVersion, Kind: req.Kind},
			Status:   resp.Status,
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Errorf("encode: %v", err)
		}
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	srv.StartTLS()
	t.Cleanup(srv.Close)

	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	config := &rest.Config{Host: srv.URL + "/authenticate", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	client, err := webhook.New(config, version, authenticator.Audiences{apiServer}, wait.Backoff{Steps: 1})
	if err != nil {
		t.Fatal(err)
	}
	return caller{client, &calls}
}

// checkUnderstood checks what the API server makes of an answer: an error if the token cannot
// be decided on, and a user only for audiences that both the request and the answer have.
func (c caller) checkUnderstood(t *testing.T, token string, requested []string, want *authn.Decision) {
	t.Helper()
	ctx := t.Context()
	audiences := authenticator.Audiences(want.Status.Audiences)
	if len(audiences) == 0 {
		audiences = authenticator.Audiences{apiServer}
	}
	if requested != nil {
		ctx = authenticator.WithAudiences(ctx, requested)
		audiences = authenticator.Audiences(requested).Intersect(audiences)
	}
	got, ok, err := c.AuthenticateToken(ctx, token)
	switch {
	case want.Outcome == authn.Unknown:
		if ok || err == nil || err.Error() != want.Status.Error {
			t.Errorf("the API server gets %v, %v, want the error %q", ok, err, want.Status.Error)
		}
	case err != nil || ok != (want.Outcome == authn.Yes && len(audiences) > 0):
		t.Errorf("the API server gets %v, %v for %q", ok, err, audiences)
	case ok && (got.User.GetName() != "jane" || got.User.GetUID() != "4711" || len(got.User.GetGroups()) != 2 || len(got.User.GetExtra()["example.org/team"]) != 2):
		t.Errorf("the API server gets %+v", got.User)
	case ok && requested != nil && !slices.Equal(slices.Compact(got.Audiences), slices.Compact(audiences)):
		t.Errorf("the API server gets the audiences %q, want %q", got.Audiences, audiences)
	}
}

// A token that is used before this replica knows it works as soon as it does:
// the API server's cache keeps a yes and a no, and must not keep the first
// answer. That holds for audiences other than the API server's own, too.
func TestTokenUsedBeforeItIsKnown(t *testing.T) {
	fresh, freshDoc := issue("fresh", 1, audiences(apiServer, "vault"))
	wrong, _ := issue("fresh", 2)
	var set atomic.Pointer[authn.Set]
	for _, audience := range []string{apiServer, "vault"} {
		t.Run(audience, func(t *testing.T) {
			set.Store(compile(t))
			client := newCaller(t, "v1", set.Load)
			cached := cache.New(client, false, time.Hour, time.Hour)
			ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{audience})
			if _, ok, err := cached.AuthenticateToken(ctx, fresh); ok || err == nil {
				t.Fatalf("before: got %v, %v, want an error", ok, err)
			}
			set.Store(compile(t, freshDoc))
			for range 3 {
				if _, ok, err := cached.AuthenticateToken(ctx, fresh); !ok || err != nil {
					t.Fatalf("after: got %v, %v, want a yes", ok, err)
				}
				if _, ok, err := cached.AuthenticateToken(ctx, wrong); ok || err != nil {
					t.Fatalf("wrong secret: got %v, %v, want a no", ok, err)
				}
			}
			if calls := client.calls.Load(); calls != 3 {
				t.Errorf("%d calls, want 3: one for each of the cannot decide, the yes and the no", calls)
			}
		})
	}
}
