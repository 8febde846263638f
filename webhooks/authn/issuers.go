package authn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// issuers authenticates JWTs, each by the issuer that it names. The name is not trusted
// before the token is verified; it only selects the issuer.
type issuers struct {
	byURL map[string]*issuer
	now   func() time.Time
}

// issuer is one issuer.
type issuer struct {
	// url is the string of the configuration: a part of a token would keep all of it in
	// memory.
	url           string
	authenticator *jwt.Authenticator
	// groups are the sources of further groups, in the order of the configuration.
	groups []groupSource
}

// find returns the issuer with a URL, nil if it is not configured.
func (i *issuers) find(url string) *issuer {
	if i == nil {
		return nil
	}
	return i.byURL[url]
}

// authenticate is the authenticator of JWTs. A token of an issuer that is not
// configured, such as an expired service account token, is foreign. It waits for
// keys if they have to be fetched.
func (i *issuers) authenticate(ctx context.Context, in *Input, e *explanation) verdict {
	token := in.Token
	parsed, err := jwt.Parse(token)
	if err != nil {
		v := refused(err)
		if e != nil {
			e.add("parse", "%s", v.detail)
		}
		return v
	}
	url := parsed.Issuer()
	issuer := i.find(url)
	if issuer == nil {
		if e != nil {
			e.add("issuer", "%s is not configured", quote(url))
		}
		return verdict{outcome: No, reason: ReasonForeign}
	}
	var steps jwt.Trail
	if e != nil {
		e.add("issuer", "%s", quote(url))
		steps = func(step, found string) { e.add(step, "%s", found) }
	}
	var (
		lookups *groupLookups
		enrich  jwt.Enrich
	)
	if len(issuer.groups) > 0 {
		lookups = &groupLookups{issuer: issuer, token: token, pause: in.Pause}
		enrich = lookups.add
	}
	proof, err := issuer.authenticator.VerifyWith(ctx, parsed, i.now(), steps, enrich)
	if err != nil {
		v := refused(err)
		v.source, v.tokenID = issuer.url, digestID(token)
		return v
	}
	id := proof.ID
	if id == "" {
		id = digestID(token)
	}
	// Upstream's JWT authenticators are about the API server's audiences alone,
	// whatever a review asks about: the issuer's audiences are another matter. So
	// the answer has none, which stands for the API server's own.
	v := verdict{
		outcome: Yes, reason: ReasonOK, source: issuer.url, tokenID: id,
		claims:   jwtClaims{proof.ID, proof.Session, proof.Subject},
		identity: &proof.User, issuedAt: proof.IssuedAt, expiresAt: proof.ExpiresAt,
	}
	if lookups != nil {
		v.groups, v.detail = lookups.origins, strings.Join(lookups.detail, "; ")
	}
	return v
}

// digestID is the id of a token without one, or without one that can be trusted: enough
// of its SHA-256 to find it in another log, and too little to guess it.
func digestID(token string) string {
	sum := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(sum[:6])
}

// refused is the verdict on a token that was not verified.
func refused(err error) verdict {
	if e, ok := errors.AsType[*groupsError](err); ok {
		return e.verdict
	}
	if no, ok := errors.AsType[*jwt.Refusal](err); ok {
		return verdict{outcome: No, reason: Reason(no.Reason), detail: no.Detail}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return verdict{outcome: Unknown, reason: ReasonDeadline, message: "there was not enough time to verify the token", detail: err.Error()}
	}
	return verdict{outcome: Unknown, reason: ReasonKeys, message: "the issuer's keys are not available", detail: err.Error()}
}
