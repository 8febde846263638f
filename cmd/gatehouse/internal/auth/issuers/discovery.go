package issuers

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// discovery is what is needed of a discovery document (OpenID Connect Discovery
// 1.0, section 3).
type discovery struct {
	Issuer  string `json:"issuer"`
	JWKSURI string `json:"jwks_uri"`
}

// wellKnown returns where the discovery document of an issuer is (section 4).
func wellKnown(issuer string) string {
	return strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
}

// parseDiscovery returns where the keys of an issuer are, by its discovery document.
//
// The document must be about that issuer, to the letter (section 4.3): a host with
// several, as with one for each tenant, must not answer for one with the keys of
// another.
func parseDiscovery(document []byte, issuer string) (*url.URL, error) {
	var d discovery
	if err := decode(document, &d); err != nil {
		return nil, fmt.Errorf("is not a discovery document: %w", err)
	}
	if d.Issuer != issuer {
		return nil, fmt.Errorf("issuer %s of the discovery document: must be issuer.url, %s", quoted(d.Issuer), quoted(issuer))
	}
	u, err := parseHTTPS(d.JWKSURI)
	if err != nil {
		return nil, fmt.Errorf("jwks_uri of the discovery document: %w", err)
	}
	return u, nil
}

// decode decodes an object of JSON in which no name occurs twice. Its errors
// quote nothing.
func decode(text []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(text, into, kjson.DisallowDuplicateFields)
	switch {
	case err != nil:
		return errors.New("not the expected JSON")
	case len(strict) > 0:
		return errors.New("a name occurs twice in it")
	}
	return nil
}

// parseHTTPS returns a URL that may be called, or an error.
func parseHTTPS(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
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
