package main

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

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/session"
)

// made is a way to log in that gives what a test made.
type made struct {
	id         session.Identity
	credential session.Credential
}

func (m made) Identity() session.Identity    { return m.id }
func (m made) Fits(*session.Credential) bool { return true }
func (m made) Login(context.Context) (*session.Credential, error) {
	return &m.credential, nil
}

func (m made) Renew(context.Context, *session.Credential) (*session.Credential, error) {
	return nil, session.ErrEnded
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
		{name: "a CA that is gone", more: []string{"--issuer-ca", "gone.crt", "--issuer-ca-data", ""}, says: "is good until the issuer ends it: --issuer-ca: open gone.crt: "},
		{name: "an issuer that is down", down: true, says: "gatehouse: the refresh token was not given back, and is good until the issuer ends it: https://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			mux := http.NewServeMux()
			issuer := httptest.NewUnstartedServer(mux)
			issuer.Config.ErrorLog = log.New(io.Discard, "", 0)
			issuer.StartTLS()
			t.Cleanup(issuer.Close)
			mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				say(w, map[string]any{"issuer": issuer.URL, "token_endpoint": issuer.URL + "/token", "jwks_uri": issuer.URL + "/keys", "revocation_endpoint": issuer.URL + "/revoke"})
			})
			mux.HandleFunc("POST /revoke", func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.PostFormValue("token")) })

			cache := &session.Cache{Dir: filepath.Join(t.TempDir(), "cache")}
			now := time.Now()
			login := session.Session{
				Method: made{
					session.Identity{Method: "oidc", Issuer: issuer.URL, ClientID: "kubernetes"},
					session.Credential{Token: "hush", RefreshToken: "hush-too", ObtainedAt: now, ExpiresAt: now.Add(time.Hour)},
				},
				Cache: cache, Interactive: true, Patience: time.Minute, Remarks: io.Discard, Now: time.Now,
			}
			if _, _, err := login.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.down {
				issuer.Close()
			}
			args := append([]string{
				"logout", "--issuer", issuer.URL, "--client-id", "kubernetes", "--cache-dir", cache.Dir,
				"--issuer-ca-data", base64.StdEncoding.EncodeToString(caOf(issuer)),
			}, c.more...)
			out := runWith(t.Context(), "", args...)
			if out.code != exitYes || out.out != "1 login removed\n" || (out.err == "") != (c.says == "") || !strings.Contains(out.err, c.says) || strings.Contains(out.err, "hush") {
				t.Errorf("%+v, want %q", out, c.says)
			}
			if len(got) != c.tokens || len(got) > 0 && got[0] != "hush-too" {
				t.Errorf("the issuer got %q", got)
			}
			if again := runWith(t.Context(), "", args...); again != (said{exitYes, "no login was kept\n", ""}) {
				t.Errorf("%+v", again)
			}
		})
	}
}
