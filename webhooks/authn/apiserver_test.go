package authn_test

import (
	"crypto/tls"
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

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
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
		resp := current().Review(r.Context(), req)
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

func TestAPIServerUnderstandsEveryOutcome(t *testing.T) {
	plain, plainDoc := issue("plain", 1)
	bound, boundDoc := issue("bound", 2, audiences("vault", apiServer))
	vault, vaultDoc := issue("vault", 3, audiences("vault"))
	old, oldDoc := issue("old", 4, expires(noon))
	unknown, _ := issue("unknown", 5)
	wrong, _ := issue("plain", 6)
	set := compile(t, plainDoc, boundDoc, vaultDoc, oldDoc)

	own, other := authenticator.Audiences{apiServer}, authenticator.Audiences{"vault"}
	jane := func(auds ...string) *authenticator.Response {
		return &authenticator.Response{Audiences: auds, User: &user.DefaultInfo{
			Name: "jane", UID: "4711", Groups: []string{"dev", "eng"},
			Extra: map[string][]string{"example.org/team": {"blue", "green"}},
		}}
	}
	cases := []struct {
		name  string
		token string
		auds  authenticator.Audiences
		want  *authenticator.Response
		err   string
	}{
		{name: "yes", token: plain, auds: own, want: jane(apiServer)},
		{name: "yes, nobody asks for audiences", token: plain, want: jane()},
		{name: "yes, bound to the API server", token: bound, auds: own, want: jane(apiServer)},
		{name: "yes, bound to what a service asks for", token: bound, auds: other, want: jane("vault")},
		{name: "yes, in the order of the request", token: bound, auds: authenticator.Audiences{apiServer, "x", "vault"}, want: jane(apiServer, "vault")},
		{name: "no, a token for the API server shown to a service", token: plain, auds: other},
		{name: "no, a token for a service shown to the API server", token: vault, auds: own},
		{name: "no, a token for a service and nobody asks for audiences", token: vault},
		{name: "no, expired", token: old, auds: own},
		{name: "no, wrong secret", token: wrong, auds: own},
		{name: "no, foreign", token: "eyJhbGciOiJSUzI1NiJ9.e30.c2ln", auds: own},
		{name: "no, malformed", token: plain[:30], auds: own},
		{name: "no, a megabyte", token: strings.Repeat(".", 1<<20), auds: own},
		{name: "could not tell", token: unknown, auds: own, err: "access token is not known here"},
		{name: "could not tell, for a service", token: unknown, auds: other, err: "access token is not known here"},
		{name: "could not tell, nobody asks for audiences", token: unknown, err: "access token is not known here"},
	}
	for _, version := range []string{"v1", "v1beta1"} {
		client := newCaller(t, version, func() *authn.Set { return set })
		for _, c := range cases {
			t.Run(version+"/"+c.name, func(t *testing.T) {
				ctx := t.Context()
				if c.auds != nil {
					ctx = authenticator.WithAudiences(ctx, c.auds)
				}
				got, ok, err := client.AuthenticateToken(ctx, c.token)
				switch {
				case c.err != "":
					if ok || err == nil || !strings.Contains(err.Error(), c.err) {
						t.Errorf("got %v, %v, want the error %q", ok, err, c.err)
					}
				case err != nil:
					t.Errorf("error: %v", err)
				case ok != (c.want != nil):
					t.Errorf("got %v, want %v", ok, c.want != nil)
				case ok && (!reflect.DeepEqual(got.User, c.want.User) || !reflect.DeepEqual([]string(got.Audiences), []string(c.want.Audiences))):
					t.Errorf("got %+v for %v, want %+v for %v", got.User, got.Audiences, c.want.User, c.want.Audiences)
				}
			})
		}
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
				t.Errorf("%d calls, want 3: one for each of the could not tell, the yes and the no", calls)
			}
		})
	}
}
