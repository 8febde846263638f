package issuers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

const (
	// maxBytes bounds an answer of an issuer. A hundred keys with their
	// certificates are some 300 KiB.
	maxBytes = 1 << 20
	// maxHeaderBytes bounds the header of an answer.
	maxHeaderBytes = 64 << 10
	// stepTime bounds connecting, the TLS handshake and the wait for a header,
	// each; fetchTime bounds all of them together.
	stepTime = 5 * time.Second
	// maxRedirects bounds the redirects of one call.
	maxRedirects = 3
)

// result is what became of a fetch, for metrics and so that a log tells of each
// once.
type result string

const (
	fine result = "ok"
	// unreachable is an issuer without an answer, or with that of an error.
	unreachable result = "unreachable"
	// invalid is an issuer with an answer that cannot be right.
	invalid result = "invalid"
)

// fetchError is why a fetch failed.
type fetchError struct {
	result result
	cause  error
}

// Error returns a bounded text, because the issuer may have written parts of it.
func (e *fetchError) Error() string { return truncate.Bytes(e.cause.Error(), 1000) }

func (e *fetchError) Unwrap() error { return e.cause }

func resultOf(err error) result {
	if err == nil {
		return fine
	}
	if e, ok := errors.AsType[*fetchError](err); ok {
		return e.result
	}
	return unreachable
}

func invalidf(format string, args ...any) error {
	return &fetchError{invalid, fmt.Errorf(format, args...)}
}

func unreachablef(format string, args ...any) error {
	return &fetchError{unreachable, fmt.Errorf(format, args...)}
}

// Fetch returns the keys of an issuer, asked for once, or those of its KeysJSON. The
// error is for the operator and names what was asked and what is wrong with the
// answer. It takes ten seconds at most.
func Fetch(ctx context.Context, configured authn.Issuer) ([]jwt.Key, error) {
	if configured.KeysJSON != nil {
		set, err := jwt.ParseKeySet(configured.KeysJSON)
		if err != nil {
			return nil, err
		}
		return set.All(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	set, err := newFetcher(originOf(&configured), agent(""), connect).fetch(ctx)
	if err != nil {
		return nil, fmt.Errorf("keys of issuer %s: %w", quoted(configured.Config.Issuer.URL), err)
	}
	return set.All(), nil
}

// transport makes calls.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// connector makes a transport that trusts these CAs, or those of the system if
// there are none.
type connector func(*x509.CertPool) transport

func connect(roots *x509.CertPool) transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: stepTime}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    stepTime,
		ResponseHeaderTimeout:  stepTime,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // the limit is on what is sent
	}
}

// fetcher gets the keys of one issuer, as a caller that trusts nothing but the
// certificate.
type fetcher struct {
	origin
	agent  string
	client http.Client
	// err means that the issuer cannot be asked.
	err error
}

func newFetcher(from origin, agent string, connect connector) *fetcher {
	f := &fetcher{origin: from, agent: agent}
	var roots *x509.CertPool
	if from.certificateAuthority != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(from.certificateAuthority)) {
			f.err = invalidf("certificateAuthority contains no PEM certificate")
		}
	}
	f.client = http.Client{Transport: connect(roots), CheckRedirect: checkRedirect}
	return f
}

// checkRedirect lets a host send a caller about on itself, because it might as
// well have answered at once, and the API server follows it too. To another host,
// or port, nobody is sent: what answers there has not shown the issuer's
// certificate. An issuer that has its keys elsewhere says so by jwks_uri.
func checkRedirect(to *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return invalidf("more than %d redirects", maxRedirects)
	case to.URL.Scheme != "https" || to.URL.User != nil || !sameHost(to.URL, via[0].URL):
		return invalidf("redirect to %s: must be https and the same host and port (hint: set issuer.url, or issuer.discoveryURL, to the target)", address(to.URL))
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
// keys, and then for the keys. The error is a fetchError.
func (f *fetcher) fetch(ctx context.Context) (*jwt.KeySet, error) {
	if f.err != nil {
		return nil, f.err
	}
	// Nothing is left open until the next time, in minutes.
	defer f.client.CloseIdleConnections()
	from, err := f.discovery()
	if err != nil {
		return nil, err
	}
	document, err := f.get(ctx, from)
	if err != nil {
		return nil, err
	}
	at, err := parseDiscovery(document, f.url)
	if err != nil {
		return nil, invalidf("GET %s: %w", address(from), err)
	}
	jwks, err := f.get(ctx, at)
	if err != nil {
		return nil, err
	}
	set, err := jwt.ParseKeySet(jwks)
	if err != nil {
		return nil, invalidf("GET %s: %w", address(at), err)
	}
	return set, nil
}

// discovery returns where the discovery document is.
func (f *fetcher) discovery() (*url.URL, error) {
	if f.discoveryURL != "" {
		u, err := parseHTTPS(f.discoveryURL)
		if err != nil {
			return nil, invalidf("issuer.discoveryURL: %w", err)
		}
		return u, nil
	}
	// By itself first, because what is added to a URL without a host would become
	// one.
	if _, err := parseHTTPS(f.url); err != nil {
		return nil, invalidf("issuer.url: %w", err)
	}
	u, err := parseHTTPS(wellKnown(f.url))
	if err != nil {
		return nil, invalidf("issuer.url: %w", err)
	}
	return u, nil
}

// get returns the body of an answer.
func (f *fetcher) get(ctx context.Context, from *url.URL) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), http.NoBody)
	if err != nil {
		return nil, invalidf("GET %s: %w", address(from), err)
	}
	req.Header.Set("User-Agent", f.agent)
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, failure(ctx, from, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, unreachablef("GET %s: status %d: must be 200", address(from), resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	if err != nil {
		return nil, failure(ctx, from, err)
	}
	if len(body) > maxBytes {
		return nil, invalidf("GET %s: response of more than %d bytes", address(from), maxBytes)
	}
	return body, nil
}

// failure returns the error for a call without a whole answer.
func failure(ctx context.Context, from *url.URL, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // it names an address, with its query
	}
	r := unreachable
	if e, ok := errors.AsType[*fetchError](err); ok {
		r = e.result
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return unreachablef("GET %s: no complete response in time: %w", address(from), ctx.Err())
	}
	hint := ""
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		hint = " (hint: issuer.certificateAuthority must have the CA of this host's certificate, and the certificate the host's name)"
	}
	return &fetchError{r, fmt.Errorf("GET %s: %w%s", address(from), err, hint)}
}
