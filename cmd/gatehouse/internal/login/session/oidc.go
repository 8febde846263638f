package session

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// OIDC logs in at an OpenID Connect issuer. Its ID token is the bearer token.
type OIDC struct {
	// Issuer is the URL of the issuer, as it is in its tokens.
	Issuer string
	// Roots verify the issuer's certificate; nil are the system's.
	Roots *x509.CertPool
	// ClientID and ClientSecret are those of a client of the issuer. A public
	// client has no secret.
	ClientID, ClientSecret string
	// Scopes are those to ask for besides openid and offline_access.
	Scopes []string
	// Account is as whom to log in, where a person has several accounts: the name or address by which the issuer knows it. Empty is any.
	Account string
	// Device logs in on another device, by a code, instead of in a browser here.
	Device bool
	// Listen is where the browser comes back to: an address of this machine that
	// ParseListen takes.
	Listen string
	// Open opens a URL in a browser; nil leaves that to the person.
	Open func(url string) error
	// Timeout is how long a person may take.
	Timeout time.Duration
	// Remarks is where people are told what to do.
	Remarks io.Writer
	Now     func() time.Time
}

// oidcMethod is the Method of an Identity at an issuer.
const oidcMethod = "oidc"

// Identity implements Method. How somebody logs in makes no other login.
func (o *OIDC) Identity() Identity {
	scopes := slices.Clone(o.Scopes)
	slices.Sort(scopes)
	return Identity{Method: oidcMethod, Issuer: o.Issuer, ClientID: o.ClientID, Scopes: slices.Compact(scopes), Account: o.Account}
}

// ParseIssuer reads the URL of an issuer.
func ParseIssuer(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URL (hint: https://issuer.example)", text)
	case u.User != nil:
		// Not repeated: it may hold a password.
		return errors.New("a URL with user information is not allowed")
	case u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("%q: must be https://HOST[:PORT][/PATH]", text)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		return fmt.Errorf("%q: a query or fragment is not allowed", text)
	}
	return nil
}

// issuer is what the discovery document says, and how to ask.
type issuer struct {
	config   oauth2.Config
	verifier *oidc.IDTokenVerifier
	client   *http.Client
	// names says that the issuer names itself when the browser comes back
	// (RFC 9207).
	names bool
}

// context makes the libraries ask with the issuer's client.
func (i *issuer) context(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, i.client)
}

// discover reads the issuer's discovery document.
func (o *OIDC) discover(ctx context.Context) (*issuer, error) {
	i := &issuer{client: newClient(o.Roots)}
	provider, err := oidc.NewProvider(i.context(ctx), o.Issuer)
	if mismatch, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return nil, fmt.Errorf("%s: its discovery document has issuer %q (hint: use exactly this URL, or check the address)", o.Issuer, printable(mismatch.Discovered))
	}
	if err != nil {
		return nil, o.failed(ctx, err)
	}
	var metadata struct {
		KeysURL     string   `json:"jwks_uri"`
		Scopes      []string `json:"scopes_supported"`
		AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
		Names       bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := provider.Claims(&metadata); err != nil {
		return nil, fmt.Errorf("%s: the discovery document: %s", o.Issuer, printable(err.Error()))
	}
	endpoint := provider.Endpoint()
	for _, e := range []struct{ name, url string }{
		{"authorization_endpoint", endpoint.AuthURL},
		{"token_endpoint", endpoint.TokenURL},
		{"device_authorization_endpoint", endpoint.DeviceAuthURL},
		{"jwks_uri", metadata.KeysURL},
	} {
		if u, err := url.Parse(e.url); e.url != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
			return nil, fmt.Errorf("%s: the discovery document: %s: %q is not an https URL", o.Issuer, e.name, printable(e.url))
		}
	}
	endpoint.AuthStyle = o.authStyle(metadata.AuthMethods)
	scopes := append([]string{oidc.ScopeOpenID}, o.Scopes...)
	if slices.Contains(metadata.Scopes, oidc.ScopeOfflineAccess) {
		scopes = append(scopes, oidc.ScopeOfflineAccess)
	}
	slices.Sort(scopes)
	i.names = metadata.Names
	i.config = oauth2.Config{ClientID: o.ClientID, ClientSecret: o.ClientSecret, Endpoint: endpoint, Scopes: slices.Compact(scopes)}
	i.verifier = provider.VerifierContext(i.context(ctx), &oidc.Config{ClientID: o.ClientID, Now: o.Now})
	return i, nil
}

// Login implements Method.
func (o *OIDC) Login(ctx context.Context) (*Credential, error) {
	i, err := o.discover(ctx)
	if err != nil {
		return nil, err
	}
	tooLate := fmt.Errorf("nobody logged in at %s within %s", o.Issuer, o.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, tooLate)
	defer cancel()
	if o.Device {
		return o.device(ctx, i)
	}
	return o.browser(ctx, i)
}

// Renew implements Method.
func (o *OIDC) Renew(ctx context.Context, old *Credential) (*Credential, error) {
	if old.RefreshToken == "" {
		return nil, ErrEnded
	}
	i, err := o.discover(ctx)
	if err != nil {
		return nil, err
	}
	token, err := i.config.TokenSource(i.context(ctx), &oauth2.Token{RefreshToken: old.RefreshToken}).Token()
	if err != nil {
		err = o.failed(ctx, err)
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			return nil, fmt.Errorf("%w: %w", ErrEnded, refused)
		}
		return nil, err
	}
	if _, ok := token.Extra("id_token").(string); !ok {
		return nil, fmt.Errorf("%w: the issuer renewed the login without an ID token", ErrEnded)
	}
	c, err := o.credential(ctx, i, token, "")
	if err != nil {
		return nil, err
	}
	// OpenID Connect Core, section 12.2.
	if c.Subject != old.Subject {
		return nil, fmt.Errorf("%s: the renewed ID token belongs to another user", o.Issuer)
	}
	return c, nil
}

// credential verifies the ID token of an answer. Nonce is what must be in it; an
// empty one is for answers to requests that have none.
func (o *OIDC) credential(ctx context.Context, i *issuer, token *oauth2.Token, nonce string) (*Credential, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok || raw == "" {
		return nil, fmt.Errorf("%s: the response has no ID token (hint: check that the client uses OpenID Connect)", o.Issuer)
	}
	verified, err := i.verifier.Verify(i.context(ctx), raw)
	if err != nil {
		return nil, o.failed(ctx, fmt.Errorf("the ID token is invalid: %w", err))
	}
	if nonce != "" && subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(nonce)) != 1 {
		return nil, fmt.Errorf("%s: the ID token is invalid: its nonce is not the one of this login", o.Issuer)
	}
	var claims struct {
		AuthorizedParty string `json:"azp"`
		Name            string `json:"preferred_username"`
		Email           string `json:"email"`
	}
	if err := verified.Claims(&claims); err != nil {
		return nil, fmt.Errorf("%s: the ID token is invalid: %s", o.Issuer, printable(err.Error()))
	}
	// OpenID Connect Core, section 3.1.3.7: a token for several is for one.
	if claims.AuthorizedParty != "" && claims.AuthorizedParty != o.ClientID {
		return nil, fmt.Errorf("%s: the ID token is invalid: it was issued for client %q", o.Issuer, printable(claims.AuthorizedParty))
	}
	if err := o.checkAccount(verified.Subject, claims.Name, claims.Email); err != nil {
		return nil, err
	}
	now := o.Now()
	if err := checkToken(raw, verified.Expiry, now); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Issuer, err)
	}
	user := verified.Subject
	for _, name := range []string{claims.Email, claims.Name} {
		if name != "" {
			user = name
		}
	}
	return &Credential{
		Token: raw, ObtainedAt: now, ExpiresAt: verified.Expiry, RefreshToken: token.RefreshToken,
		Subject: verified.Subject, User: user, Source: o.Issuer,
	}, nil
}

// checkAccount returns an error if a token belongs to another account than the one asked for: a browser may be logged in with it. A token
// that has no name for people cannot be compared.
func (o *OIDC) checkAccount(subject, name, email string) error {
	isAccount := func(text string) bool { return strings.EqualFold(text, o.Account) }
	if o.Account == "" || name == "" && email == "" || isAccount(subject) || isAccount(name) || isAccount(email) {
		return nil
	}
	return &RefusedError{Reason: "wrong_account", Message: fmt.Sprintf("%s: you logged in as %q, and not with the account %q (hint: log out there in the browser, or choose the other account)",
		o.Issuer, printable(cmp.Or(email, name)), printable(o.Account))}
}

// ParseAccount reads the name of an account.
func ParseAccount(text string) error {
	const most = 256
	if len(text) > most || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) || r == ' ' }) {
		return fmt.Errorf("%q: must be a name or address of at most %d bytes, without spaces", strict.Cut(text, most), most)
	}
	return nil
}

// failed returns an error of the libraries as it may be shown: what an issuer says in
// an OAuth error is for people, the body of any other answer is not.
func (o *OIDC) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok:
		return fmt.Errorf("%s: %w", o.Issuer, transportError(err))
	case answer.ErrorCode == "":
		return fmt.Errorf("%s: responds with %s", o.Issuer, printable(answer.Response.Status))
	}
	return o.refused(answer.ErrorCode, answer.ErrorDescription)
}

// refused returns the error for an OAuth error of the issuer. Some mean that the
// issuer cannot decide.
func (o *OIDC) refused(code, description string) error {
	text := o.Issuer + " rejected the login: " + printable(code)
	if description != "" {
		text += ": " + printable(description)
	}
	switch code {
	case "server_error", "temporarily_unavailable", "slow_down", "authorization_pending":
		return errors.New(text)
	case "expired_token":
		return fmt.Errorf("nobody logged in at %s in time", o.Issuer)
	}
	return &RefusedError{Reason: printable(code), Message: text}
}

// authStyle returns how a client authenticates to an endpoint that accepts these
// methods. A public client names itself in the form. With a secret, the header is
// what an issuer takes unless it says otherwise (OpenID Connect Core, section 9).
// Trying both would use up a code.
func (o *OIDC) authStyle(methods []string) oauth2.AuthStyle {
	if o.ClientSecret != "" && (len(methods) == 0 || slices.Contains(methods, "client_secret_basic")) {
		return oauth2.AuthStyleInHeader
	}
	return oauth2.AuthStyleInParams
}
