package groups

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// service is an HTTPS server, and its CA in PEM.
func service(t *testing.T, handler http.HandlerFunc) (address, ca string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// asks returns the source of a configuration, and a function that asks it about jane.
func asks(t *testing.T, configured *config.GroupSource) func() ([]string, error) {
	t.Helper()
	configured.Issuer, configured.Config.Name = "https://issuer.example", "corp"
	configured.Config = groupsource.Complete(configured.Config)
	ask, err := newBackend(configured, nil, "gatehouse/test")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := testSource(t, ask, func(g *v1alpha1.GroupSource) { *g = *configured.Config })
	t.Cleanup(func() { closeIdle(ask) })
	return func() ([]string, error) {
		return s.try(&authn.GroupQuery{Issuer: "https://issuer.example", Subject: "jane", User: "o 1/&?", Token: "the-token"})
	}
}

func closeIdle(ask backend) {
	switch a := ask.(type) {
	case *httpBackend:
		a.client.http.CloseIdleConnections()
	case *graphBackend:
		a.client.http.CloseIdleConnections()
	}
}

func TestHTTPService(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other, _ := service(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string // the names, or what the error holds
		outage  bool
	}{
		"found":          {write(`{"groups":["a","b"]}`), "a b", false},
		"none":           {write(`{"groups":[]}`), "", false},
		"unknown user":   {status(http.StatusNotFound), "", false},
		"no content":     {status(http.StatusNoContent), "", false},
		"no such member": {write(`{"names":[]}`), "no such key", false},
		"an error":       {status(http.StatusInternalServerError), "status 500", true},
		"not allowed":    {status(http.StatusUnauthorized), "status 401", true},
		"too much":       {func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, endless{r.Context()}) }, "more than 1048576 bytes", false},
		"a large header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 128<<10)) }, "server response headers exceeded", true},
		"too slow":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, errTime.Error(), true},
		"drops": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}, errTime.Error(), true},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusFound) }, "redirects are not followed", true},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, "cut off", true},
		"too many":     {write(`{"groups":["` + strings.Repeat(`a","`, 600) + `a"]}`), "more than 500 groups", false},
		"busy":         {status(http.StatusTooManyRequests), "status 429", true},
		"deep":         {write(strings.Repeat("[", 100_000)), "not JSON", false},
		"another type": {write(`"` + strings.Repeat("x", 100) + `"`), "cannot be evaluated", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, ca := service(t, test.handler)
			timeout := time.Minute
			if test.want == errTime.Error() {
				timeout = time.Second
			}
			ask := asks(t, &config.GroupSource{Secret: []byte("secret"), Config: &v1alpha1.GroupSource{
				Timeout: &metav1.Duration{Duration: timeout}, CertificateAuthority: ca, HTTP: &v1alpha1.HTTPGroups{URL: url + "/v1/groups", TokenFile: "x"},
			}})
			names, err := ask()
			checkAnswer(t, names, err, test.want, test.outage)
		})
	}
	if elsewhere.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

func write(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// endless is text without an end, until its reader has gone.
type endless struct{ ctx context.Context }

func (e endless) Read(p []byte) (int, error) {
	return copy(p, strings.Repeat(" ", len(p))), e.ctx.Err()
}

func checkAnswer(t *testing.T, names []string, err error, want string, outage bool) {
	t.Helper()
	got := strings.Join(names, " ")
	if err != nil {
		got = err.Error()
	}
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, is := errors.AsType[*outageError](err); is != outage {
		t.Errorf("%v is an outage: %t", err, is)
	}
	if strings.Contains(got, "secret") || strings.Contains(got, "the-token") || strings.Contains(got, "o+1") {
		t.Errorf("a secret, or the query, is in %q", got)
	}
}

// TestHTTPRequest: what a service is asked, and by which credentials.
func TestHTTPRequest(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		var got string
		address, ca := service(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			name := ""
			if len(r.TLS.PeerCertificates) > 0 {
				name = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			got = fmt.Sprintf("%s %s %s %q %s %s", r.Method, r.URL.RequestURI(), body, r.Header.Get("Authorization"), name, r.UserAgent())
			_, _ = io.WriteString(w, `{"groups":["a"]}`)
		})
		certificate, key := clientPair(t)
		ask := asks(t, &config.GroupSource{Secret: []byte("secret"), Certificate: certificate, Key: key, Config: &v1alpha1.GroupSource{
			Timeout: &metav1.Duration{Duration: time.Minute}, CertificateAuthority: ca, HTTP: &v1alpha1.HTTPGroups{URL: address + "/v1", Method: method, ClientCertificateFile: "x", ClientKeyFile: "y", TokenFile: "z"},
		}})
		if names, err := ask(); err != nil || !slices.Equal(names, []string{"a"}) {
			t.Fatalf("%q, %v", names, err)
		}
		want := `GET /v1?issuer=https%3A%2F%2Fissuer.example&subject=jane&user=o+1%2F%26%3F  "Bearer secret" gatehouse gatehouse/test`
		if method == http.MethodPost {
			want = `POST /v1 {"issuer":"https://issuer.example","subject":"jane","user":"o 1/\u0026?"} "Bearer secret" gatehouse gatehouse/test`
		}
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func TestUserInfo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
		outage  bool
	}{
		"found":            {write(`{"sub":"jane","groups":["a"]}`), "a", false},
		"no groups":        {write(`{"sub":"jane"}`), "", false},
		"of somebody else": {write(`{"sub":"joe","groups":["admins"]}`), "another subject", false},
		"of nobody":        {write(`{"groups":["admins"]}`), "another subject", false},
		"not accepted":     {status(http.StatusUnauthorized), "does not accept the token", false},
		"signed":           {write("eyJhbGciOiJSUzI1NiJ9.e30.c2ln"), "not JSON", false},
		"away":             {status(http.StatusBadGateway), "status 502", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, ca := service(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer the-token" || r.URL.RawQuery != "" {
					t.Errorf("%s, %s", r.Header.Get("Authorization"), r.URL)
				}
				test.handler(w, r)
			})
			names, err := asks(t, &config.GroupSource{Config: &v1alpha1.GroupSource{Timeout: &metav1.Duration{Duration: time.Minute}, CertificateAuthority: ca, UserInfo: &v1alpha1.UserInfoGroups{URL: address}}})()
			checkAnswer(t, names, err, test.want, test.outage)
		})
	}
}

// graph answers as Microsoft Graph and its token endpoint are documented to. It is no part of
// Microsoft's.
type graph struct {
	groups []string
	page   int
	// tokens counts, and good is the one that is accepted.
	tokens atomic.Int64
	// busy is how many calls are answered with 429.
	busy int64
	// next replaces the address of the next page.
	next string
}

func (g *graph) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/tenant/oauth2/v2.0/token" {
		_ = r.ParseForm()
		if r.Method != http.MethodPost || r.PostForm.Get("grant_type") != "client_credentials" || r.PostForm.Get("client_id") != "client" ||
			r.PostForm.Get("client_secret") != "secret" || r.PostForm.Get("scope") != "https://"+r.Host+"/.default" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"secret"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"token_type":"Bearer","expires_in":3599,"ext_expires_in":3599,"access_token":"app-%d"}`, g.tokens.Add(1))
		return
	}
	if atomic.AddInt64(&g.busy, -1) >= 0 {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	switch {
	case r.Header.Get("Authorization") != fmt.Sprint("Bearer app-", g.tokens.Load()):
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path != "/v1.0/users/o-1/transitiveMemberOf/microsoft.graph.group":
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"code":"Request_ResourceNotFound"}}`)
	default:
		skip := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("$skiptoken"), &skip)
		end := min(skip+g.page, len(g.groups))
		answer := map[string]any{"@odata.context": "https://graph.example/$metadata#groups"}
		value := []map[string]string{}
		for _, id := range g.groups[skip:end] {
			value = append(value, map[string]string{"@odata.type": "#microsoft.graph.group", "id": id, "displayName": "Group " + id})
		}
		answer["value"] = value
		if end < len(g.groups) {
			answer["@odata.nextLink"] = "https://" + r.Host + r.URL.Path + "?$skiptoken=" + fmt.Sprint(end)
			if g.next != "" {
				answer["@odata.nextLink"] = g.next
			}
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(text)
	}
}

func TestGraph(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 250 {
		ids = append(ids, fmt.Sprintf("g-%03d", i))
	}
	for name, test := range map[string]struct {
		graph  *graph
		edit   func(*config.GroupSource)
		user   string
		want   string
		outage bool
		tokens int64
	}{
		"pages":             {&graph{groups: ids, page: 100}, nil, "o-1", strings.Join(ids, " "), false, 1},
		"display names":     {&graph{groups: ids[:2], page: 100}, func(s *config.GroupSource) { s.Config.Graph.NameProperty = "displayName" }, "o-1", "Group g-000 Group g-001", false, 1},
		"none":              {&graph{page: 1}, nil, "o-1", "", false, 1},
		"no such user":      {&graph{groups: ids, page: 1}, nil, "o-2", "", false, 1},
		"a path for a user": {&graph{groups: ids, page: 1}, nil, "../groups/x", "", false, 1},
		"another secret":    {&graph{}, func(s *config.GroupSource) { s.Secret = []byte("old") }, "o-1", "token of the application: status 401", true, 0},
		"busy":              {&graph{groups: ids[:1], page: 1, busy: 20}, nil, "o-1", "status 429", true, 1},
		"too many":          {&graph{groups: ids, page: 100}, func(s *config.GroupSource) { s.Config.MaxGroups = 150 }, "o-1", "more than 150 groups", false, 1},
		"a page elsewhere":  {&graph{groups: ids, page: 100, next: "https://evil.example/v1.0/x"}, nil, "o-1", "at another address", false, 1},
		"a page by HTTP":    {&graph{groups: ids, page: 100, next: "http://127.0.0.1/v1.0/x"}, nil, "o-1", "at another address", false, 1},
		"pages without end": {&graph{groups: []string{"a", "b"}, page: 0}, nil, "o-1", "more than 100 pages", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, ca := service(t, test.graph.ServeHTTP)
			s := &config.GroupSource{Secret: []byte("secret"), Issuer: "https://issuer.example", Config: &v1alpha1.GroupSource{Name: "corp", CertificateAuthority: ca, Timeout: &metav1.Duration{Duration: time.Minute}, Graph: &v1alpha1.GraphGroups{
				TenantID: "tenant", ClientID: "client", ClientSecretFile: "x",
				URL: address + "/v1.0", TokenURL: address + "/tenant/oauth2/v2.0/token",
			}}}
			if test.edit != nil {
				test.edit(s)
			}
			s.Config = groupsource.Complete(s.Config)
			ask, err := newBackend(s, nil, "gatehouse/test")
			if err != nil {
				t.Fatal(err)
			}
			defer closeIdle(ask)
			of, _ := testSource(t, ask, func(g *v1alpha1.GroupSource) { *g = *s.Config })
			names, err := of.try(&authn.GroupQuery{Subject: "jane", User: test.user})
			checkAnswer(t, names, err, test.want, test.outage)
			if n := test.graph.tokens.Load(); n != test.tokens {
				t.Errorf("%d tokens of the application, want %d", n, test.tokens)
			}
			if test.want != "" && err == nil {
				// A token that is not accepted any more is replaced, once.
				test.graph.tokens.Add(1)
				if _, err := of.try(&authn.GroupQuery{Subject: "jane", User: test.user}); err != nil {
					t.Errorf("with another token: %v", err)
				}
			}
		})
	}
}

func TestParsePage(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"value":[{"id":"a"},{"id":"b","displayName":"B"}]}`:          "a b ",
		`{"@odata.nextLink":"https://graph.example/2","value":[]}`:     "https://graph.example/2",
		`{"value":[{"id":"a"}],"@odata.nextLink":"https://x/2","x":1}`: "a https://x/2",
		`{"value":[{"id":null}]}`:                                      "a group without id",
		`{"value":[{"displayName":"B"}]}`:                              "a group without id",
		`{"value":[1]}`:                                                "not a page",
		`{"value":{}}`:                                                 "not a page",
		`{"error":{"code":"x"}}`:                                       "not a page",
		`{"value":[],"@odata.nextLink":7}`:                             "not a page",
		`[]`:                                                           "not a page",
	} {
		names, next, err := parsePage([]byte(answer), "id")
		got := strings.TrimPrefix(strings.Join(names, " ")+" "+next, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", answer, got, want)
		}
	}
}

func clientPair(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gatehouse"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// fakeDirectory knows jane.
type fakeDirectory struct{ err error }

func (f fakeDirectory) Find(_ context.Context, name string) (*authn.Account, error) {
	if name != "jane" {
		return nil, fmt.Errorf("%w: nobody", authn.ErrNoAccount)
	}
	return &authn.Account{}, f.err
}

func (f fakeDirectory) Verify(context.Context, *authn.Account, string) error { return f.err }

func (f fakeDirectory) Groups(context.Context, *authn.Account) ([]string, error) {
	return []string{"staff"}, f.err
}

// TestProvide: a source that is the same in two configurations is one, with its cache.
func TestProvide(t *testing.T) {
	t.Parallel()
	g := New(slog.New(slog.DiscardHandler), "")
	defer g.Close()
	c := func(ttl time.Duration) *config.Config {
		loaded, found := config.InspectText("login.yaml", []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt: [{issuer: {url: "https://issuer.example", audiences: [a]}, claimMappings: {username: {claim: sub, prefix: "oidc:"}}}]
---
apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
jwt:
  issuers:
  - url: https://issuer.example
    groupSources:
    - {name: corp, ldap: {directory: corp}, cacheTTL: `+ttl.String()+`}
directories:
- name: corp
  servers: ["ldaps://ldap.example"]
  groupsPrefix: "corp:"
  userSearch: {baseDN: "dc=example", filter: "(uid={})", usernameAttribute: uid}
  groupSearch: {baseDN: "dc=example", filter: "(member={})"}
`))
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	first, second, other := c(time.Minute), c(time.Minute), c(2*time.Minute)
	var views []*View
	for _, one := range []*config.Config{first, second, other} {
		one.Authn.Directories[0].Directory = fakeDirectory{}
		v, err := g.Provide(one)
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, v)
	}
	lookup := first.Authn.Issuers[0].Groups[0]
	if lookup != second.Authn.Issuers[0].Groups[0] || lookup == other.Authn.Issuers[0].Groups[0] {
		t.Error("the sources are not the same, or are")
	}
	for name, want := range map[string]string{"jane": "corp:staff", "joe": ""} {
		answer, err := lookup.Lookup(t.Context(), user(name))
		if err != nil || strings.Join(answer.Groups, " ") != want {
			t.Errorf("%s: %q, %v", name, answer.Groups, err)
		}
	}
	if _, err := authn.Compile(first.Authn); err != nil {
		t.Errorf("a directory for groups alone: %v", err)
	}
	g.Keep(views[2])
	if answer, ok := other.Authn.Issuers[0].Groups[0].Cached(user("jane")); ok || len(g.known) != 1 {
		t.Errorf("another source knows %+v, and %d sources are left", answer, len(g.known))
	}
}
