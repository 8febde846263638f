package jwt

import (
	"context"
	"time"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// logoutEvent is the member of the claim events that makes a JWT a logout token (OpenID
// Connect Back-Channel Logout 1.0, 2.4).
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// isLogout reports whether the token is a logout token. It has the issuer, the audience and
// the subject of a token that logs the same user in.
func (t *Token) isLogout() bool {
	for name, value := range t.claim([]byte(`"events"`)).Members() {
		if name.Is(logoutEvent) && value.Kind() == rawjson.Object {
			return true
		}
	}
	return false
}

// VerifyLogout verifies a logout token of the issuer, by the rules of OpenID Connect
// Back-Channel Logout 1.0, 2.6. The Proof has no user. A *Refusal is a definite no. Any
// other error means "cannot decide".
func (a *Authenticator) VerifyLogout(ctx context.Context, t *Token, now time.Time) (*Proof, error) {
	life, r := a.precheck(t, now, nil)
	if r != nil {
		return nil, r
	}
	proof := t.proof(&life)
	duplicate := t.checkNested()
	switch {
	case duplicate != nil:
		return nil, duplicate
	case !t.isLogout():
		return nil, refuse(Claims, "it is not a logout token: the claim events has no member "+logoutEvent)
	case len(t.registered.nonce) > 0:
		return nil, refuse(Claims, "a logout token must not have the claim nonce")
	case life.issuedAt.IsZero() || proof.ID == "":
		return nil, refuse(Claims, "a logout token must have the claims iat and jti")
	case now.Add(notBeforeLeeway).Before(life.issuedAt):
		return nil, refuse(NotYetValid, "it was issued at "+clock(life.issuedAt)+", now is "+clock(now))
	case proof.Session == "" && len(t.claim([]byte(`"sid"`))) > 0: // it asks to end one session, not all of the subject's
		return nil, refuse(Claims, "the claim sid is no session: want a string with at least one character")
	case proof.Subject == "" && proof.Session == "":
		return nil, refuse(Claims, "a logout token must have the claim sub or sid")
	}
	if err := a.checkSignature(ctx, t, nil); err != nil {
		return nil, err
	}
	return proof, nil
}
