package session

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
)

// TestExchange: a login with a scope uses the login at the issuer that is stored, asks a person only if there is none that is good, and
// sends no ID token to another server.
func TestExchange(t *testing.T) {
	t.Parallel()
	idToken := func(text string, obtained time.Time) *Credential {
		c := credential(text, obtained)
		c.RefreshToken = "refresh"
		return c
	}
	refuse := func(token, reason string) func(http.ResponseWriter, login.Request) bool {
		return func(w http.ResponseWriter, r login.Request) bool {
			if r.Token == token || token == "" {
				fail(w, http.StatusUnauthorized, login.Failure{Reason: reason, Message: "no"})
			}
			return r.Token == token || token == ""
		}
	}
	old := idToken("stored", noon.Add(-10*time.Minute))
	scoped := func(ago time.Duration) *Credential {
		return &Credential{Token: "gatehouse-login_old", ObtainedAt: noon.Add(-ago), ExpiresAt: noon.Add(15*time.Minute - ago)}
	}
	for _, c := range []struct {
		name           string
		stored, cached *Credential // at the issuer, and with the scope
		renew          error       // what the issuer answers to a renewal
		nobody         bool        // no person is there
		answer         func(http.ResponseWriter, login.Request) bool
		sent           string // the tokens that were exchanged
		logins, renews int32  // at the issuer
		err            string
	}{
		{name: "nothing is stored", sent: "login", logins: 1},
		{name: "nothing is stored and nobody there", nobody: true, err: "you have to log in"},
		{name: "a login is stored", stored: old, sent: "stored"},
		{name: "a login is stored, and has expired", stored: idToken("stored", noon.Add(-2*time.Hour)), sent: "renewed", renews: 1},
		{name: "from the cache", stored: old, cached: scoped(time.Minute), nobody: true},
		{name: "exchanged again", stored: old, cached: scoped(20 * time.Minute), nobody: true, sent: "stored"},
		{name: "exchanged again, with a new ID token", stored: idToken("stored", noon.Add(-2*time.Hour)), cached: scoped(20 * time.Minute), nobody: true, sent: "renewed", renews: 1},
		{name: "the issuer has ended the login", stored: idToken("stored", noon.Add(-2*time.Hour)), cached: scoped(20 * time.Minute), renew: ErrEnded, nobody: true, renews: 1, err: "you have to log in"},
		{name: "logged out at the issuer", cached: scoped(20 * time.Minute), nobody: true, err: "you have to log in"},
		{name: "revoked, and renewed", stored: old, answer: refuse("stored", "revoked"), sent: "stored renewed", renews: 1},
		{name: "revoked, and ended", stored: old, renew: ErrEnded, answer: refuse("stored", "revoked"), sent: "stored login", renews: 1, logins: 1},
		{name: "revoked, and nobody there", stored: old, cached: scoped(20 * time.Minute), nobody: true, renew: ErrEnded, answer: refuse("stored", "revoked"), sent: "stored", renews: 1, err: "could not be renewed: no (reason revoked)"},
		{name: "rejected after a login", answer: refuse("", "audience"), sent: "login", logins: 1, err: "no (reason audience)"},
		{name: "rejected twice", stored: old, answer: refuse("", "claims"), sent: "stored renewed", renews: 1, err: "no (reason claims)"},
		{name: "scope unknown", stored: old, answer: refuse("", "input"), sent: "stored", err: "no (reason input)"},
		{name: "the server is down", stored: old, cached: scoped(16 * time.Minute), nobody: true, answer: func(w http.ResponseWriter, _ login.Request) bool {
			fail(w, http.StatusServiceUnavailable, login.Failure{Reason: "keys", Message: "later"})
			return true
		}, sent: "stored", err: "cannot be renewed: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGatehouse(t)
			g.answer = func(w http.ResponseWriter, r login.Request) bool {
				if r.Scope != "view" {
					t.Errorf("asked for the scope %q", r.Scope)
				}
				if c.answer == nil || !c.answer(w, r) {
					writeJSON(w, login.Issued{
						Token: "gatehouse-login_" + r.Token, ExpiresAt: noon.Add(15 * time.Minute), SessionEnds: noon.Add(time.Hour),
						User: authenticationv1.UserInfo{Username: "oidc:jane"},
					})
				}
				return true
			}
			m := &fake{
				id:    Identity{Method: oidcMethod, Issuer: "https://issuer.example", ClientID: "kubernetes"},
				login: func(context.Context) (*Credential, error) { return idToken("login", noon), nil },
				renew: func(*Credential) (*Credential, error) {
					if c.renew != nil {
						return nil, c.renew
					}
					return idToken("renewed", noon), nil
				},
			}
			at := newSession(t, m)
			s := *at
			e := &Exchange{At: at, Server: g.URL, Roots: g.roots(), Scope: "view", Now: at.Now}
			s.Method, s.Interactive = e, !c.nobody
			for id, kept := range map[string]struct {
				Identity
				*Credential
			}{"issuer": {m.id, c.stored}, "scope": {e.Identity(), c.cached}} {
				if kept.Credential != nil {
					if err := s.Cache.entry(kept.Identity).write(kept.Credential); err != nil {
						t.Fatal(id, err)
					}
				}
			}
			got, err := s.Get(t.Context())
			var sent []string
			for _, r := range g.requests {
				sent = append(sent, r.Token)
			}
			if all := strings.Join(sent, " "); all != c.sent || m.logins.Load() != c.logins || m.renews.Load() != c.renews {
				t.Errorf("sent %q, %d logins, %d renewals", all, m.logins.Load(), m.renews.Load())
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %+v, %v, want %q", got, err, c.err)
				}
				return
			}
			if err != nil || !strings.HasPrefix(got.Token, "gatehouse-login_") || got.RefreshToken != "" {
				t.Fatalf("%+v, %v", got, err)
			}
			if c.sent != "" && (!got.AtIssuer || got.User != "oidc:jane" || got.Source != g.URL) {
				t.Errorf("%+v", got)
			}
			// Each is stored on its own, and logging out ends both.
			if kept, err := s.Cache.entry(m.id).read(); c.sent != "" && (err != nil || kept == nil || strings.HasPrefix(kept.Token, "gatehouse")) {
				t.Errorf("the issuer's is %+v, %v", kept, err)
			}
			if _, err := s.Cache.Remove(m.id); err != nil {
				t.Error(err)
			}
			if kept, err := s.Cache.entry(e.Identity()).read(); err != nil || kept != nil {
				t.Errorf("after a logout: %+v, %v", kept, err)
			}
		})
	}
}

// TestExchangeElsewhere: a server that is no Gatehouse gets no ID token, and nobody is asked to log in.
func TestExchangeElsewhere(t *testing.T) {
	t.Parallel()
	asked := 0
	other := newTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			asked++
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(other.Close)
	m := &fake{id: Identity{Method: oidcMethod}, login: func(context.Context) (*Credential, error) { return nil, errors.New("a person was asked") }}
	at := newSession(t, m)
	e := &Exchange{At: at, Server: other.URL, Roots: (&testGatehouse{Server: other}).roots(), Scope: "view", Now: at.Now}
	if _, err := e.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "so no secret was sent") || asked > 0 || m.logins.Load() > 0 {
		t.Errorf("%d requests, %d logins, %v", asked, m.logins.Load(), err)
	}
}

// TestScopesInTheCache: each scope has an entry of its own, which the logout of the login without one removes, and no other.
func TestScopesInTheCache(t *testing.T) {
	t.Parallel()
	for name, all := range map[string][]Identity{
		"oidc": {
			{Method: oidcMethod, Issuer: "https://issuer.example", ClientID: "a"},
			{Method: oidcMethod, Issuer: "https://issuer.example", ClientID: "a", Server: "https://one", Scope: "view"},
			{Method: oidcMethod, Issuer: "https://issuer.example", ClientID: "a", Server: "https://one", Scope: "edit"},
			{Method: oidcMethod, Issuer: "https://issuer.example", ClientID: "a", Server: "https://two", Scope: "view"},
			{Method: oidcMethod, Issuer: "https://issuer.example", ClientID: "a", Account: "admin", Server: "https://one", Scope: "view"},
		},
		"password": {
			{Method: "password", Server: "https://one", Username: "jane"},
			{Method: "password", Server: "https://one", Username: "jane", Scope: "view"},
			{Method: "password", Server: "https://one", Username: "jane", Scope: "edit"},
			{Method: "password", Server: "https://two", Username: "jane", Scope: "view"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache := newSession(t, &fake{}).Cache
			left := func() (names []string) {
				for _, id := range all {
					if c, err := cache.entry(id).read(); err != nil {
						t.Fatal(err)
					} else if c != nil {
						names = append(names, c.Token)
					}
				}
				return names
			}
			for _, id := range all {
				if err := cache.entry(id).write(credential(id.ClientID+id.Account+id.Server+id.Scope, noon)); err != nil {
					t.Fatal(err)
				}
			}
			if got := left(); len(got) != len(all) {
				t.Fatalf("stored are %q", got)
			}
			if n, err := cache.Remove(all[1]); n != 1 || err != nil || len(left()) != len(all)-1 {
				t.Errorf("removed %d, %v, left are %q", n, err, left())
			}
			if _, err := cache.Remove(all[0]); err != nil {
				t.Error(err)
			}
			if got := left(); len(got) != 1 {
				t.Errorf("left are %q", got)
			}
			if n, err := cache.RemoveAll(); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
}
