package login

import (
	"context"
	"net/http"
	"time"

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
		attempt, cancel := enduring(ctx)
		defer cancel()
		d = s.current().Login(attempt, authn.LoginRequest{
			Directory: r.Directory, Username: r.Username, Password: r.Password, Token: r.Token, Client: c.event.Client,
		})
	}) {
		return c.overloaded()
	}
	if d.Reason == authn.ReasonCredentials {
		s.even(ctx, c.event.Started)
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

// enduring is a context with the time limit of ctx, which does not end when the
// caller hangs up: the directory may have looked at the password by then, and an
// attempt that ended without an outcome would be a guess that nobody counts. What
// bounds the work is the turn, and the calls of an address, until the end.
func enduring(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, limited := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !limited {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline)
}

// evenTime is what the time to a refusal is a multiple of. It is longer than
// directories usually take to compare a password with a slow hash.
const evenTime = 250 * time.Millisecond

// even waits until the call has taken a multiple of evenTime, or until the caller
// hangs up: a directory takes longer to compare a password than to find that there
// is no account or no password to compare, and that must not be seen.
func (s *service) even(ctx context.Context, started time.Time) {
	timer := time.NewTimer(evenTime - max(0, s.Now().Sub(started))%evenTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
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
