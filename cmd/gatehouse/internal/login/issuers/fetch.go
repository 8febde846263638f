package issuers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/httpsclient"
	"github.com/gatehouse-dev/gatehouse/internal/pemcert"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

const (
	// fetchTime bounds one fetch with all its calls, and stepTime one call. Together with
	// the longest pause after a failure it is less than a minute, which is how late it may
	// be noticed that an issuer is back.
	fetchTime = 10 * time.Second
	stepTime  = 5 * time.Second
	// maxRedirects bounds the redirects of one call.
	maxRedirects = 3
)

// Fetch returns the keys of an issuer, asked for once. The error is for the operator and
// names what was asked and what is wrong with the answer. It takes ten seconds at most.
func Fetch(ctx context.Context, configured authn.Issuer) (*jwt.KeySet, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	f := &fetcher{origin: originOf(&configured), agent: agent(""), connect: connect}
	set, err := f.fetch(ctx)
	if err != nil {
		return nil, fmt.Errorf("keys of issuer %s: %w", quoted(configured.Config.Issuer.URL), err)
	}
	return set, nil
}

// connect returns a client that trusts these CAs, or those of the system if there are
// none.
func connect(roots *x509.CertPool) *http.Client {
	return httpsclient.New(httpsclient.Options{Roots: roots, Timeout: stepTime, CheckRedirect: checkRedirect})
}

// fetcher gets the keys of one issuer, as a caller that trusts nothing but the
// certificate.
type fetcher struct {
	origin
	agent   string
	connect func(*x509.CertPool) *http.Client
}

// checkRedirect lets a host send a caller about on itself, because it might as
// well have answered at once, and the API server follows it too. To another host,
// or port, nobody is sent: what answers there has not shown the issuer's
// certificate. An issuer that has its keys elsewhere says so by jwks_uri.
func checkRedirect(to *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case to.URL.Scheme != "https" || to.URL.User != nil || !sameHost(to.URL, via[0].URL):
		return fmt.Errorf("redirect to %s: must be https and the same host and port (hint: set issuer.url, or issuer.discoveryURL, to the target)", address(to.URL))
	}
	return nil
}

func sameHost(a, b *url.URL) bool {
	return strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// port returns that of an https URL.
func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "443"
}

// fetch asks for the discovery document each time, so that an issuer may move its
// keys, and then for the keys.
func (f *fetcher) fetch(ctx context.Context) (*jwt.KeySet, error) {
	var roots *x509.CertPool
	if f.certificateAuthority != "" {
		var err error
		if roots, err = pemcert.Pool([]byte(f.certificateAuthority)); err != nil {
			return nil, fmt.Errorf("certificateAuthority: %w", err)
		}
	}
	client := f.connect(roots)
	// Nothing is left open until the next time, in minutes.
	defer client.CloseIdleConnections()
	from, err := f.discovery()
	if err != nil {
		return nil, err
	}
	document, err := f.get(ctx, client, from)
	if err != nil {
		return nil, err
	}
	at, err := parseDiscovery(document, f.url)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", address(from), err)
	}
	jwks, err := f.get(ctx, client, at)
	if err != nil {
		return nil, err
	}
	set, err := jwt.ParseKeySet(jwks)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", address(at), err)
	}
	return set, nil
}

// discovery returns where the discovery document is (OpenID Connect Discovery 1.0,
// section 4).
func (f *fetcher) discovery() (*url.URL, error) {
	if f.discoveryURL != "" {
		u, err := parseHTTPS(f.discoveryURL)
		if err != nil {
			return nil, fmt.Errorf("issuer.discoveryURL: %w", err)
		}
		return u, nil
	}
	// By itself first, because what is added to a URL without a host would become one.
	if _, err := parseHTTPS(f.url); err != nil {
		return nil, fmt.Errorf("issuer.url: %w", err)
	}
	return parseHTTPS(strings.TrimSuffix(f.url, "/") + "/.well-known/openid-configuration")
}

// get returns the body of an answer.
func (f *fetcher) get(ctx context.Context, client *http.Client, from *url.URL) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("GET %s: the URL cannot be called", address(from))
	}
	req.Header.Set("User-Agent", f.agent)
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, failure(from, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d: must be 200", address(from), resp.StatusCode)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, failure(from, err)
	}
	return body, nil
}

// failure returns the error for a call without a whole answer.
func failure(from *url.URL, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // it names an address, with its query
	}
	hint := ""
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		hint = " (hint: issuer.certificateAuthority must have the CA of this host's certificate, and the certificate the host's name)"
	}
	return fmt.Errorf("GET %s: %w%s", address(from), err, hint)
}

// parseDiscovery returns where the keys of an issuer are, by its discovery document.
//
// The document must be about that issuer, to the letter (section 4.3): a host with
// several, as with one for each tenant, must not answer for one with the keys of
// another.
func parseDiscovery(document []byte, issuer string) (*url.URL, error) {
	var d struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	switch repeated, err := kjson.UnmarshalStrict(document, &d, kjson.DisallowDuplicateFields); {
	case err != nil:
		return nil, errors.New("is not a discovery document: not the expected JSON")
	case len(repeated) > 0:
		return nil, errors.New("is not a discovery document: a name occurs twice in it")
	case d.Issuer != issuer:
		return nil, fmt.Errorf("issuer %s of the discovery document: must be issuer.url, %s", quoted(d.Issuer), quoted(issuer))
	}
	u, err := parseHTTPS(d.JWKSURI)
	if err != nil {
		return nil, fmt.Errorf("jwks_uri of the discovery document: %w", err)
	}
	return u, nil
}

// parseHTTPS returns a URL that may be called, or an error.
func parseHTTPS(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, fmt.Errorf("%s: must be the URL of an https server", quoted(text))
	case u.Scheme != "https":
		return nil, fmt.Errorf("%s: must begin with https://", address(u))
	case u.User != nil:
		return nil, fmt.Errorf("%s: must not have a user name or password", address(u))
	}
	return u, nil
}

// address names a URL in a message, without what may be secret in it.
func address(u *url.URL) string {
	return quoted((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
}

// quoted quotes a text that may be long.
func quoted(text string) string { return fmt.Sprintf("%q", truncate.Bytes(text, 200)) }
