package issuers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// an answer to discovery, to the call for keys, or both.
func to(path string, answer http.HandlerFunc) func(*provider) http.HandlerFunc {
	return func(p *provider) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				answer(w, r)
				return
			}
			p.answer(w, r)
		}
	}
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
}

func keysInstead(keys ...jose.JSONWebKey) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: keys})
	}
}

// An issuer that lies changes nothing but the log and the metrics.
func TestLyingIssuers(t *testing.T) {
	t.Parallel()
	elsewhere, elsewhereServer := served(t, signing("forged"))
	plain := httptest.NewServer(elsewhere)
	t.Cleanup(plain.Close)
	big := append([]byte(`{"keys":[`), bytes.Repeat([]byte(" "), 10<<20)...)
	for name, c := range map[string]struct {
		lie  func(*provider) http.HandlerFunc
		want string
	}{
		"another issuer": {func(p *provider) http.HandlerFunc {
			return to(discoveryPath, text(`{"issuer":"https://evil.example.com","jwks_uri":"`+p.url+`/keys"}`))(p)
		}, `issuer \"https://evil.example.com\" of the discovery document: must be issuer.url`},
		"almost the same issuer": {func(p *provider) http.HandlerFunc {
			return to(discoveryPath, text(`{"issuer":"`+p.url+`/","jwks_uri":"`+p.url+`/keys"}`))(p)
		}, "must be issuer.url"},
		"two issuers": {func(p *provider) http.HandlerFunc {
			return to(discoveryPath, text(`{"issuer":"https://evil.example.com","issuer":"`+p.url+`","jwks_uri":"`+p.url+`/keys"}`))(p)
		}, "occurs twice"},
		"issuer in capitals": {func(p *provider) http.HandlerFunc {
			return to(discoveryPath, text(`{"ISSUER":"`+p.url+`","jwks_uri":"`+p.url+`/keys"}`))(p)
		}, "must be issuer.url"},
		"keys over http": {func(p *provider) http.HandlerFunc {
			return to(discoveryPath, text(`{"issuer":"`+p.url+`","jwks_uri":"`+plain.URL+`/keys"}`))(p)
		}, "must begin with https://"},
		"keys in a file": {func(p *provider) http.HandlerFunc {
			return to(discoveryPath, text(`{"issuer":"`+p.url+`","jwks_uri":"file:///etc/passwd"}`))(p)
		}, "must be the URL of an https server"},
		"keys with a password": {func(p *provider) http.HandlerFunc {
			return to(discoveryPath, text(`{"issuer":"`+p.url+`","jwks_uri":"https://me:hunter2@issuer.example.com/keys"}`))(p)
		}, "must not have a user name or password"},
		"no keys in discovery": {func(p *provider) http.HandlerFunc { return to(discoveryPath, text(`{"issuer":"`+p.url+`"}`))(p) }, "jwks_uri"},
		"discovery is HTML":    {to(discoveryPath, text("<html>log in first</html>")), "is not a discovery document"},
		"keys are HTML":        {to(jwksPath, text("<html>")), "is not a JSON Web Key Set"},
		"keys are no keys":     {to(jwksPath, text(`{"keys":[1,"two",null,{"kty":"RSA"},{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}]}`)), "no usable key"},
		"a private key":        {to(jwksPath, keysInstead(jose.JSONWebKey{Key: material().rsa, KeyID: "private"}, signing("a"))), "keys[0]: must be public"},
		"10 MB":                {to(jwksPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) }), "more than 1048576 bytes"},
		"10 MB of discovery":   {to(discoveryPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) }), "more than 1048576 bytes"},
		"a header without end": {to(jwksPath, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }), "GET"},
		"half an answer": {to(jwksPath, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"keys":[`)
		}), "GET"},
		"a panic":      {to(jwksPath, away), "GET"},
		"down":         {to(discoveryPath, down), "status 503"},
		"unknown here": {to(discoveryPath, http.NotFound), "status 404"},
		"other success": {to(jwksPath, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{}`)
		}), "status 202"},
		"redirect without end": {to(discoveryPath, redirect(discoveryPath)), "more than 3 redirects"},
		"redirect to http":     {to(jwksPath, redirect(plain.URL+"/keys")), "same host and port"},
		"redirect to http on the port": {func(p *provider) http.HandlerFunc {
			return to(jwksPath, redirect(strings.Replace(p.url, "https", "http", 1)+"/other"))(p)
		}, "must be https"},
		"without end": {to(jwksPath, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(big[:2<<20])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), "more than 1048576 bytes"},
		"redirect to a host": {to(jwksPath, redirect(elsewhereServer.URL+"/keys")), "same host and port"},
		"redirect to a user": {func(p *provider) http.HandlerFunc {
			return to(jwksPath, redirect(strings.Replace(p.url, "://", "://me:hunter2@", 1)+"/other"))(p)
		}, "same host and port"},
		"redirect to nonsense": {to(jwksPath, redirect("https://["+strings.Repeat("x", 4000))), "GET"},
		"too many keys":        {to(jwksPath, keysInstead(many(jwt.MaxKeys+1)...)), "at most 100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, server := served(t, signing("good"))
			i, logged := start(t)
			keys, _ := provide(t, i, specOf(trusting(server)))
			p.lie(c.lie(p))
			for range askBurst {
				if found, err := keys.Find(t.Context(), "forged"); err == nil {
					t.Errorf("%d keys and no error, want to be unable to tell", len(found))
				}
			}
			if !finds(t, keys, "good") {
				t.Error("the last good key is gone")
			}
			if n := value(t, i, "gatehouse_issuer_key_fetches_total", p.url, "failed"); n < askBurst {
				t.Errorf("metric counts %v, want %d", n, askBurst)
			}
			if logged.Count("cannot fetch the keys of") != 1 || logged.Count(c.want) == 0 {
				t.Errorf("want one line with %q in the log:\n%s", c.want, logged)
			}
			for line := range strings.SplitSeq(logged.String(), "\n") {
				if len(line) > 2000 || strings.Contains(line, "hunter2") {
					t.Errorf("in the log: %.3000s", line)
				}
			}
		})
	}
	t.Cleanup(func() {
		if n := elsewhere.calls(); n != 0 {
			t.Errorf("a host was called %d times that nobody configured", n)
		}
	})
}

func many(n int) []jose.JSONWebKey {
	keys := make([]jose.JSONWebKey, n)
	for i := range keys {
		keys[i] = keyOf(fmt.Sprint(i), "ES256", material().ec["P-256"].Public())
	}
	return keys
}

// trickle is a body that arrives byte by byte.
type trickle struct{ ctx context.Context }

func (s trickle) Read(p []byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-time.After(time.Second):
		p[0] = ' '
		return 1, nil
	}
}

func (trickle) Close() error { return nil }

type slow struct{ direct }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.direct.RoundTrip(r)
	if err == nil {
		resp.Body = trickle{r.Context()}
	}
	return resp, err
}

func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fetcher{origin: origin{url: example}, connect: func(*x509.CertPool) *http.Client { return &http.Client{Transport: slow{direct{newProvider(example)}}} }}
		ctx, cancel := context.WithTimeout(t.Context(), fetchTime)
		defer cancel()
		begin := time.Now()
		_, err := f.fetch(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != fetchTime {
			t.Errorf("error %v after %s", err, time.Since(begin))
		}
	})
}

func TestIssuerWithoutTrust(t *testing.T) {
	t.Parallel()
	_, server := served(t, signing("a"))
	_, other := served(t, signing("a"))
	other.Close()
	isStale := httptest.NewUnstartedServer(http.NotFoundHandler())
	isStale.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	isStale.Config.ErrorLog = server.Config.ErrorLog
	isStale.StartTLS()
	t.Cleanup(isStale.Close)
	named := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	for name, c := range map[string]struct {
		url, ca, want string
	}{
		"another CA":         {server.URL, otherCA(t), "certificateAuthority must have the CA"},
		"the system's CAs":   {server.URL, "", "certificateAuthority must have the CA"},
		"another name":       {named, caOf(server), "certificateAuthority must have the CA"},
		"an old TLS version": {isStale.URL, caOf(isStale), "protocol version"},
		"no CA in the field": {server.URL, "not PEM", "certificateAuthority: contains no PEM certificate"},
		"nobody there":       {other.URL, caOf(server), "connection refused"},
		"http":               {strings.Replace(server.URL, "https", "http", 1), caOf(server), "issuer.url: "},
		"no host":            {"https://", caOf(server), "issuer.url: "},
		"no URL":             {"", caOf(server), "issuer.url: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, logged := start(t)
			configured := authn.Issuer{Config: &apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: c.url, CertificateAuthority: c.ca}}}
			keys, _ := provide(t, i, specOf(configured))
			if _, err := keys.Find(t.Context(), "a"); err == nil {
				t.Error("no error")
			}
			if logged.Count(c.want) != 1 {
				t.Errorf("want %q once in the log:\n%s", c.want, logged)
			}
			if _, err := Fetch(t.Context(), configured); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	p, server := served(t, signing("a"), signing("b"))
	set, err := Fetch(t.Context(), trusting(server))
	if err != nil {
		t.Fatal(err)
	}
	if keys := set.All(); len(keys) != 2 || keys[0].ID != "a" || keys[0].Algorithm != "RS256" || !material().rsa.PublicKey.Equal(keys[0].Public) {
		t.Errorf("keys %v", keys)
	}
	p.lie(hang)
	if _, err := Fetch(within(t, 10*time.Millisecond), trusting(server)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestWhatIsAsked(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			unstarted := httptest.NewUnstartedServer(nil)
			unstarted.EnableHTTP2 = protocol == "HTTP/2.0"
			closed := make(chan struct{}, 10)
			unstarted.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateClosed {
					closed <- struct{}{}
				}
			}
			p, server := servedBy(t, unstarted, signing("a"))
			i, _ := start(t)
			keys, _ := provide(t, i, specOf(trusting(server)))
			if !finds(t, keys, "a") {
				t.Error("no key")
			}
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Error("a connection is kept open for minutes")
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if want := protocol + " gatehouse/v1.2.3"; len(p.agents) != 1 || !p.agents[want] {
				t.Errorf("protocol and User-Agent %v, want %s", p.agents, want)
			}
			if len(p.asked) != 2 || p.asked[discoveryPath] != 1 || p.asked[jwksPath] != 1 {
				t.Errorf("asked %v", p.asked)
			}
		})
	}
}

// Where the document is may differ from whose document it is.
func TestDiscoveryURL(t *testing.T) {
	t.Parallel()
	p, server := served(t, signing("a"))
	p.url = "https://issuer.example.com/realm" // nobody is there
	p.lie(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/somewhere" {
			_, _ = io.WriteString(w, `{"issuer":"https://issuer.example.com/realm","jwks_uri":"`+server.URL+jwksPath+`"}`)
			return
		}
		p.answer(w, r)
	})
	configured := trusting(server)
	configured.Config.Issuer.URL, configured.Config.Issuer.DiscoveryURL = p.url, server.URL+"/somewhere"
	if set, err := Fetch(t.Context(), configured); err != nil || len(set.All()) != 1 {
		t.Errorf("%v, error %v", set, err)
	}
}

func TestRedirectOnTheSameHost(t *testing.T) {
	t.Parallel()
	p, server := served(t, signing("a"))
	p.lie(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == discoveryPath && r.URL.RawQuery == "" {
			http.Redirect(w, r, discoveryPath+"?tenant=1", http.StatusMovedPermanently)
			return
		}
		p.answer(w, r)
	})
	if set, err := Fetch(t.Context(), trusting(server)); err != nil || len(set.All()) != 1 {
		t.Errorf("%v, error %v", set, err)
	}
}
