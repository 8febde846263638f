package session

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
)

const testClient = "kubernetes"

// testIssuer is an OpenID Connect issuer that checks what a client must do, and
// that can be told to lie.
type testIssuer struct {
	*httptest.Server

	key *ecdsa.PrivateKey

	mu sync.Mutex
	// codes, refreshes and devices are what was given out.
	codes     map[string]grant
	refreshes map[string]grant
	devices   map[string]string // the code, and how it stands: pending, approved or an error
	counts    map[string]int
	// authorized is the last query of the authorization endpoint.
	authorized url.Values
	// secrets are all that nobody may read anywhere.
	secrets []string

	// metadata changes the discovery document, claims those of ID tokens, callback
	// what the browser comes back with.
	metadata, claims func(map[string]any)
	callback         func(url.Values)
	// sign makes the ID token otherwise.
	sign func(claims map[string]any) string
	// token answers the token endpoint otherwise, if it returns true.
	token func(w http.ResponseWriter, form url.Values) bool
	// life is that of an ID token.
	life time.Duration
	now  func() time.Time
}

// grant is what a code or a refresh token stands for.
type grant struct {
	challenge, redirect, nonce, client string
}

func newIssuer(t *testing.T) *testIssuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &testIssuer{
		key: key, codes: map[string]grant{}, refreshes: map[string]grant{}, devices: map[string]string{}, counts: map[string]int{},
		life: time.Hour, now: time.Now,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.serveMetadata)
	mux.HandleFunc("GET /keys", i.serveKeys)
	mux.HandleFunc("GET /authorize", i.serveAuthorize)
	mux.HandleFunc("POST /token", i.serveToken)
	mux.HandleFunc("POST /device", i.serveDevice)
	i.Server = newTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

// newTLSServer is a server that keeps to itself what clients break off.
func newTLSServer(handler http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	return server
}

func (i *testIssuer) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(i.Certificate())
	return pool
}

func (i *testIssuer) count(what string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.counts[what]
}

// secret makes a text that nobody may read anywhere. The lock is held.
func (i *testIssuer) secret(prefix string) string {
	text := prefix + rand.Text()
	i.secrets = append(i.secrets, text)
	return text
}

func (i *testIssuer) answer(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeJSON(w, content)
}

// writeJSON writes a test's own values, which have a form in JSON.
func writeJSON(w io.Writer, content any) {
	if err := json.NewEncoder(w).Encode(content); err != nil {
		panic(err)
	}
}

func (i *testIssuer) serveMetadata(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counts["metadata"]++
	metadata := map[string]any{
		"issuer":                                i.URL,
		"authorization_endpoint":                i.URL + "/authorize",
		"token_endpoint":                        i.URL + "/token",
		"device_authorization_endpoint":         i.URL + "/device",
		"jwks_uri":                              i.URL + "/keys",
		"id_token_signing_alg_values_supported": []string{"ES256"},
		"scopes_supported":                      []string{"openid", "email", "offline_access"},
	}
	if i.metadata != nil {
		i.metadata(metadata)
	}
	i.answer(w, http.StatusOK, metadata)
}

func (i *testIssuer) serveKeys(w http.ResponseWriter, _ *http.Request) {
	i.answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
}

// serveAuthorize logs jane in without asking.
func (i *testIssuer) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counts["authorize"]++
	query := r.URL.Query()
	i.authorized = query
	if query.Get("response_type") != "code" || query.Get("code_challenge_method") != "S256" || query.Get("code_challenge") == "" ||
		query.Get("state") == "" || query.Get("nonce") == "" || query.Get("client_id") != testClient {
		http.Error(w, "not a proper request", http.StatusBadRequest)
		return
	}
	code := i.secret("code-")
	i.codes[code] = grant{query.Get("code_challenge"), query.Get("redirect_uri"), query.Get("nonce"), query.Get("client_id")}
	back := url.Values{"code": {code}, "state": {query.Get("state")}}
	if i.callback != nil {
		i.callback(back)
	}
	http.Redirect(w, r, query.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (i *testIssuer) serveToken(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = r.ParseForm()
	refuse := func(code string) {
		i.answer(w, http.StatusBadRequest, map[string]string{"error": code, "error_description": "said by the issuer"})
	}
	form := r.PostForm
	i.counts["token"]++
	i.counts["token "+form.Get("grant_type")]++
	for _, name := range []string{"code_verifier", "client_secret"} {
		if text := form.Get(name); text != "" {
			i.secrets = append(i.secrets, text)
		}
	}
	if i.token != nil && i.token(w, form) {
		return
	}
	var g grant
	switch form.Get("grant_type") {
	case "authorization_code":
		known, ok := i.codes[form.Get("code")]
		delete(i.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		if !ok || base64.RawURLEncoding.EncodeToString(sum[:]) != known.challenge || form.Get("redirect_uri") != known.redirect || form.Get("client_id") != known.client {
			refuse("invalid_grant")
			return
		}
		g = known
	case "refresh_token":
		known, ok := i.refreshes[form.Get("refresh_token")]
		delete(i.refreshes, form.Get("refresh_token"))
		if !ok {
			refuse("invalid_grant")
			return
		}
		g = known
	case "urn:ietf:params:oauth:grant-type:device_code":
		switch state := i.devices[form.Get("device_code")]; state {
		case "approved":
			g = grant{client: testClient}
		case "pending":
			i.devices[form.Get("device_code")] = "approved"
			refuse("authorization_pending")
			return
		default:
			refuse(state)
			return
		}
	default:
		refuse("unsupported_grant_type")
		return
	}
	refresh := i.secret("refresh-")
	i.refreshes[refresh] = grant{client: g.client}
	i.answer(w, http.StatusOK, map[string]any{
		"access_token": i.secret("access-"), "token_type": "Bearer", "expires_in": 60, "refresh_token": refresh, "id_token": i.idToken(g),
	})
}

// idToken makes an ID token. The lock is held.
func (i *testIssuer) idToken(g grant) string {
	now := i.now()
	claims := map[string]any{
		"iss": i.URL, "sub": "4711", "aud": g.client, "iat": now.Unix(), "exp": now.Add(i.life).Unix(),
		"preferred_username": "jane", "email": "jane@example.org", "jti": rand.Text(),
	}
	if g.nonce != "" {
		claims["nonce"] = g.nonce
	}
	if i.claims != nil {
		i.claims(claims)
	}
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	sign := i.sign
	if sign == nil {
		sign = func(claims map[string]any) string { return signed(jose.ES256, i.key, claims) }
	}
	token := sign(claims)
	i.secrets = append(i.secrets, token)
	return token
}

// signed is a JWT.
func signed(algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "one"))
	if err != nil {
		panic(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		panic(err)
	}
	return token
}

func (i *testIssuer) serveDevice(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counts["device"]++
	code := i.secret("device-")
	i.devices[code] = "pending"
	answer := map[string]any{
		"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": i.URL + "/device", "expires_in": 600, "interval": 1,
	}
	if i.callback != nil {
		given := url.Values{"device_code": {code}}
		i.callback(given)
		for name := range given {
			answer[name] = given.Get(name)
		}
		i.devices[code] = given.Get("state")
	}
	i.answer(w, http.StatusOK, answer)
}

// visitor is a person with a browser.
type visitor struct {
	client *http.Client
	page   chan visited
}

type visited struct {
	status int
	header http.Header
	text   string
}

func (i *testIssuer) visitor() *visitor {
	return &visitor{i.Client(), make(chan visited, 1)}
}

// open opens a page and follows where it leads.
func (v *visitor) open(target string) error {
	resp, err := v.client.Get(target)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	v.page <- visited{resp.StatusCode, resp.Header, string(text)}
	return err
}

// login is a way to log in at the issuer.
func (i *testIssuer) login(t *testing.T, open func(string) error, edit func(*OIDC)) (*OIDC, *logbuffer.Buffer) {
	t.Helper()
	said := &logbuffer.Buffer{}
	o := &OIDC{
		Issuer: i.URL, Roots: i.roots(), ClientID: testClient, Listen: "127.0.0.1:0", Open: open, Timeout: 20 * time.Second,
		Remarks: said, Now: time.Now,
	}
	if edit != nil {
		edit(o)
	}
	t.Cleanup(func() { i.leaks(t, said.String()) })
	return o, said
}

// leaks fails if a text has a secret.
func (i *testIssuer) leaks(t *testing.T, text string) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, secret := range i.secrets {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("a secret %.12q… was said in %q", secret, text)
		}
	}
}
