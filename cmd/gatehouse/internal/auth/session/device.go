package session

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"golang.org/x/oauth2"
)

// device shows a code that a person types in on another device, and asks the
// issuer until that has happened (RFC 8628).
func (o *OIDC) device(ctx context.Context, i *issuer) (*Credential, error) {
	if i.config.Endpoint.DeviceAuthURL == "" || i.config.Endpoint.TokenURL == "" {
		return nil, fmt.Errorf("%s: the issuer has no device endpoint (hint: omit --device)", o.Issuer)
	}
	asked, err := o.askDevice(ctx, i)
	if err != nil {
		return nil, err
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

// askDevice asks for a code. The library's request knows no context, so it is
// left behind if the context ends.
func (o *OIDC) askDevice(ctx context.Context, i *issuer) (*oauth2.DeviceAuthResponse, error) {
	type result struct {
		asked *oauth2.DeviceAuthResponse
		err   error
	}
	done := make(chan result, 1)
	go func() {
		asked, err := i.config.DeviceAuth(i.context(ctx))
		done <- result{asked, err}
	}()
	select {
	case r := <-done:
		if r.err == nil && r.asked == nil {
			r.err = errors.New("the response is empty")
		}
		if r.err != nil {
			return nil, o.failed(ctx, r.err)
		}
		return r.asked, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
