package login

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// whoami answers POST /whoami.
func (s *service) whoami(ctx context.Context, c *call) answer {
	token, err := bearer(c.request.Header)
	if err != nil {
		return c.refused(err)
	}
	body, err := readBody(c.request, jsonMedia)
	if err != nil {
		return c.refused(err)
	}
	if text := string(bytes.TrimSpace(body)); text != "" && text != "{}" {
		return c.refused(badInput("the body must be empty"))
	}
	var d authn.Decision
	if !c.turn(ctx, func() { d = s.current().Decide(ctx, authn.Input{Token: token}) }) {
		return c.overloaded()
	}
	c.decided(&d)
	if d.Outcome == authn.Yes {
		c.event.User = d.Status.User.Username
	}
	return answer{status: http.StatusOK, body: answerOf(&d)}
}

// decided records the decision about a token.
func (c *call) decided(d *authn.Decision) {
	c.event.Reason, c.event.Detail = string(d.Reason), d.Detail
	c.event.Backend, c.event.Source, c.event.TokenID = d.Backend, d.Source, d.TokenID
	switch d.Outcome {
	case authn.Yes:
		c.event.Decision = review.Allowed
	case authn.No:
		c.event.Decision = review.Denied
	case authn.Unknown:
		c.event.Decision = review.Unknown
	}
}

// answerOf returns what the caller may know of a decision.
func answerOf(d *authn.Decision) Answer {
	if d.Reason == authn.ReasonWrongSecret || d.Reason == authn.ReasonUnknownID {
		// Anybody can make up a token of some id, and is not told by the difference
		// which ids there are.
		return Answer{
			Outcome: string(authn.Unknown), Reason: string(authn.ReasonUnknownID),
			Message: sentence(authn.ReasonUnknownID), Backend: string(d.Backend),
		}
	}
	a := Answer{
		Outcome: string(d.Outcome), Reason: string(d.Reason), Message: sentence(d.Reason),
		Backend: string(d.Backend), Source: d.Source, TokenID: d.TokenID,
	}
	switch d.Outcome {
	case authn.Yes:
		a.User, a.Message = &d.Status.User, ""
		a.IssuedAt, a.ExpiresAt = known(d.IssuedAt), known(d.ExpiresAt)
		a.Grants, a.GroupOrigins = d.Grants, slices.Clone(d.Groups)
		for i := range a.GroupOrigins {
			if a.GroupOrigins[i].Missing != "" { // it names servers
				a.GroupOrigins[i].Missing = "the source does not answer"
			}
		}
	case authn.No:
		if d.Detail != "" && isProven(d.Reason) {
			a.Message += ": " + d.Detail
		}
	case authn.Unknown:
	}
	return a
}

// known returns a time, or nothing.
func known(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// bearer returns the token of a request. Its error holds nothing of the header.
func bearer(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) == 1 {
		scheme, token, found := strings.Cut(values[0], " ")
		if token = strings.Trim(token, " "); found && token != "" && strings.EqualFold(scheme, "Bearer") {
			return token, nil
		}
	}
	return "", badInput(`the header must have one "Authorization: Bearer TOKEN"`)
}
