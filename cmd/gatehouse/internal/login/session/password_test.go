package session

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/httpsclient"
)

const testPassword = "correct horse battery"

// testGatehouse is a login endpoint that knows jane.
type testGatehouse struct {
	*httptest.Server

	mu       sync.Mutex
	requests []login.Request
	// answer answers otherwise, if it returns true.
	answer func(w http.ResponseWriter, r login.Request) bool
	ends   time.Time
}

func newGatehouse(t *testing.T) *testGatehouse {
	t.Helper()
	g := &testGatehouse{ends: noon.Add(10 * time.Hour)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+login.Path, g.serve)
	mux.Handle("GET "+login.Path, login.Handler(login.HandlerOptions{Now: time.Now}))
	g.Server = newTLSServer(mux)
	t.Cleanup(g.Close)
	return g
}

func (g *testGatehouse) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(g.Certificate())
	return pool
}

func (g *testGatehouse) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var request login.Request
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "not a request", http.StatusBadRequest)
		return
	}
	g.requests = append(g.requests, request)
	if g.answer != nil && g.answer(w, request) {
		return
	}
	switch {
	case request.Username == "jane" && request.Password == testPassword, request.Token == "gatehouse-login_old":
		writeJSON(w, login.Issued{
			Token: "gatehouse-login_new", ExpiresAt: noon.Add(15 * time.Minute), SessionEnds: g.ends,
			User: authenticationv1.UserInfo{Username: "ldap:jane"},
		})
	case request.Token != "":
		fail(w, http.StatusUnauthorized, login.Failure{Reason: "session", Message: "the session has ended"})
	default:
		fail(w, http.StatusUnauthorized, login.Failure{Reason: "credentials", Message: "wrong name or password"})
	}
}

func fail(w http.ResponseWriter, status int, f login.Failure) {
	w.WriteHeader(status)
	writeJSON(w, f)
}

// typist answers with these passwords, one after the other.
type typist struct {
	passwords []string
	asked     []string
	refused   []string
}

func (p *typist) Username(context.Context, string) (string, error) { return "jane", nil }

func (p *typist) Password(_ context.Context, who string) (string, error) {
	p.asked = append(p.asked, who)
	if len(p.passwords) == 0 {
		return "", io.ErrUnexpectedEOF
	}
	password := p.passwords[0]
	p.passwords = p.passwords[1:]
	return password, nil
}

func (p *typist) Again(why string) bool {
	p.refused = append(p.refused, why)
	return true
}

func (g *testGatehouse) login(prompter Prompter) *Password {
	return &Password{Server: g.URL, Roots: g.roots(), Directory: "corp", Prompter: prompter, Now: func() time.Time { return noon }}
}

func TestPasswordIsAskedForThreeTimes(t *testing.T) {
	t.Parallel()
	g := newGatehouse(t)
	who := &typist{passwords: []string{"a", "b", "c", "d"}}
	_, err := g.login(who).Login(t.Context())
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != "credentials" || len(g.requests) != 3 {
		t.Errorf("%d tries, %v", len(g.requests), err)
	}
}

func TestPasswordLoginsThatFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		prompter Prompter
		answer   func(w http.ResponseWriter, r login.Request) bool
		reason   string // of a definite no
		says     string
		tries    int
	}{
		{name: "from a script", prompter: ScriptInput{strings.NewReader("wrong\nmore\n")}, reason: "credentials", says: "wrong name or password", tries: 1},
		{name: "nothing typed", prompter: &typist{passwords: []string{""}}, says: "the password is empty"},
		{name: "nothing in the script", prompter: ScriptInput{strings.NewReader("")}, says: "the password is empty"},
		{name: "endless line", prompter: ScriptInput{strings.NewReader(strings.Repeat(testPassword, 500))}, says: "longer than 4096 bytes"},
		{
			name: "too often", answer: func(w http.ResponseWriter, _ login.Request) bool {
				fail(w, http.StatusTooManyRequests, login.Failure{Reason: "slowed", Message: "too many failed logins", RetryAfterSeconds: 7})
				return true
			}, says: "too many failed logins; try again in 7 s (reason slowed)", tries: 1,
		},
		{
			name: "the directory is down", answer: func(w http.ResponseWriter, _ login.Request) bool {
				fail(w, http.StatusServiceUnavailable, login.Failure{Reason: "directory", Message: "the directory does not answer"})
				return true
			}, says: "the directory does not answer (reason directory)", tries: 1,
		},
		{
			name: "reserved", answer: func(w http.ResponseWriter, _ login.Request) bool {
				fail(w, http.StatusForbidden, login.Failure{Reason: "guard", Message: "\x1b[31mreserved"})
				return true
			}, reason: "guard", says: `"\x1b[31mreserved"`, tries: 1,
		},
		{
			name: "not Gatehouse", answer: func(w http.ResponseWriter, r login.Request) bool {
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, "<html>"+r.Password)
				return true
			}, says: "responds with 404 Not Found (hint: check the address of Gatehouse", tries: 1,
		},
		{
			name: "not JSON", answer: func(w http.ResponseWriter, r login.Request) bool {
				_, _ = io.WriteString(w, r.Password)
				return true
			}, says: "the response is not from Gatehouse", tries: 1,
		},
		{
			name: "no token", answer: func(w http.ResponseWriter, _ login.Request) bool {
				_, _ = io.WriteString(w, "{}")
				return true
			}, says: "a token of 0 bytes", tries: 1,
		},
		{
			name: "a token that ended", answer: func(w http.ResponseWriter, _ login.Request) bool {
				writeJSON(w, login.Issued{Token: "gatehouse-login_x", ExpiresAt: noon})
				return true
			}, says: "check the clock of this machine", tries: 1,
		},
		{
			name: "endless answer", answer: func(w http.ResponseWriter, _ login.Request) bool {
				_, _ = io.WriteString(w, strings.Repeat(" ", httpsclient.MaxBytes+1))
				return true
			}, says: "the answer has more than 1048576 bytes", tries: 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGatehouse(t)
			g.answer = c.answer
			if c.prompter == nil {
				c.prompter = &typist{passwords: []string{testPassword, testPassword}}
			}
			p := g.login(c.prompter)
			p.Username = "jane"
			got, err := p.Login(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), testPassword) {
				t.Fatalf("got %+v, %v\nwant %q", got, err, c.says)
			}
			refused, definite := errors.AsType[*RefusedError](err)
			if definite != (c.reason != "") || definite && refused.Reason != c.reason {
				t.Errorf("definite: %v, %v", definite, err)
			}
			if len(g.requests) != c.tries {
				t.Errorf("%d tries, want %d", len(g.requests), c.tries)
			}
		})
	}
}

// A password is given to the server that was named and to nobody else.
func TestPasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	var stolen []byte
	thief := newTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen, _ = io.ReadAll(r.Body) }))
	t.Cleanup(thief.Close)
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		g := newGatehouse(t)
		g.answer = func(w http.ResponseWriter, _ login.Request) bool {
			w.Header().Set("Location", thief.URL)
			w.WriteHeader(status)
			return true
		}
		p := g.login(&typist{passwords: []string{testPassword}})
		p.Roots.AddCert(thief.Certificate())
		if _, err := p.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "a redirect, which is not followed") {
			t.Errorf("%d: got %v", status, err)
		}
	}
	plain := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen, _ = io.ReadAll(r.Body) }))
	t.Cleanup(plain.Close)
	unverified := newGatehouse(t)
	for _, p := range []*Password{
		{Server: plain.URL, Prompter: &typist{passwords: []string{testPassword}}, Now: time.Now},
		{Server: unverified.URL, Prompter: &typist{passwords: []string{testPassword}}, Now: time.Now},
	} {
		if _, err := p.Login(t.Context()); err == nil {
			t.Errorf("%s: no error", p.Server)
		}
	}
	if len(stolen) > 0 || len(unverified.requests) > 0 {
		t.Errorf("a password went elsewhere: %q, %v", stolen, unverified.requests)
	}
}

// What is not a Gatehouse gets no password, and nobody is asked for one.
func TestPasswordIsForGatehouseAlone(t *testing.T) {
	t.Parallel()
	said := func(status int, media, allow, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.Header().Set("Allow", allow)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const ours = `{"reason":"method","message":"the method must be POST"}`
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		says   string
	}{
		{"a page", said(http.StatusOK, "text/html", "", "<html>"), "it responds with 200 OK"},
		{"an API server", said(http.StatusForbidden, "application/json", "", `{"kind":"Status"}`), "it responds with 403 Forbidden"},
		{"any server without GET", said(http.StatusMethodNotAllowed, "text/plain", "POST", "Method Not Allowed"), "no secret was sent: it responds with 405"},
		{"another reason", said(http.StatusMethodNotAllowed, "application/json", "POST", `{"reason":"internal"}`), "no secret was sent"},
		{"another status", said(http.StatusOK, "application/json", "POST", ours), "no secret was sent"},
		{"another media type", said(http.StatusMethodNotAllowed, "text/plain", "POST", ours), "no secret was sent"},
		{"no POST", said(http.StatusMethodNotAllowed, "application/json", "GET", ours), "no secret was sent"},
		{"cut off", said(http.StatusMethodNotAllowed, "application/json", "POST", ours[:20]), "no secret was sent"},
		{"a redirection", said(http.StatusFound, "application/json", "POST", ours), "it responds with 302 Found"},
		{"without end", said(http.StatusMethodNotAllowed, "application/json", "POST", strings.Repeat(" ", httpsclient.MaxBytes+1)), "the answer has more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			server := newTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = append(got, r.Method+" "+r.URL.Path)
				c.answer(w, r)
			}))
			t.Cleanup(server.Close)
			roots := x509.NewCertPool()
			roots.AddCert(server.Certificate())
			who := &typist{passwords: []string{testPassword}}
			_, err := (&Password{Server: server.URL, Roots: roots, Prompter: who, Now: time.Now}).Login(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if len(who.asked) > 0 || len(got) != 1 || got[0] != "GET "+login.Path {
				t.Errorf("the person was asked %q, the server %q", who.asked, got)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		server := newTLSServer(http.NotFoundHandler())
		server.Close()
		who := &typist{passwords: []string{testPassword}}
		_, err := (&Password{Server: server.URL, Prompter: who, Now: time.Now}).Login(t.Context())
		if err == nil || !strings.Contains(err.Error(), "refused (hint: check the address, and that the server is running)") || len(who.asked) > 0 {
			t.Errorf("got %v, asked %q", err, who.asked)
		}
	})
}

func TestPasswordRenewal(t *testing.T) {
	t.Parallel()
	refuse := func(status int, reason string) func(http.ResponseWriter, login.Request) bool {
		return func(w http.ResponseWriter, _ login.Request) bool {
			fail(w, status, login.Failure{Reason: reason, Message: "said so"})
			return true
		}
	}
	for _, c := range []struct {
		name   string
		token  string
		ends   time.Time
		answer func(http.ResponseWriter, login.Request) bool
		ended  bool
		fails  bool
		tries  int
	}{
		{name: "works", token: "gatehouse-login_old", ends: noon.Add(time.Hour), tries: 1},
		{name: "session over", token: "gatehouse-login_old", ends: noon, ended: true},
		{name: "session over by the server", token: "gatehouse-login_other", ends: noon.Add(time.Hour), ended: true, tries: 1},
		{name: "revoked", token: "gatehouse-login_old", ends: noon.Add(time.Hour), answer: refuse(401, "revoked"), ended: true, tries: 1},
		{name: "key gone", token: "gatehouse-login_old", ends: noon.Add(time.Hour), answer: refuse(401, "unknown-key"), ended: true, tries: 1},
		{name: "directory down", token: "gatehouse-login_old", ends: noon.Add(time.Hour), answer: refuse(503, "directory"), fails: true, tries: 1},
		{name: "a reason of a later version", token: "gatehouse-login_old", ends: noon.Add(time.Hour), answer: refuse(500, "new"), fails: true, tries: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGatehouse(t)
			g.answer = c.answer
			got, err := g.login(&typist{}).Renew(t.Context(), &Credential{Token: c.token, ExpiresAt: noon.Add(-time.Hour), SessionEnds: c.ends})
			if errors.Is(err, ErrEnded) != c.ended || (err != nil) != (c.ended || c.fails) {
				t.Errorf("got %+v, %v", got, err)
			}
			if err == nil && (got.Token != "gatehouse-login_new") {
				t.Errorf("got %+v", got)
			}
			if err != nil && strings.Contains(err.Error(), c.token) {
				t.Errorf("%v has the token", err)
			}
			if len(g.requests) != c.tries || c.tries == 1 && g.requests[0] != (login.Request{Directory: "corp", Token: c.token}) {
				t.Errorf("sent %+v", g.requests)
			}
		})
	}
}
