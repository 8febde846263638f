package authn

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// revoked holds which tokens are revoked.
type revoked struct {
	// users has, by user name, the time before which issued tokens are revoked.
	users map[string]time.Time
	// claims has the same of JWTs by a claim. A zero time is for all of them.
	claims map[revokedClaim]time.Time
}

// revokedClaim is a claim of JWTs of an issuer.
type revokedClaim struct{ issuer, name, value string }

func newRevoked() revoked {
	return revoked{users: map[string]time.Time{}, claims: map[revokedClaim]time.Time{}}
}

func (r revoked) clone() revoked { return revoked{maps.Clone(r.users), maps.Clone(r.claims)} }

// find reports whether a token of the user that was issued then is revoked, and returns
// the time of the revocation. A token without a time of issue is revoked: it may have
// been issued before.
func (r revoked) find(user string, issuedAt time.Time) (before time.Time, ok bool) {
	if len(r.users) == 0 {
		return before, false
	}
	before, ok = r.users[user]
	return before, ok && issuedAt.Before(before)
}

// findClaim returns why a JWT is revoked, "" if it is not.
func (r revoked) findClaim(issuer string, c *jwtClaims, issuedAt time.Time) string {
	if len(r.claims) == 0 {
		return ""
	}
	for _, claim := range [...]revokedClaim{{issuer, "jti", c.id}, {issuer, "sid", c.session}, {issuer, "sub", c.subject}} {
		before, ok := r.claims[claim]
		switch {
		case !ok || claim.value == "":
		case before.IsZero():
			return fmt.Sprintf("tokens of this issuer with %s %s are revoked", claim.name, quote(claim.value))
		case issuedAt.Before(before):
			return fmt.Sprintf("tokens of this issuer with %s %s, issued before %s, are revoked", claim.name, quote(claim.value), before.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// add adds a valid revocation. Of several about one user the latest counts.
func (r revoked) add(one *Revocation) {
	s := &one.Spec
	before := s.IssuedBefore.Time
	if s.User != "" {
		if before.After(r.users[s.User]) {
			r.users[s.User] = before
		}
		return
	}
	claim := revokedClaim{s.Issuer, "sub", s.Subject}
	switch {
	case s.TokenID != "":
		claim.name, claim.value = "jti", s.TokenID
	case s.SessionID != "":
		claim.name, claim.value = "sid", s.SessionID
	}
	if known, ok := r.claims[claim]; !ok || before.After(known) {
		r.claims[claim] = before
	}
}

// check returns the errors of a revocation.
func (one *Revocation) check() diagnostic.List {
	var found diagnostic.List
	report := func(field, message, hint string) {
		found = append(found, diagnostic.Diagnostic{
			Severity: diagnostic.Error, Source: one.Source, Object: "TokenRevocation/" + one.Name,
			Field: field, Message: message, Hint: hint,
		})
	}
	spec := &one.Spec
	named := 0
	for _, value := range []string{spec.User, spec.TokenID, spec.SessionID, spec.Subject} {
		if value != "" {
			named++
		}
	}
	if named > 1 {
		report("spec", "has several of user, tokenID, sessionID and subject, must have one", "")
	}
	if named == 0 {
		report("spec.user", "is missing", "the user name as the API server sees it, prefixes included")
	} else if f := guard.CheckString(spec.User); f != "" {
		report("spec.user", quote(spec.User)+" "+string(f)+": no token proves this name", "")
	}
	if byClaim := named > 0 && spec.User == ""; byClaim != (spec.Issuer != "") {
		report("spec.issuer", "is required with tokenID, sessionID or subject, and does not go with user", "the URL of the issuer of the JWTs")
	}
	switch timed := spec.TokenID == "" && spec.SessionID == ""; {
	case timed && spec.IssuedBefore.IsZero():
		report("spec.issuedBefore", "is missing: nothing would be revoked", `for example "2026-11-20T12:00:00Z"`)
	case !timed && !spec.IssuedBefore.IsZero():
		report("spec.issuedBefore", "is for user and subject: all tokens with this id are revoked", "")
	}
	return found
}

// checkFuture warns of a time in the future: until then, every new token of the user is
// revoked too.
func (one *Revocation) checkFuture(now time.Time) diagnostic.List {
	// Clocks differ by less than an hour.
	if one.Spec.IssuedBefore.Time.Before(now.Add(time.Hour)) {
		return nil
	}
	return diagnostic.List{{
		Severity: diagnostic.Warning, Source: one.Source, Object: "TokenRevocation/" + one.Name, Field: "spec.issuedBefore",
		Message: fmt.Sprintf("%q is in the future: until then the user cannot log in at all", one.Spec.IssuedBefore.UTC().Format(time.RFC3339)),
	}}
}

// checkIssuer warns of an issuer that is not configured.
func (one *Revocation) checkIssuer(spec *Spec) diagnostic.List {
	known := func(i Issuer) bool { return i.Config.Issuer.URL == one.Spec.Issuer }
	if one.Spec.Issuer == "" || len(spec.Issuers) == 0 || slices.ContainsFunc(spec.Issuers, known) {
		return nil
	}
	return diagnostic.List{{
		Severity: diagnostic.Warning, Source: one.Source, Object: "TokenRevocation/" + one.Name, Field: "spec.issuer",
		Message: quoteURL(one.Spec.Issuer) + " is not the URL of a configured issuer, so nothing is revoked",
	}}
}

// unknownID is the verdict on a well-formed access token that is not known.
//
// It is not a No: a token is often used within a second of being issued, and reaches a
// replica that has not loaded it yet. The API server would cache a No for two minutes by
// default. It does not cache an error.
func unknownID(id string) verdict {
	return verdict{outcome: Unknown, reason: ReasonUnknownID, tokenID: id, message: "unknown access token"}
}

// Withdraw returns the Set without some access tokens, and with further revocations, which
// must take effect even if the rest of a new configuration is invalid. The ids are those
// of the documents. Invalid revocations are ignored. The receiver is unchanged.
func (s *Set) Withdraw(ids []string, revocations []Revocation) *Set {
	out := *s
	out.withdrawn = make(map[string]struct{}, len(s.withdrawn)+len(ids))
	maps.Copy(out.withdrawn, s.withdrawn)
	for _, id := range ids {
		out.withdrawn[id] = struct{}{}
	}
	out.revoked = s.revoked.clone()
	for i := range revocations {
		if one := &revocations[i]; len(one.check()) == 0 {
			out.revoked.add(one)
		}
	}
	return &out
}
