package login

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// login answers POST /login.
func (s *service) login(ctx context.Context, c *call) answer {
	body, err := readBody(c.request)
	if err != nil {
		return c.refused(err)
	}
	r, err := parseRequest(body)
	if err != nil {
		return c.refused(err)
	}
	c.event.Typed, c.event.Renewal = r.Username, r.Token != ""
	var d authn.LoginDecision
	if !c.turn(ctx, func() {
		d = s.current().Login(ctx, authn.LoginRequest{
			Directory: r.Directory, Username: r.Username, Password: r.Password, Token: r.Token, Client: c.event.Client,
		})
	}) {
		return c.overloaded()
	}
	c.event.Reason, c.event.Detail = string(d.Reason), d.Detail
	c.event.Directory, c.event.TokenID, c.event.User = d.Directory, d.TokenID, d.User.Username
	if d.Outcome == authn.Yes && d.Token == "" {
		c.event.Decision = review.Unknown
		a := c.fail(http.StatusInternalServerError, ReasonInternal, "something went wrong on the server; its log has the reason")
		c.event.Detail = "a yes without a token"
		return a
	}
	if d.Outcome == authn.Yes {
		c.event.Decision = review.Allowed
		return answer{status: http.StatusOK, body: Issued{
			Token: d.Token, ExpiresAt: d.ExpiresAt, SessionEnds: d.SessionEnds, User: d.User,
		}}
	}
	f := Failure{Reason: string(d.Reason), Message: d.Message, RetryAfterSeconds: wholeSeconds(d.RetryAfter)}
	if f.Message == "" {
		f.Message = loginSentence(d.Reason)
	}
	a := answer{status: loginStatus(&d), retryAfter: d.RetryAfter}
	if a.status == http.StatusTooManyRequests && a.retryAfter <= 0 {
		a.retryAfter, f.RetryAfterSeconds = busyWait, wholeSeconds(busyWait)
	}
	a.body = f
	switch {
	case a.status == http.StatusTooManyRequests:
		c.event.Decision = review.Shed
	case d.Outcome == authn.No:
		c.event.Decision = review.Denied
	default:
		c.event.Decision = review.Unknown
	}
	return a
}

// loginStatus is the status of an answer that is no token.
func loginStatus(d *authn.LoginDecision) int {
	switch d.Reason { //nolint:exhaustive // the others are tokens that cannot be renewed
	case authn.ReasonSlowed:
		return http.StatusTooManyRequests
	case authn.ReasonInput:
		return http.StatusBadRequest
	}
	if d.Outcome != authn.No {
		return http.StatusServiceUnavailable
	}
	switch d.Reason { //nolint:exhaustive // the others are tokens that cannot be renewed
	case authn.ReasonGuard, authn.ReasonTooLarge:
		return http.StatusForbidden
	default:
		return http.StatusUnauthorized
	}
}
