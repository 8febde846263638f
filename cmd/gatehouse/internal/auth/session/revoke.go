package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/oauth2"
)

// Revoke gives the refresh token of a credential back to the issuer (RFC 7009):
// whoever has a copy can renew nothing any more. The ID token stays good until its
// end. A credential without a refresh token has nothing to give back.
func (o *OIDC) Revoke(ctx context.Context, c *Credential) error {
	if c.RefreshToken == "" {
		return nil
	}
	i, err := o.discover(ctx)
	if err != nil {
		return err
	}
	if i.revocation.url == "" {
		return fmt.Errorf("%s: the issuer has no revocation endpoint", o.Issuer)
	}
	form := url.Values{"token": {c.RefreshToken}, "token_type_hint": {"refresh_token"}}
	if i.revocation.style == oauth2.AuthStyleInParams {
		form.Set("client_id", o.ClientID)
		if o.ClientSecret != "" {
			form.Set("client_secret", o.ClientSecret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.revocation.url, strings.NewReader(form.Encode()))
	if err != nil {
		return errors.New(o.Issuer + ": the discovery document: revocation_endpoint: is not a URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if i.revocation.style == oauth2.AuthStyleInHeader {
		// RFC 6749, section 2.3.1.
		req.SetBasicAuth(url.QueryEscape(o.ClientID), url.QueryEscape(o.ClientSecret))
	}
	resp, err := i.client.Do(req)
	if err != nil {
		return o.failed(ctx, err)
	}
	if err := resp.Body.Close(); err != nil {
		return o.failed(ctx, err)
	}
	// A token that the issuer does not know any more is a success too.
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: responds with %s", o.Issuer, printable(resp.Status))
	}
	return nil
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
