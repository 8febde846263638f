package e2e

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/slapd"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// site is a Gatehouse of its own that people log in at, for tests that change its configuration or its peers.
type site struct {
	*world
	name string
	// documents is the directory that it reads, and private one with keys and passwords, which are nowhere else.
	documents, private string
	server             *gatehouse.Server
	// certified has the certificate that the API server asks with, and uncertified has none.
	certified, uncertified *http.Client
}

// newSite starts a Gatehouse with these documents, by the names of their files. It ends with the test.
func newSite(t *testing.T, name string, documents map[string]any) *site {
	t.Helper()
	s := prepareSite(t, name)
	for file, document := range documents {
		s.writeDocument(t, file, document)
	}
	s.start(t)
	return s
}

// prepareSite is newSite without documents and before the start.
func prepareSite(t *testing.T, name string) *site {
	t.Helper()
	w := sharedWorld(t)
	s := &site{world: w, name: name, documents: w.path(name), private: t.TempDir()}
	must(t, os.Mkdir(s.documents, 0o700))
	certificate, err := tls.LoadX509KeyPair(w.path("client.crt"), w.path("client.key"))
	must(t, err)
	s.certified, s.uncertified = w.client(t, certificate), w.client(t)
	return s
}

// callers counts the addresses that were used to call from.
var callers atomic.Uint32

// client calls from an address of its own, because those who call are told apart by that.
func (w *world) client(t *testing.T, certificates ...tls.Certificate) *http.Client {
	t.Helper()
	const first, most = 20, 220
	server, err := netip.ParseAddr(cluster.ListenAddress())
	must(t, err)
	address := server.As4()
	address[3] = byte(first + callers.Add(1)%most)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.authority.CertPEM())
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: address[:]}}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true,
		DialContext:       dialer.DialContext,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: deadline}
}

// fromNewAddress is the site as it is seen from another address.
func (s *site) fromNewAddress(t *testing.T) *site {
	t.Helper()
	other := *s
	other.uncertified = s.client(t)
	return &other
}

func (s *site) start(t *testing.T) {
	t.Helper()
	s.server = s.serveMore(t, s.name)
}

// serveMore starts one more server with the documents.
func (s *site) serveMore(t *testing.T, name string) *gatehouse.Server {
	t.Helper()
	server, err := s.serve(t.Context(), name, s.documents)
	must(t, err)
	showIfFailed(t, name, server.Log())
	t.Cleanup(func() {
		// What it counted is looked through for secrets, and nothing else of it is needed.
		_, metrics, err := server.Get(context.WithoutCancel(t.Context()), "/metrics")
		if err == nil {
			err = os.WriteFile(s.path(name+".metrics"), []byte(metrics), 0o600)
		}
		if err != nil {
			t.Log(err)
		}
		server.Kill()
	})
	return server
}

// writeDocument writes a document for the server to learn of, whole or not at all.
func (s *site) writeDocument(t *testing.T, name string, document any) {
	t.Helper()
	text, err := yaml.Marshal(document)
	must(t, err)
	file := filepath.Join(s.documents, name)
	must(t, os.WriteFile(file+".partial", text, 0o600))
	must(t, os.Rename(file+".partial", file))
}

// writeSecret writes what is secret to a file, and returns the file.
func (s *site) writeSecret(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(s.private, name)
	must(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	return file
}

// loginKey makes a key for login tokens.
func (s *site) loginKey(t *testing.T, name string) v1alpha1.LoginKey {
	t.Helper()
	file := filepath.Join(s.private, name+".key")
	_, err := gatehouse.Run(t.Context(), "token", "key", "--out", file)
	must(t, err)
	key, err := os.ReadFile(file)
	must(t, err)
	s.secret(strings.TrimSpace(string(key)))
	return v1alpha1.LoginKey{Name: name, File: file}
}

// issuersDocument is the document with JWT issuers.
func issuersDocument(issuers ...apiserverv1.JWTAuthenticator) any {
	return &apiserverv1.AuthenticationConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiserver.config.k8s.io/v1", Kind: "AuthenticationConfiguration"},
		JWT:      issuers,
	}
}

// gatehouseDocument is the document with everything else.
func gatehouseDocument(c v1alpha1.AuthenticationConfiguration) any {
	c.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AuthenticationConfiguration"}
	return c
}

// issuerOf is a dex as an issuer. Its people have names and groups with a prefix, and those of one domain are kept out.
func issuerOf(s *dexServer, prefix string) apiserverv1.JWTAuthenticator {
	return apiserverv1.JWTAuthenticator{
		Issuer: apiserverv1.Issuer{URL: s.Issuer(), CertificateAuthority: string(s.CertPEM()), Audiences: []string{dexClient}},
		ClaimValidationRules: []apiserverv1.ClaimValidationRule{
			{Expression: "claims.email_verified == true", Message: "the address must have been verified"},
		},
		ClaimMappings: apiserverv1.ClaimMappings{
			Username: apiserverv1.PrefixedClaimOrExpression{Expression: fmt.Sprintf("%q + claims.email", prefix)},
			Groups:   apiserverv1.PrefixedClaimOrExpression{Claim: "groups", Prefix: &prefix},
			UID:      apiserverv1.ClaimOrExpression{Claim: "sub"},
			Extra:    []apiserverv1.ExtraMapping{{Key: "example.org/name", ValueExpression: "claims.name"}},
		},
		UserValidationRules: []apiserverv1.UserValidationRule{
			{Expression: "!user.username.endsWith('@blocked.example.org')", Message: "this domain is blocked"},
		},
	}
}

// person is somebody whom a dex knows.
func (w *world) person(name string, groups ...string) dexUser {
	return dexUser{
		Email: name + "@example.org", Password: w.secret(rand.Text()), ID: "id-of-" + name, Name: "The " + name, Groups: groups,
	}
}

// idToken logs somebody in to a client at a dex, and returns the ID token.
func (w *world) idToken(t *testing.T, s *dexServer, client string, who dexUser) string {
	t.Helper()
	tokens, err := s.Password(t.Context(), client, who.Email, who.Password)
	must(t, err)
	w.secret(tokens.Refresh)
	return w.jwt(tokens.ID)
}

// jwt notes the parts of a token that nobody may write down, and returns it.
func (w *world) jwt(token string) string {
	for _, part := range strings.Split(token, ".")[1:] {
		w.secret(part)
	}
	return token
}

// trustingLDAP is a directory of a slapd: people below ou=people, groups below ou=groups.
func trustingLDAP(s *slapd.Server, name string) v1alpha1.Directory {
	return v1alpha1.Directory{
		Name: name, Servers: []string{s.TLS}, CertificateAuthority: s.CertificateAuthority,
		UserSearch: v1alpha1.UserSearch{
			BaseDN: "ou=people," + slapd.Suffix, Filter: "(&(objectClass=inetOrgPerson)(uid={}))", UsernameAttribute: "uid",
			UIDAttribute: "entryUUID", Extra: []v1alpha1.ExtraAttribute{{Key: "example.org/title", Attribute: "title"}},
		},
		GroupSearch: &v1alpha1.GroupSearch{
			BaseDN: "ou=groups," + slapd.Suffix, Filter: "(&(objectClass=groupOfNames)(member={}))", Nesting: v1alpha1.NestingRecursive,
		},
		UsernamePrefix: name + ":", GroupsPrefix: name + ":",
	}
}

// post asks the server, and reads its answer into a value.
func (s *site) post(t *testing.T, client *http.Client, path string, header http.Header, body, answer any) int {
	t.Helper()
	code, err := s.tryPost(t, client, path, header, body, answer)
	must(t, err)
	return code
}

func (s *site) tryPost(t *testing.T, client *http.Client, path string, header http.Header, body, answer any) (int, error) {
	t.Helper()
	return postJSON(t.Context(), client, "https://"+s.server.Reviews.String()+path, header, body, answer)
}

// review asks about a token as the API server does.
func (s *site) review(t *testing.T, token string) authenticationv1.TokenReviewStatus {
	t.Helper()
	status, err := s.tryReview(t, token)
	must(t, err)
	return status
}

func (s *site) tryReview(t *testing.T, token string) (authenticationv1.TokenReviewStatus, error) {
	t.Helper()
	review := authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token},
	}
	var answer authenticationv1.TokenReview
	code, err := s.tryPost(t, s.certified, "/authenticate", nil, review, &answer)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("a review is answered with %d", code)
	}
	return answer.Status, err
}

// explanation is what the server says about a token to who holds it.
type explanation struct {
	Outcome, Reason, Message, Backend, Source, TokenID string

	User                *authenticationv1.UserInfo
	IssuedAt, ExpiresAt *time.Time
}

// explain asks about a token as 'gatehouse whoami' does.
func (s *site) explain(t *testing.T, token string) explanation {
	t.Helper()
	var answer explanation
	code := s.post(t, s.uncertified, "/whoami", http.Header{"Authorization": {"Bearer " + token}}, map[string]any{}, &answer)
	if code != http.StatusOK {
		t.Fatalf("/whoami answers %d: %+v", code, answer)
	}
	return answer
}

// session is what the server says to who logs in: a token, or why there is none.
type session struct {
	Token                  string
	ExpiresAt, SessionEnds time.Time
	User                   authenticationv1.UserInfo

	Reason, Message   string
	RetryAfterSeconds int

	code int
}

// login logs in with a password, or a token that is to be renewed.
func (s *site) login(t *testing.T, request map[string]string) session {
	t.Helper()
	answer, err := s.tryLogin(t, request)
	must(t, err)
	return answer
}

func (s *site) tryLogin(t *testing.T, request map[string]string) (session, error) {
	t.Helper()
	var answer session
	code, err := s.tryPost(t, s.uncertified, "/login", nil, request, &answer)
	answer.code = code
	if answer.Token != "" {
		s.jwt("." + strings.TrimPrefix(answer.Token, "gatehouse-login_"))
	}
	return answer, err
}

// apiServer starts an API server of the world's cluster that asks the site about tokens, with the flags that 'gatehouse
// manifests' prints, but for the time for which answers are kept.
func (s *site) apiServer(t *testing.T) *cluster.Cluster {
	t.Helper()
	file := s.path(s.name + "-webhook.yaml")
	text, err := gatehouse.Run(t.Context(),
		"manifests", "--authentication", "--url", "https://"+s.server.Reviews.String(), "--kubeconfig-path", file,
		"--ca-file", s.path("ca.crt"), "--client-cert", s.path("client.crt"), "--client-key", s.path("client.key"))
	must(t, err)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	const ttl = "--authentication-token-webhook-cache-ttl="
	flags := commentedFlags(text)
	i := slices.IndexFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, ttl) })
	if i < 0 {
		t.Fatalf("no %s in %q", ttl, flags)
	}
	flags[i] = ttl + cacheTTL.String()
	return cluster.New(t, cluster.Options{Join: s.Cluster, Dir: s.path(s.name + "-apiserver"), APIServerFlags: append(flags,
		"--audit-log-path="+s.path(s.name+"-audit.log"), "--audit-policy-file="+s.path("audit-policy.yaml"))})
}
