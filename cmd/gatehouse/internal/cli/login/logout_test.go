package login

import (
	"context"
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/session"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
)

// made is a way to log in that gives what a test made.
type made struct {
	id         session.Identity
	credential session.Credential
}

func (m made) Identity() session.Identity { return m.id }

func (m made) Fits(*session.Credential) bool { return true }

func (m made) Login(context.Context) (*session.Credential, error) {
	return &m.credential, nil
}

func (m made) Renew(context.Context, *session.Credential) (*session.Credential, error) {
	return nil, session.ErrEnded
}

// revokingIssuer is an issuer that takes refresh tokens back.
type revokingIssuer struct {
	*httptest.Server

	got []string
}

func newRevokingIssuer(t *testing.T) *revokingIssuer {
	t.Helper()
	mux := http.NewServeMux()
	i := &revokingIssuer{Server: httptest.NewUnstartedServer(mux)}
	i.Config.ErrorLog = log.New(io.Discard, "", 0)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		say(w, map[string]any{"issuer": i.URL, "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys", "revocation_endpoint": i.URL + "/revoke"})
	})
	mux.HandleFunc("POST /revoke", func(_ http.ResponseWriter, r *http.Request) { i.got = append(i.got, r.PostFormValue("token")) })
	i.StartTLS()
	t.Cleanup(i.Close)
	return i
}

// loggedIn is a cache with a login at the issuer.
func (i *revokingIssuer) loggedIn(t *testing.T) *session.Cache {
	t.Helper()
	cache := &session.Cache{Dir: filepath.Join(t.TempDir(), "cache")}
	now := time.Now()
	login := session.Session{
		Method: made{
			session.Identity{Method: "oidc", Issuer: i.URL, ClientID: "kubernetes"},
			session.Credential{Token: "hush", RefreshToken: "hush-too", ObtainedAt: now, ExpiresAt: now.Add(time.Hour)},
		},
		Cache: cache, Interactive: true, LockTimeout: time.Minute, Remarks: io.Discard, Now: time.Now,
	}
	if _, _, err := login.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cache
}

// Who logs out of everything gives back what contexts of the kubeconfig say how to,
// once each.
func TestLogoutOfEverythingGivesBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", file)
	issuer := newRevokingIssuer(t)
	cache := issuer.loggedIn(t)
	for _, name := range []string{"one", "two"} {
		got := runWith(t.Context(), "", "kubeconfig", "--api-server", "https://127.0.0.1:1", "--name", name, "--merge", "--kubeconfig", file,
			"--issuer", issuer.URL, "--client-id", "kubernetes", "--issuer-ca-data", base64.StdEncoding.EncodeToString(caOf(issuer.Server)))
		if got.code != cli.ExitYes {
			t.Fatalf("%+v", got)
		}
	}
	out := runWith(t.Context(), "", "logout", "--cache-dir", cache.Dir)
	if out != (said{cli.ExitYes, "1 login deleted\n", ""}) || len(issuer.got) != 1 || issuer.got[0] != "hush-too" {
		t.Errorf("%+v, and the issuer got %q", out, issuer.got)
	}
}

// Logging out gives the refresh token back, and forgets the login whatever the
// issuer says to that.
func TestLogoutGivesBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		down   bool
		more   []string // further flags
		tokens int      // how many the issuer got
		says   string
	}{
		{name: "taken back", tokens: 1},
		{name: "a CA that is gone", more: []string{"--issuer-ca", "gone.crt", "--issuer-ca-data", ""}, says: "is valid until the issuer ends it: --issuer-ca: open gone.crt: "},
		{name: "an issuer that is down", down: true, says: "gatehouse: the refresh token was not revoked, and is valid until the issuer ends it: https://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			issuer := newRevokingIssuer(t)
			cache := issuer.loggedIn(t)
			if c.down {
				issuer.Close()
			}
			args := append([]string{
				"logout", "--issuer", issuer.URL, "--client-id", "kubernetes", "--cache-dir", cache.Dir,
				"--issuer-ca-data", base64.StdEncoding.EncodeToString(caOf(issuer.Server)),
			}, c.more...)
			out := runWith(t.Context(), "", args...)
			if out.code != cli.ExitYes || out.out != "1 login deleted\n" || (out.err == "") != (c.says == "") || !strings.Contains(out.err, c.says) || strings.Contains(out.err, "hush") {
				t.Errorf("%+v, want %q", out, c.says)
			}
			if got := issuer.got; len(got) != c.tokens || len(got) > 0 && got[0] != "hush-too" {
				t.Errorf("the issuer got %q", got)
			}
			if again := runWith(t.Context(), "", args...); again != (said{cli.ExitYes, "no login was stored\n", ""}) {
				t.Errorf("%+v", again)
			}
		})
	}
}

// Who logs out of a Gatehouse leaves nobody logged in there, and is told of what
// other flags kept.
func TestLogoutOfAServer(t *testing.T) {
	t.Parallel()
	l, other := newLoginServer(t), newLoginServer(t)
	cache := filepath.Join(t.TempDir(), "cache")
	for _, name := range []string{"jane", "carl"} {
		if got := runWith(t.Context(), janesPassword, l.flags(cache, "--username", name, "--password-stdin")...); got.code != cli.ExitYes {
			t.Fatalf("%+v", got)
		}
	}
	if got := runWith(t.Context(), janesPassword, other.flags(cache, "--password-stdin")...); got.code != cli.ExitYes {
		t.Fatalf("%+v", got)
	}
	for _, step := range []struct {
		args []string
		want said
	}{
		{
			[]string{"--server", l.URL, "--username", "eve"},
			said{cli.ExitYes, "no login was stored\n", "gatehouse: still stored for " + l.URL + ", with other flags such as --username or --scope: 2 logins (hint: 'gatehouse logout' deletes all logins)\n"},
		},
		{
			[]string{"--server", l.URL, "--username", "jane", "--directory", "corp"},
			said{cli.ExitYes, "no login was stored\n", "gatehouse: still stored for " + l.URL + ", with other flags such as --username or --scope: 2 logins (hint: 'gatehouse logout' deletes all logins)\n"},
		},
		{[]string{"--server", l.URL + "/"}, said{cli.ExitYes, "2 logins deleted\n", ""}},
		{[]string{"--server", l.URL}, said{cli.ExitYes, "no login was stored\n", ""}},
		{nil, said{cli.ExitYes, "1 login deleted\n", ""}},
	} {
		if got := runWith(t.Context(), "", append([]string{"logout", "--cache-dir", cache}, step.args...)...); got != step.want {
			t.Errorf("%q: %+v\nwant %+v", step.args, got, step.want)
		}
	}
}

// A context that keeps its login elsewhere is logged out with all others.
func TestLogoutOfAContextsOwnDirectory(t *testing.T) {
	dir := t.TempDir()
	file, own := filepath.Join(dir, "config"), filepath.Join(dir, "own")
	t.Setenv("KUBECONFIG", file)
	t.Setenv("KUBECACHEDIR", filepath.Join(dir, "usual"))
	l := newLoginServer(t)
	made := runWith(t.Context(), "", append([]string{"kubeconfig", "--api-server", "https://127.0.0.1:1", "--merge", "--kubeconfig", file}, l.flags(own)[1:]...)...)
	if made.code != cli.ExitYes {
		t.Fatalf("%+v", made)
	}
	logIn := func(args ...string) {
		t.Helper()
		if got := runWith(t.Context(), janesPassword, append(args, "--password-stdin")...); got.code != cli.ExitYes {
			t.Fatalf("%+v", got)
		}
	}
	logIn("login")
	logIn(l.flags(own, "--username", "carl")...)
	logIn(l.flags("")...)
	if got := runWith(t.Context(), "", "logout"); got != (said{cli.ExitYes, "2 logins deleted\n", ""}) {
		t.Errorf("%+v", got)
	}
	// It may be shared with what is no business of this kubeconfig.
	if got := runWith(t.Context(), "", "logout", "--cache-dir", own); got != (said{cli.ExitYes, "1 login deleted\n", ""}) {
		t.Errorf("%+v", got)
	}
}
