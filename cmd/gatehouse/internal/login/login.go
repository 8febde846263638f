package login

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// login answers POST /login.
func (s *service) login(ctx context.Context, c *call) answer {
	body, err := readBody(c.request, jsonMedia)
	if err != nil {
		return c.refused(err)
	}
	r, err := parseRequest(body)
	if err != nil {
		return c.refused(err)
	}
	c.event.Renewal = r.Token != "" && !jwt.Shaped(r.Token)
	set := s.current()
	c.event.Directory = set.DirectoryName(r.Directory)
	failed, end := false, func(time.Time, bool) {}
	// The guess ends when the answer goes out. An earlier end would show other calls
	// how long the directory took.
	defer func() { end(s.Now(), failed) }()
	// The caller chooses when the body ends, so the time until then does not count.
	begun := s.Now()
	var wait time.Duration
	var d authn.LoginDecision
	if !c.turn(ctx, func() {
		if r.Token == "" && c.event.Directory != "" {
			begun, needed := s.guesses.begin(c.event.Directory, r.Username, c.event.Client, s.Now())
			if wait = needed; wait > 0 {
				return
			}
			end = begun
		}
		enduring, cancel := enduring(ctx)
		defer cancel()
		d = set.Login(enduring, authn.LoginRequest{
			Directory: r.Directory, Username: r.Username, Password: r.Password, Token: r.Token, Scope: r.Scope,
		})
	}) {
		return c.overloaded()
	}
	if wait > 0 {
		return c.later(http.StatusTooManyRequests, ReasonSlowed, "too many failed attempts: wait before the next one", wait)
	}
	failed = d.Failed
	if d.Outcome == authn.Yes && r.Token == "" {
		s.guesses.loggedIn(c.event.Client, s.Now())
	}
	if d.Reason == authn.ReasonCredentials {
		s.even(begun)
	}
	c.event.Reason, c.event.Detail = string(d.Reason), d.Detail
	c.event.Directory, c.event.TokenID, c.event.User = d.Directory, d.TokenID, d.User.Username
	if d.Outcome == authn.Yes && d.Token == "" {
		c.event.Decision = review.Unknown
		a := c.fail(http.StatusInternalServerError, ReasonInternal, "internal error; see the log of the server")
		c.event.Detail = "a yes without a token"
		return a
	}
	if d.Outcome == authn.Yes {
		c.event.Decision = review.Allowed
		return answer{status: http.StatusOK, body: Issued{
			Token: d.Token, ExpiresAt: d.ExpiresAt, SessionEnds: d.SessionEnds, User: d.User,
		}}
	}
	f := Failure{Reason: string(d.Reason), Message: d.Message}
	if f.Message == "" {
		f.Message = loginSentence(d.Reason)
	}
	c.event.Decision = review.Unknown
	if d.Outcome == authn.No {
		c.event.Decision = review.Denied
	}
	return answer{status: loginStatus(&d), body: f}
}

// enduring returns a context with the time limit of ctx, which does not end when the
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

// even waits until a multiple of evenTime has passed since the work began: a
// directory takes longer to compare a password than to find that there is no
// account or no password to compare, and that must not be seen. It waits also when
// the caller has hung up, because another call would see that the attempt is over.
func (s *service) even(begun time.Time) {
	<-time.NewTimer(evenTime - max(0, s.Now().Sub(begun))%evenTime).C
}

// loginStatus returns the status of an answer that is no token.
func loginStatus(d *authn.LoginDecision) int {
	if d.Reason == authn.ReasonInput {
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
