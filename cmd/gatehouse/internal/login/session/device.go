package session

import (
	"context"
	"errors"
	"fmt"
	"net/url"
)

// device shows a code that a person types in on another device, and asks the
// issuer until that has happened (RFC 8628).
func (o *OIDC) device(ctx context.Context, i *issuer) (*Credential, error) {
	if i.config.Endpoint.DeviceAuthURL == "" || i.config.Endpoint.TokenURL == "" {
		return nil, fmt.Errorf("%s: the issuer has no device endpoint (hint: omit --device)", o.Issuer)
	}
	asked, err := i.config.DeviceAuth(i.context(ctx))
	if err != nil {
		return nil, o.failed(ctx, err)
	}
	if asked == nil {
		return nil, fmt.Errorf("%s: the response is empty", o.Issuer)
	}
	if u, err := url.Parse(asked.VerificationURI); err != nil || u.Scheme != "https" || asked.UserCode == "" || asked.DeviceCode == "" {
		return nil, fmt.Errorf("%s: the response has no code, or no https address to open", o.Issuer)
	}
	o.remark("log in at %s with the code %s", printable(asked.VerificationURI), printable(asked.UserCode))
	if u, err := url.Parse(asked.VerificationURIComplete); err == nil && u.Scheme == "https" {
		o.remark("or open %s", printable(asked.VerificationURIComplete))
	}
	// The library's ticker takes no interval below one; a day would be as wrong.
	const usual, most = 5, 60
	if asked.Interval < 1 {
		asked.Interval = usual
	}
	asked.Interval = min(asked.Interval, most)
	token, err := i.config.DeviceAccessToken(i.context(ctx), asked)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, fmt.Errorf("nobody logged in at %s before the code expired", o.Issuer)
	case err != nil:
		return nil, o.failed(ctx, err)
	}
	return o.credential(ctx, i, token, "")
}
