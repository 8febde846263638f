package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/jsonout"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// The reasons of a Failure that are not authn's.
const (
	// ReasonMethod, ReasonMediaType and ReasonBodyTooLarge are about a request that
	// cannot be answered.
	ReasonMethod       = "method"
	ReasonMediaType    = "media-type"
	ReasonBodyTooLarge = "body-too-large"
	// ReasonRateLimited is a client that asks too often.
	ReasonRateLimited = "rate-limited"
	// ReasonSlowed is an attempt that came too soon after others with the same name
	// that failed, or from the same address.
	ReasonSlowed = "slowed"
	// ReasonOverload is a server with too much to do at one time.
	ReasonOverload = "overload"
	// ReasonInternal is a defect of the server.
	ReasonInternal = "internal"
)

const (
	// loginTime and whoamiTime bound a call with all that it asks of others. They
	// are longer than a directory's time-out and shorter than the patience of
	// people.
	loginTime  = 10 * time.Second
	whoamiTime = 8 * time.Second
	// turnTime is how long a call waits for its turn.
	turnTime = time.Second
	// whoamisAtOnce is how many tokens are looked at at one time.
	whoamisAtOnce = 16
)

// HandlerOptions is what Handler needs.
type HandlerOptions struct {
	// Current returns the active configuration. Required.
	Current func() *authn.Set
	// Now is the clock. Required.
	Now func() time.Time
	// Observe, if set, is shown each finished call. It must not keep the Call.
	Observe func(*telemetry.Call)
	// Revoke stores a revocation that an issuer asks for, once for the same one. Without
	// it, LogoutPath is not answered.
	Revoke func(context.Context, *v1alpha1.TokenRevocationSpec) error
}

// limits bound the work that is done for callers whom nobody knows.
type limits struct {
	// logins, whoamis and logouts are how often one address may call each.
	logins, whoamis, logouts Rate
	// loginsAtOnce is how many logins are under way at one time, and as many again of
	// clients that are known.
	loginsAtOnce int
}

func defaultLimits() limits {
	return limits{
		logins: Rate{Burst: 20, Every: 2 * time.Second}, whoamis: Rate{Burst: 60, Every: 200 * time.Millisecond},
		logouts: Rate{Burst: 500, Every: 20 * time.Millisecond}, loginsAtOnce: 16,
	}
}

// authenticator is what is asked of an *authn.Set.
type authenticator interface {
	DirectoryName(requested string) string
	Login(ctx context.Context, req authn.LoginRequest) authn.LoginDecision
	Decide(ctx context.Context, in authn.Input) authn.Decision
	Logout(ctx context.Context, token string) (v1alpha1.TokenRevocationSpec, authn.Decision)
}

// Handler answers Path, WhoamiPath and, with Revoke, LogoutPath. It is safe for concurrent use and asks for
// no client certificate.
func Handler(o HandlerOptions) http.Handler {
	return newHandler(o, defaultLimits(), func() authenticator { return o.Current() })
}

func newHandler(o HandlerOptions, l limits, current func() authenticator) http.Handler {
	s := &service{HandlerOptions: o, current: current, guesses: newGuesses()}
	mux := http.NewServeMux()
	mux.Handle(Path, &endpoint{
		service: s, path: Path, answer: s.login, time: loginTime,
		addresses: newLimiters(l.logins, mostAddresses), turns: newTurns(l.loginsAtOnce),
	})
	mux.Handle(WhoamiPath, &endpoint{
		service: s, path: WhoamiPath, answer: s.whoami, time: whoamiTime,
		addresses: newLimiters(l.whoamis, mostAddresses), turns: newTurns(whoamisAtOnce),
	})
	if o.Revoke != nil {
		mux.Handle(LogoutPath, &endpoint{
			service: s, path: LogoutPath, answer: s.logout, time: whoamiTime,
			addresses: newLimiters(l.logouts, mostAddresses), turns: newTurns(logoutsAtOnce),
		})
	}
	return mux
}

// service is what the endpoints share.
type service struct {
	HandlerOptions

	current func() authenticator
	guesses *guesses
}

// endpoint is the frame around a call of either kind.
type endpoint struct {
	*service

	path string
	// answer reads the request, takes its turn and decides.
	answer    func(context.Context, *call) answer
	time      time.Duration
	addresses *limiters
	turns     *turns
}

// call is one call of an endpoint.
type call struct {
	endpoint *endpoint
	request  *http.Request
	event    telemetry.Call
}

// answer is what a call is answered with.
type answer struct {
	status int
	body   any
	// retryAfter is positive if a Retry-After belongs to it.
	retryAfter time.Duration
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := ClientOf(r.RemoteAddr)
	c := &call{endpoint: e, request: r}
	c.event = telemetry.Call{Path: e.path, Client: clientName(client), Started: e.Now()}
	write(w, e.handle(r.Context(), c, client))
	c.event.Took = e.Now().Sub(c.event.Started)
	// A GET of Path is how clients recognise a Gatehouse, and no login.
	if e.Observe != nil && (r.Method != http.MethodGet || e.path != Path) {
		// It is going to be logged, and the caller need not wait for that.
		_ = http.NewResponseController(w).Flush() // a caller that has gone away hears nothing
		e.Observe(&c.event)
	}
}

// handle answers a call of which the header has been read.
func (e *endpoint) handle(ctx context.Context, c *call, client netip.Prefix) (a answer) {
	defer func() {
		if recovered := recover(); recovered != nil {
			a = c.fail(http.StatusInternalServerError, ReasonInternal, "internal error; see the log of the server")
			c.event.Detail = panicDetail(recovered)
		}
	}()
	if c.request.Method != http.MethodPost {
		return c.fail(http.StatusMethodNotAllowed, ReasonMethod, "the method must be POST")
	}
	// Before anything is read, so that a refusal costs next to nothing.
	if wait := take(e.addresses.of(client), e.Now()); wait > 0 {
		return c.later(http.StatusTooManyRequests, ReasonRateLimited, "too many requests from this address", wait)
	}
	ctx, cancel := context.WithTimeout(ctx, e.time)
	defer cancel()
	return e.answer(ctx, c)
}

// turn runs the part of a call that is bounded in number, and reports whether it was
// run at all.
func (c *call) turn(ctx context.Context, run func()) bool {
	leave := c.endpoint.turns.enter(ctx, c.endpoint.guesses.isKnown(c.event.Client, c.event.Started))
	if leave == nil {
		return false
	}
	defer leave()
	run()
	return true
}

// overloaded returns the answer to a call that did not get its turn.
func (c *call) overloaded() answer {
	return c.later(http.StatusServiceUnavailable, ReasonOverload, "the server is overloaded", turnTime)
}

// fail returns the answer to a call that cannot be answered, and records it.
func (c *call) fail(status int, reason, message string) answer {
	c.event.Reason = reason
	switch {
	case status == http.StatusTooManyRequests, reason == ReasonOverload:
		c.event.Decision = review.Shed
	case status >= http.StatusInternalServerError:
		c.event.Decision = review.Unknown
	default:
		c.event.Decision = review.Refused
	}
	return answer{status: status, body: Failure{Reason: reason, Message: message}}
}

// later is fail with the time after which it may be otherwise.
func (c *call) later(status int, reason, message string, wait time.Duration) answer {
	a := c.fail(status, reason, "")
	seconds := wholeSeconds(wait)
	message = fmt.Sprintf("%s (hint: try again in %d s)", message, seconds)
	a.body = Failure{Reason: reason, Message: message, RetryAfterSeconds: seconds}
	a.retryAfter = wait
	return a
}

// refused returns the answer to a request that could not be read.
func (c *call) refused(err error) answer {
	var f *requestError
	if !errors.As(err, &f) {
		f = badInput("the body cannot be read")
		c.event.Detail = err.Error()
	}
	return c.fail(f.status, f.reason, f.text)
}

// wholeSeconds rounds up, so that who waits for that long waits long enough.
func wholeSeconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// write sends an answer. No cache may keep it: it holds a token, or depends on one.
func write(w http.ResponseWriter, a answer) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if a.status == http.StatusMethodNotAllowed {
		header.Set("Allow", http.MethodPost)
	}
	if a.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(wholeSeconds(a.retryAfter)))
	}
	body, err := json.Marshal(a.body)
	if err != nil { // a time beyond the year 9999
		a.status, body = http.StatusInternalServerError, []byte(`{"reason":"internal","message":"the response cannot be written"}`)
	}
	body = jsonout.Escape(body)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // a caller that has gone away hears nothing
}

// panicDetail returns what is logged about a panic: where it was, and of the value
// only what cannot hold anything of a request.
func panicDetail(recovered any) string {
	text := fmt.Sprintf("%T", recovered)
	if err, ok := recovered.(runtime.Error); ok {
		text = err.Error()
	}
	return text + "\n" + string(debug.Stack())
}
