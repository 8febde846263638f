package login

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// LogoutPath is that of the endpoint to which issuers send logout tokens (OpenID Connect
// Back-Channel Logout 1.0).
const LogoutPath = "/logout"

const (
	// logoutsAtOnce is how many logout tokens are processed at one time: an issuer may end
	// the sessions of all its users together.
	logoutsAtOnce = 64
	// reasonNotStored is a revocation that could not be stored.
	reasonNotStored = "not-stored"
)

// failedLogout returns the answer to a logout that failed (RFC 6749, 5.2), for which the
// specification has status 400 alone. The description is the same for all tokens that are
// rejected: who sends one has proven nothing.
func failedLogout(code, description string) answer {
	return answer{status: http.StatusBadRequest, body: map[string]string{"error": code, "error_description": description}}
}

// logout answers POST /logout. A logout token that arrives again has the same answer, and
// changes nothing.
func (s *service) logout(ctx context.Context, c *call) answer {
	token, err := logoutToken(c.request)
	if err != nil {
		_ = c.refused(err)
		return failedLogout("invalid_request", err.Error())
	}
	var d authn.Decision
	var stored error
	if !c.turn(ctx, func() {
		spec, decision := s.current().Logout(ctx, token)
		if d = decision; d.Outcome == authn.Yes {
			stored = s.Revoke(ctx, &spec)
		}
	}) {
		return c.overloaded()
	}
	c.decided(&d)
	switch {
	case stored != nil:
		c.event.Decision, c.event.Reason, c.event.Detail = review.Unknown, reasonNotStored, stored.Error()
		description := "the logout could not be stored"
		if errors.Is(stored, tokens.ErrTooManyLogouts) {
			description = tokens.ErrTooManyLogouts.Error()
		}
		return failedLogout("temporarily_unavailable", description)
	case d.Outcome == authn.Yes:
		return answer{status: http.StatusOK, body: struct{}{}}
	default:
		return failedLogout("invalid_request", "the logout token is not accepted")
	}
}

// logoutToken reads the form of a logout request. Its error holds nothing of it.
func logoutToken(r *http.Request) (string, error) {
	body, err := readBody(r, formMedia)
	if err != nil {
		return "", err
	}
	form, err := url.ParseQuery(string(body))
	if tokens := form["logout_token"]; err == nil && len(tokens) == 1 && tokens[0] != "" {
		return tokens[0], nil
	}
	return "", badInput("the form must have logout_token once")
}
