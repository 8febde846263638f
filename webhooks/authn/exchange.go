package authn

import (
	"context"
	"fmt"
	"strings"
)

// exchanged are the claims of the JWT that a login token was made from, by which the JWT, and so the login token, is revoked.
type exchanged struct {
	ID      string `json:"jti,omitempty"`
	Session string `json:"sid,omitempty"`
	Subject string `json:"sub,omitempty"`
}

// serviceAccountSubject begins the claim sub of tokens of Kubernetes' service accounts.
const serviceAccountSubject = "system:serviceaccount:"

// exchange verifies a JWT of an issuer as Decide does, and issues a login token of the same identity with a scope (RFC 8693 has the idea,
// and not the protocol). The login token ends with the JWT at the latest, is revoked with it, and is never renewed: the JWT is exchanged
// again. Without a scope it would be the JWT once more, so one is required.
//
// A token of a service account is not exchanged: it ends when its pod or its Secret does, which nobody would notice here.
func (s *Set) exchange(ctx context.Context, req LoginRequest) LoginDecision {
	d := LoginDecision{Outcome: No, Reason: ReasonInput}
	switch {
	case s.logins == nil:
		d.Message = "this server has no key with which it could issue tokens with a scope (hint: an administrator adds login.keys to the AuthenticationConfiguration)"
	case req.Scope == "":
		d.Message = "a JWT is exchanged only for a token with a scope, because without one it is the token for the API server (hint: --scope NAME)"
	default:
		d.Message = s.scopeProblem(req.Scope)
	}
	if d.Message != "" {
		return d
	}
	v := s.issuers.authenticate(ctx, &Input{Token: req.Token}, nil)
	if v.outcome == Yes {
		v = s.check(JWTs, v, nil)
	}
	d.Outcome, d.Reason, d.Directory, d.TokenID, d.Detail = v.outcome, v.reason, v.source, v.tokenID, v.detail
	if v.outcome != Yes {
		return d
	}
	d.User = *v.identity
	if strings.HasPrefix(v.claims.subject, serviceAccountSubject) {
		d.Outcome, d.Reason = No, ReasonInput
		d.Message = "the token of a service account is not exchanged (hint: an administrator issues an access token with a scope)"
		return d
	}
	d.Detail = strings.TrimPrefix(d.Detail+"; the scope "+quote(req.Scope)+" for the JWT "+quote(v.tokenID), "; ")
	return s.give(d, &loginClaims{
		Source: v.source, JWT: &exchanged{v.claims.id, v.claims.session, v.claims.subject}, Scope: req.Scope,
		// As old as the JWT: a revocation of what was issued before a time includes both. An end beyond the year 9999 has no text.
		Session: v.issuedAt.Unix(), Ends: min(v.expiresAt.Unix(), s.logins.tokens.now().Add(maxSessionTTL).Unix()),
	})
}

// give makes the decision that authenticated d.User a Yes with a token of the claims, but for those that are the same for all tokens.
func (s *Set) give(d LoginDecision, claims *loginClaims) LoginDecision {
	l := s.logins
	now := l.tokens.now()
	claims.User, claims.IssuedAt, claims.Expires = d.User, now.Unix(), min(now.Add(l.tokenTTL).Unix(), claims.Ends)
	text, err := l.mint(claims)
	switch {
	case err != nil:
		d.Outcome, d.Reason, d.Detail = Unknown, ReasonDirectory, err.Error()
		d.Message = "the token cannot be created"
		return d
	case len(text) > maxTokenBytes:
		d.Outcome, d.Reason = No, ReasonTooLarge
		d.Message = fmt.Sprintf("%d groups do not fit into a token (hint: an administrator can narrow them, in the directory's groupSearch or at the issuer)", len(d.User.Groups))
		d.Detail = fmt.Sprintf("the token would have %d bytes, more than %d", len(text), maxTokenBytes)
		return d
	}
	d.Outcome, d.Reason, d.Message = Yes, ReasonOK, ""
	d.Token, d.TokenID = text, claims.ID
	d.ExpiresAt, d.SessionEnds = unix(claims.Expires), unix(claims.Ends)
	return d
}
