package session

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/httpsclient"
)

func TestLoginWithoutABrowserOnLocalhost(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.visitor()
	o, said := i.login(t, nil, func(o *OIDC) { o.Listen = "localhost:0" })
	done := make(chan error, 1)
	go func() {
		_, err := o.Login(t.Context())
		done <- err
	}()
	// A person who copies the address.
	var address string
	deadline := time.Now().Add(10 * time.Second)
	for address == "" && time.Now().Before(deadline) {
		if _, rest, ok := strings.Cut(said.String(), "\n"); ok {
			address = strings.TrimSpace(rest)
		} else {
			time.Sleep(time.Millisecond) // polled with a deadline
		}
	}
	if err := v.open(address); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if back := i.authorized.Get("redirect_uri"); !strings.HasPrefix(back, "http://localhost:") {
		t.Errorf("the browser comes back to %s", back)
	}
}

// A page of somebody else may know the port, but not the state.
func TestBrowserComesBackWithSomethingElse(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.visitor()
	rounds := func(target string) error {
		asked, err := url.Parse(target)
		if err != nil {
			return err
		}
		state := asked.Query().Get("state")
		back := asked.Query().Get("redirect_uri")
		for _, c := range []struct{ name, method, target string }{
			{"no state", http.MethodGet, back + "?code=x"},
			{"wrong state", http.MethodGet, back + "?code=x&state=x" + state[1:]},
			{"error with a wrong state", http.MethodGet, back + "?error=access_denied&state=wrong"},
			{"two states", http.MethodGet, back + "?code=x&state=" + state + "&state=" + state},
			{"another method", http.MethodPost, back + "?code=x&state=" + state},
			{"another path", http.MethodGet, strings.TrimSuffix(back, "/callback") + "/?code=x&state=" + state},
			{"favicon", http.MethodGet, strings.TrimSuffix(back, "/callback") + "/favicon.ico"},
		} {
			req, err := http.NewRequestWithContext(t.Context(), c.method, c.target, nil)
			if err != nil {
				return err
			}
			resp, err := v.client.Do(req)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %s, want 400", c.name, resp.Status)
			}
		}
		return v.open(target)
	}
	o, _ := i.login(t, rounds, nil)
	c, err := o.Login(t.Context())
	if err != nil || c.User != "jane" {
		t.Fatalf("the right answer was not taken after wrong ones: %v", err)
	}
	if n := i.count("token"); n != 1 {
		t.Errorf("%d codes were tried, want 1", n)
	}
}

// Who has seen the address that the browser came back to comes too late.
func TestBrowserComesBackTwice(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.visitor()
	second := make(chan int, 1)
	i.token = func(_ http.ResponseWriter, form url.Values) bool {
		again := form.Get("redirect_uri") + "?" + url.Values{"code": {"another"}, "state": {i.authorized.Get("state")}}.Encode()
		resp, err := v.client.Get(again)
		if err != nil {
			t.Error(err)
			return false
		}
		_ = resp.Body.Close()
		second <- resp.StatusCode
		return false
	}
	o, _ := i.login(t, v.open, nil)
	if _, err := o.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := <-second; status != http.StatusBadRequest || i.count("token") != 1 {
		t.Errorf("the second answer got %d, and %d codes were tried", status, i.count("token"))
	}
}

func TestLoginsThatAreRefused(t *testing.T) {
	t.Parallel()
	claim := func(name string, value any) func(*testIssuer) {
		return func(i *testIssuer) { i.claims = func(claims map[string]any) { claims[name] = value } }
	}
	back := func(edit func(url.Values)) func(*testIssuer) { return func(i *testIssuer) { i.callback = edit } }
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	unsigned := func(claims map[string]any) string {
		var body bytes.Buffer
		writeJSON(&body, claims)
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(body.Bytes()) + "."
	}
	cases := []struct {
		name    string
		edit    func(*testIssuer)
		refused string // the reason of a definite no
		says    string
	}{
		{"wrong nonce", claim("nonce", "another"), "", "its nonce is not the one of this login"},
		{"no nonce", claim("nonce", nil), "", "its nonce is not the one of this login"},
		{"token for another client", claim("aud", "another"), "", `expected audience "kubernetes"`},
		{"token made for another client", claim("azp", "another"), "", `it was issued for client "another"`},
		{"token for several, made for another", func(i *testIssuer) {
			i.claims = func(claims map[string]any) {
				claims["aud"], claims["azp"] = []string{testClient, "another"}, "another"
			}
		}, "", `it was issued for client "another"`},
		{"token of another issuer", claim("iss", "https://evil.example"), "", "issued by a different provider"},
		{"expired token", claim("exp", 1), "", "expired"},
		{"unsigned token", func(i *testIssuer) { i.sign = unsigned }, "", "the ID token is invalid"},
		{"symmetric signature", func(i *testIssuer) {
			i.sign = func(claims map[string]any) string {
				return signed(jose.HS256, []byte(strings.Repeat("k", 32)), claims)
			}
		}, "", "the ID token is invalid"},
		{"signature of another key", func(i *testIssuer) {
			i.sign = func(claims map[string]any) string { return signed(jose.ES256, other, claims) }
		}, "", "the ID token is invalid"},
		{"no ID token", func(i *testIssuer) { i.sign = func(map[string]any) string { return "" } }, "", "has no ID token"},
		{"another issuer comes back", back(func(v url.Values) { v.Set("iss", "https://evil.example") }), "", `is from issuer "https://evil.example"`},
		{"an issuer that promised its name", func(i *testIssuer) {
			i.metadata = func(m map[string]any) { m["authorization_response_iss_parameter_supported"] = true }
		}, "", `is from issuer`},
		{"no code", back(func(v url.Values) { v.Del("code") }), "", "has no authorization code"},
		{"the person said no", back(func(v url.Values) {
			v.Del("code")
			v.Set("error", "access_denied")
			v.Set("error_description", "<script>alert(1)</script>")
		}), "access_denied", "rejected the login: access_denied: <script>"},
		{"the issuer is busy", back(func(v url.Values) {
			v.Del("code")
			v.Set("error", "temporarily_unavailable")
		}), "", "temporarily_unavailable"},
		{"a code that is not known", back(func(v url.Values) { v.Set("code", "invented") }), "invalid_grant", "rejected the login: invalid_grant: said by the issuer"},
		{"a redirection with the code", func(i *testIssuer) {
			i.token = func(w http.ResponseWriter, _ url.Values) bool {
				w.Header().Set("Location", i.URL+"/elsewhere")
				w.WriteHeader(http.StatusTemporaryRedirect)
				return true
			}
		}, "", "a redirect, which is not followed"},
		{"an endless answer", func(i *testIssuer) {
			i.token = func(w http.ResponseWriter, _ url.Values) bool {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(strings.Repeat(" ", httpsclient.MaxBytes+1)))
				return true
			}
		}, "", "cannot parse json"},
		{"a broken issuer shows what it was sent", func(i *testIssuer) {
			i.token = func(w http.ResponseWriter, form url.Values) bool {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = w.Write([]byte(form.Encode()))
				return true
			}
		}, "", "responds with 500"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			c.edit(i)
			v := i.visitor()
			o, _ := i.login(t, v.open, nil)
			got, err := o.Login(t.Context())
			if err == nil {
				t.Fatalf("logged in: %+v", got)
			}
			refused, definite := errors.AsType[*RefusedError](err)
			if definite != (c.refused != "") || definite && refused.Reason != c.refused {
				t.Errorf("got %v, definite: %v", err, definite)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v\nlacks %q", err, c.says)
			}
			page := <-v.page
			if !strings.Contains(page.text, "The login failed: ") || strings.Contains(page.text, "<script>") {
				t.Errorf("page: %q", page.text)
			}
			i.leaks(t, err.Error())
			i.leaks(t, page.text)
		})
	}
}

// Somebody has a code of their own login, and the state of another's: the
// verifier is not that of the code.
func TestCodeInjection(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	v := i.visitor()
	inject := func(target string) error {
		asked, err := url.Parse(target)
		if err != nil {
			return err
		}
		query := asked.Query()
		back, state := query.Get("redirect_uri"), query.Get("state")
		i.mu.Lock()
		code := i.secret("code-")
		i.codes[code] = grant{strings.Repeat("A", 43), back, query.Get("nonce"), testClient}
		i.mu.Unlock()
		return v.open(back + "?" + url.Values{"code": {code}, "state": {state}}.Encode())
	}
	o, _ := i.login(t, inject, nil)
	_, err := o.Login(t.Context())
	if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Reason != "invalid_grant" {
		t.Errorf("got %v", err)
	}
}

func TestDiscoveryIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, field, value, says string }{
		{"another issuer", "issuer", "https://evil.example", `has issuer "https://evil.example"`},
		{"tokens without TLS", "token_endpoint", "http://issuer.example/token", `token_endpoint: "http://issuer.example/token" is not an https URL`},
		{"a file for the browser", "authorization_endpoint", "file:///etc/passwd", "authorization_endpoint"},
		{"keys without TLS", "jwks_uri", "http://issuer.example/keys", "jwks_uri"},
		{"codes without TLS", "device_authorization_endpoint", "http://issuer.example", "device_authorization_endpoint"},
		{"no browser", "authorization_endpoint", "", "the issuer has no authorization or token endpoint for logins in a browser (hint: --device)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.metadata = func(m map[string]any) { m[c.field] = c.value }
			o, _ := i.login(t, func(string) error { t.Error("a browser was opened"); return nil }, nil)
			if _, err := o.Login(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
	t.Run("unknown CA", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		o, _ := i.login(t, nil, func(o *OIDC) { o.Roots = nil })
		if _, err := o.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "--issuer-ca") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("endless document", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		i.metadata = func(m map[string]any) { m["padding"] = strings.Repeat("x", httpsclient.MaxBytes) }
		o, _ := i.login(t, nil, nil)
		if _, err := o.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "the answer has more than 1048576 bytes") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("not an issuer", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewTLSServer(http.NotFoundHandler())
		t.Cleanup(server.Close)
		i := &testIssuer{Server: server}
		o, _ := i.login(t, nil, nil)
		if _, err := o.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "404 Not Found") {
			t.Errorf("got %v", err)
		}
	})
}

func TestNobodyComes(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	o, _ := i.login(t, nil, func(o *OIDC) { o.Timeout = 50 * time.Millisecond })
	if _, err := o.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "nobody logged in at "+i.URL+" within 50ms") {
		t.Errorf("got %v", err)
	}
}

func TestDeviceLoginsThatFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(url.Values)
		no   bool
		says string
	}{
		{"the person said no", func(v url.Values) { v.Set("state", "access_denied") }, true, "rejected the login: access_denied"},
		{"the code ended", func(v url.Values) { v.Set("state", "expired_token") }, false, "nobody logged in at "},
		{"an address that is a script", func(v url.Values) { v.Set("verification_uri", "javascript:alert(1)") }, false, "no https address to open"},
		{"no code", func(v url.Values) { v.Set("user_code", "") }, false, "the response has no code"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.callback = c.edit
			o, _ := i.login(t, nil, func(o *OIDC) { o.Device = true })
			_, err := o.Login(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want %q", err, c.says)
			}
			if _, definite := errors.AsType[*RefusedError](err); definite != c.no {
				t.Errorf("definite: %v", definite)
			}
			i.leaks(t, err.Error())
		})
	}
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	fail := func(status int, body string) func(http.ResponseWriter, url.Values) bool {
		return func(w http.ResponseWriter, form url.Values) bool {
			if form.Get("grant_type") != "refresh_token" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	for _, c := range []struct {
		name  string
		edit  func(*testIssuer)
		old   func(*Credential)
		ended bool
		says  string // empty if it works
	}{
		{name: "works", edit: func(*testIssuer) {}},
		{name: "no refresh token", edit: func(*testIssuer) {}, old: func(c *Credential) { c.RefreshToken = "" }, ended: true, says: "ended"},
		{name: "the issuer has enough", edit: func(*testIssuer) {}, old: func(c *Credential) { c.RefreshToken = "gone" }, ended: true, says: "invalid_grant"},
		{
			name: "no ID token", edit: func(i *testIssuer) { i.token = fail(200, `{"access_token":"a","token_type":"Bearer"}`) },
			ended: true, says: "renewed the login without an ID token",
		},
		{
			name: "somebody else", edit: func(i *testIssuer) { i.claims = func(c map[string]any) { c["sub"] = "eve" } },
			says: "belongs to another user",
		},
		{name: "the issuer is down", edit: func(i *testIssuer) { i.token = fail(503, `no`) }, says: "responds with 503"},
		{name: "the issuer is busy", edit: func(i *testIssuer) { i.token = fail(400, `{"error":"temporarily_unavailable"}`) }, says: "temporarily_unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			v := i.visitor()
			o, _ := i.login(t, v.open, nil)
			old, err := o.Login(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			i.mu.Lock()
			c.edit(i)
			i.mu.Unlock()
			if c.old != nil {
				c.old(old)
			}
			got, err := o.Renew(t.Context(), old)
			if c.says == "" {
				if err != nil || got.Token == old.Token || got.Subject != "4711" || got.RefreshToken == old.RefreshToken {
					t.Errorf("%v: %+v", err, got)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, ErrEnded) != c.ended {
				t.Errorf("got %v, want %q, ended: %v", err, c.says, c.ended)
			}
			i.leaks(t, err.Error())
			if n := i.count("authorize"); n != 1 {
				t.Errorf("%d browsers", n)
			}
		})
	}
}

// A client with a secret shows it in the header, unless the issuer takes forms
// alone; one without names itself in the form. Nothing is tried twice.
func TestClientSecret(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, secret string
		methods      []string
		form         bool
	}{
		{"public", "", nil, true},
		{"by default", "hush-hush", nil, false},
		{"forms alone", "hush-hush", []string{"client_secret_post"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.metadata = func(m map[string]any) {
				if c.methods != nil {
					m["token_endpoint_auth_methods_supported"] = c.methods
				}
			}
			var seen url.Values
			i.token = func(w http.ResponseWriter, form url.Values) bool {
				seen = form
				i.answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_client"})
				return true
			}
			v := i.visitor()
			o, _ := i.login(t, v.open, func(o *OIDC) { o.ClientSecret = c.secret })
			if _, err := o.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "invalid_client") {
				t.Errorf("got %v", err)
			}
			if n := i.count("token"); n != 1 {
				t.Errorf("the code was tried %d times", n)
			}
			if form := seen.Get("client_id") != ""; form != c.form || c.form && seen.Get("client_secret") != c.secret {
				t.Errorf("form %v", seen)
			}
		})
	}
}

func TestParseIssuerAndListen(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"https://issuer.example": true, "https://issuer.example:8443/realms/a": true, "http://issuer.example": false, "": false,
		"https://": false, "https://u:p@issuer.example": false, "https://issuer.example?x=1": false, "https://issuer.example#x": false,
		"https://issuer.example#": false, "file:///etc/passwd": false, "https://issuer.example:x": false,
	} {
		if err := ParseIssuer(text); (err == nil) != ok {
			t.Errorf("issuer %q: %v", text, err)
		}
	}
	if err := ParseIssuer("https://jane:hush@issuer.example"); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
	for text, ok := range map[string]bool{
		"127.0.0.1:0": true, "127.0.0.1:8000": true, "[::1]:0": true, "localhost:18000": true, "0.0.0.0:0": false, ":0": false, "": false,
		"192.0.2.1:80": false, "127.0.0.1": false, "example.org:80": false, "localhost.evil.example:80": false, "127.0.0.1:": false,
	} {
		if err := ParseListen(text); (err == nil) != ok {
			t.Errorf("listen %q: %v", text, err)
		}
	}
}
