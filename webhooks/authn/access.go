package authn

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// accessTokens authenticates access tokens by their id and their hash. A hash
// without salt and stretching is right here, and a slow one would be wrong: 200
// random bits cannot be guessed, and every bearer token that the API server
// does not know causes one look-up.
type accessTokens struct {
	byID map[string]*accessToken
	now  func() time.Time
}

// accessToken is what is known about one token, ready to be answered with.
type accessToken struct {
	id        string
	digest    [sha256.Size]byte
	expiresAt time.Time
	identity  authenticationv1.UserInfo
	audiences []string
}

// authenticate is the authenticator of access tokens. It needs no context: it
// waits for nothing.
func (a *accessTokens) authenticate(_ context.Context, token string, audiences []string) verdict {
	id, err := ParseToken(token)
	switch {
	case errors.Is(err, errForeign):
		return verdict{outcome: No, reason: ReasonForeign}
	case err != nil:
		return verdict{outcome: No, reason: ReasonMalformed}
	}
	known, ok := a.byID[id]
	if !ok {
		// Not a no: a token is often used within a second of being issued, and
		// then reaches a replica that has not loaded it yet. The API server
		// keeps a no for as long as its cache does, two minutes by default, and
		// the good token would be dead for as long. It does not keep an error.
		// The id is a copy, so that a log line does not hold on to the token.
		return verdict{
			outcome: Unknown, reason: ReasonUnknownID, tokenID: strings.Clone(id),
			message: "access token is not known here",
		}
	}
	v := verdict{outcome: No, tokenID: known.id}
	var buf [maxTokenChars]byte
	digest := sha256.Sum256(append(buf[:0], token...))
	if subtle.ConstantTimeCompare(digest[:], known.digest[:]) != 1 {
		v.reason = ReasonWrongSecret
		return v
	}
	if !a.now().Before(known.expiresAt) {
		v.reason = ReasonExpired
		return v
	}
	good, ok := known.goodFor(audiences)
	if !ok {
		v.reason = ReasonAudience
		return v
	}
	v.outcome, v.reason = Yes, ReasonOK
	v.identity, v.audiences = &known.identity, good
	return v
}

// goodFor is the part of the requested audiences that the token is good for, in
// the order of the request and each once, and whether the token is good for the
// request at all.
//
// A token without audiences answers with none, which by the API's definition
// (TokenReviewStatus.audiences) means: valid for the API server's own audiences
// and no others. Whoever asks about another audience has to see that none came
// back; the API server does.
//
// A request without audiences stands for the audience of the API server
// (TokenReviewSpec.audiences), which nobody has told us. A token that is bound to
// audiences cannot be shown to be good for it, and an API server that sends no
// audiences would not compare those of the answer: so it is refused.
func (t *accessToken) goodFor(requested []string) (good []string, ok bool) {
	if len(t.audiences) == 0 {
		return nil, true
	}
	for _, audience := range requested {
		i := slices.Index(t.audiences, audience)
		switch {
		case i < 0 || slices.Contains(good, audience):
		case good == nil:
			// Nearly every answer has one audience: a part of the token's own
			// list, with no room behind it, so that a second one is appended to
			// a copy.
			good = t.audiences[i : i+1 : i+1]
		default:
			good = append(good, t.audiences[i])
		}
	}
	return good, len(good) > 0
}
