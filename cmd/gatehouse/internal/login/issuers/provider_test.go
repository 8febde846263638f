package issuers

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	discoveryPath = "/.well-known/openid-configuration"
	jwksPath      = "/keys"
)

// provider is an OpenID provider with keys that come and go.
type provider struct {
	url string

	mu   sync.Mutex
	keys []jose.JSONWebKey
	// instead answers in place of the provider, if it returns true.
	instead http.HandlerFunc
	// asked counts by path, and agents are protocols and User-Agents.
	asked  map[string]int
	agents map[string]bool
}

func newProvider(url string, keys ...jose.JSONWebKey) *provider {
	return &provider{url: url, keys: keys, asked: map[string]int{}, agents: map[string]bool{}}
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *provider) publish(keys ...jose.JSONWebKey) { p.set(func() { p.keys = keys }) }

// lie makes something else answer; nil ends that.
func (p *provider) lie(instead http.HandlerFunc) { p.set(func() { p.instead = instead }) }

func (p *provider) fetches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[jwksPath]
}

func (p *provider) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, asked := range p.asked {
		n += asked
	}
	return n
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.URL.Path]++
	p.agents[r.Proto+" "+r.UserAgent()] = true
	instead := p.instead
	p.mu.Unlock()
	if instead != nil {
		instead(w, r)
		return
	}
	p.answer(w, r)
}

func (p *provider) answer(w http.ResponseWriter, r *http.Request) {
	var body any
	switch r.URL.Path {
	case discoveryPath:
		body = map[string]any{"issuer": p.url, "jwks_uri": p.url + jwksPath, "authorization_endpoint": p.url + "/auth"}
	case jwksPath:
		p.mu.Lock()
		body = jose.JSONWebKeySet{Keys: slices.Clone(p.keys)}
		p.mu.Unlock()
	default:
		http.NotFound(w, r)
		return
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(text)
}

// direct reaches a provider without a network, so that time can be virtual.
type direct struct{ *provider }

func (d direct) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	defer func() {
		if p := recover(); p != nil { // as a real server does
			resp, err = nil, io.ErrUnexpectedEOF
		}
	}()
	recorder := httptest.NewRecorder()
	d.ServeHTTP(recorder, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return recorder.Result(), nil
}

// away is an issuer that hangs up.
func away(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// down is one behind a proxy that says so.
func down(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
}

// hang does not answer.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// served is a provider on a real server.
func served(t testing.TB, keys ...jose.JSONWebKey) (*provider, *httptest.Server) {
	t.Helper()
	return servedBy(t, httptest.NewUnstartedServer(nil), keys...)
}

func servedBy(t testing.TB, server *httptest.Server, keys ...jose.JSONWebKey) (*provider, *httptest.Server) {
	t.Helper()
	p := newProvider("", keys...)
	server.Config.Handler = p
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	p.url = server.URL
	return p, server
}

func caOf(server *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// trusting is the configuration of an issuer on a server.
func trusting(server *httptest.Server) authn.Issuer {
	return authn.Issuer{Config: &apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: server.URL, CertificateAuthority: caOf(server)}}}
}

// at is the configuration of an issuer that is reached without a network.
func at(url string) authn.Issuer {
	return authn.Issuer{Config: &apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: url}}}
}

func specOf(all ...authn.Issuer) *authn.Spec { return &authn.Spec{Issuers: all} }

func every(spec *authn.Spec, interval, age time.Duration) *authn.Spec {
	spec.Configuration = &authn.Configuration{}
	spec.Configuration.JWT = v1alpha1.JWTConfiguration{
		KeyRefreshInterval: &metav1.Duration{Duration: interval}, MaxKeyAge: &metav1.Duration{Duration: age},
	}
	return spec
}

// start is Issuers and their log. They are closed in the end, unless they were.
func start(t testing.TB) (*Issuers, *logbuffer.Buffer) {
	t.Helper()
	l := &logbuffer.Buffer{}
	i := New(Options{Log: slog.New(slog.NewTextHandler(l, nil)), Version: "v1.2.3"})
	t.Cleanup(i.Close)
	return i, l
}

// startAt is start with providers that are reached without a network.
func startAt(t testing.TB, p *provider) (*Issuers, *logbuffer.Buffer) {
	t.Helper()
	i, l := start(t)
	i.connect = func(*x509.CertPool) *http.Client { return &http.Client{Transport: direct{p}} }
	return i, l
}

// started is a provider with keys of these ids that is reached without a network, and the Issuers that have fetched them.
func started(t testing.TB, ids ...string) (*provider, *Issuers, jwt.Keys) {
	t.Helper()
	p := newProvider(example)
	for _, id := range ids {
		p.keys = append(p.keys, signing(id))
	}
	i, _ := startAt(t, p)
	keys, _ := provide(t, i, specOf(at(example)))
	return p, i, keys
}

// provide has the keys of the only issuer of a Spec, once they were asked for.
func provide(t testing.TB, i *Issuers, spec *authn.Spec) (jwt.Keys, *View) {
	t.Helper()
	view := i.Provide(spec)
	if err := view.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return spec.Issuers[0].Keys, view
}

// ids are those of keys that are found.
func ids(t testing.TB, keys jwt.Keys, id string) []string {
	t.Helper()
	all, err := keys.Find(t.Context(), id)
	if err != nil {
		t.Fatalf("key %q: %v", id, err)
	}
	var list []string
	for _, key := range all {
		list = append(list, key.ID)
	}
	return list
}

// finds reports whether a key is found; an error is not an answer.
func finds(t testing.TB, keys jwt.Keys, id string) bool {
	t.Helper()
	return len(ids(t, keys, id)) > 0
}

// cannotTell wants that nothing can be told of a key.
func cannotTell(t testing.TB, keys jwt.Keys, id string, want error) {
	t.Helper()
	if all, err := keys.Find(t.Context(), id); !isError(err, want) || all != nil {
		t.Errorf("key %q: %d keys and error %v, want none and %v", id, len(all), err, want)
	}
}

func isError(err, want error) bool { return err != nil && strings.Contains(err.Error(), want.Error()) }

// value is that of a metric.
func value(t testing.TB, i *Issuers, name string, labels ...string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(i)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, pair := range m.GetLabel() {
				values = append(values, pair.GetValue())
			}
			if slices.Equal(values, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func lintMetrics(t testing.TB, i *Issuers) {
	t.Helper()
	problems, err := testutil.CollectAndLint(i)
	if err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}

// material is made once, because RSA keys take time.
var material = sync.OnceValue(func() (m struct {
	rsa, weak *rsa.PrivateKey
	ec        map[string]*ecdsa.PrivateKey
},
) {
	var err error
	if m.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		panic(err)
	}
	if m.weak, err = rsa.GenerateKey(rand.Reader, 1024); err != nil {
		panic(err)
	}
	m.ec = map[string]*ecdsa.PrivateKey{}
	for name, curve := range map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()} {
		if m.ec[name], err = ecdsa.GenerateKey(curve, rand.Reader); err != nil {
			panic(err)
		}
	}
	return m
})

// signing is a key for signatures.
func signing(id string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: material().rsa.Public(), KeyID: id, Algorithm: "RS256", Use: "sig"}
}

func keyOf(id, alg string, public crypto.PublicKey) jose.JSONWebKey {
	return jose.JSONWebKey{Key: public, KeyID: id, Algorithm: alg}
}

func setOf(t testing.TB, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// otherCA is a CA that nobody has a certificate of.
func otherCA(t testing.TB) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	key := material().ec["P-256"]
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
