package authn

import (
	"fmt"
	"maps"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// revoked is, by user name, the moment before which tokens must have been issued
// to be refused.
type revoked map[string]time.Time

// ends tells whether a token of the user that was issued then is refused, and
// the moment that decides. A token that does not say when it was issued is
// refused: it may have been before.
func (r revoked) ends(user string, issuedAt time.Time) (before time.Time, is bool) {
	if len(r) == 0 {
		return before, false
	}
	before, is = r[user]
	return before, is && issuedAt.Before(before)
}

// add takes one revocation up. Of several about one user the latest counts.
func (r revoked) add(one *Revocation) {
	if before := one.Spec.IssuedBefore.Time; before.After(r[one.Spec.User]) {
		r[one.Spec.User] = before
	}
}

// check reports what is wrong with a revocation.
func (one *Revocation) check() diagnostic.List {
	var found diagnostic.List
	report := func(severity diagnostic.Severity, field, message, hint string) {
		found = append(found, diagnostic.Diagnostic{
			Severity: severity, Source: one.Source, Object: "TokenRevocation/" + one.Name,
			Field: field, Message: message, Hint: hint,
		})
	}
	if one.Spec.User == "" {
		report(diagnostic.Error, "spec.user", "is missing", "the user name as the API server sees it, prefixes included")
	} else if f := textFault(one.Spec.User); f != "" {
		report(diagnostic.Error, "spec.user", quote(one.Spec.User)+" "+string(f)+": no token proves this name", "")
	}
	if one.Spec.IssuedBefore.IsZero() {
		report(diagnostic.Error, "spec.issuedBefore", "is missing: nothing would be revoked", `for example "2026-11-20T12:00:00Z"`)
	}
	return found
}

// future warns of a moment that has not come: until then, every new token of the
// user is refused too.
func (one *Revocation) future(now time.Time) diagnostic.List {
	// An hour is more than clocks are apart.
	if one.Spec.IssuedBefore.Time.Before(now.Add(time.Hour)) {
		return nil
	}
	return diagnostic.List{{
		Severity: diagnostic.Warning, Source: one.Source, Object: "TokenRevocation/" + one.Name, Field: "spec.issuedBefore",
		Message: fmt.Sprintf("%q is in the future: until then the user cannot log in at all", one.Spec.IssuedBefore.UTC().Format(time.RFC3339)),
	}}
}

// unknownID is the verdict about a well-formed access token that is not known.
//
// It is not a no: a token is often used within a second of being issued, and then
// reaches a replica that has not loaded it yet. The API server keeps a no for as
// long as its cache does, two minutes by default, and the good token would be dead
// for as long. It does not keep an error.
func unknownID(id string) verdict {
	return verdict{outcome: Unknown, reason: ReasonUnknownID, tokenID: id, message: "access token is not known here"}
}

// Withdraw is the Set without some access tokens, and with further revocations.
// It is for what must not wait: the rest of the documents that end them may be
// broken. The ids are those of the documents, and revocations with anything wrong
// in them are passed over. The receiver stays as it is.
func (s *Set) Withdraw(ids []string, revocations []Revocation) *Set {
	out := *s
	out.withdrawn = make(map[string]struct{}, len(s.withdrawn)+len(ids))
	for id := range s.withdrawn {
		out.withdrawn[id] = struct{}{}
	}
	for _, id := range ids {
		out.withdrawn[id] = struct{}{}
	}
	out.revoked = make(revoked, len(s.revoked)+len(revocations))
	maps.Copy(out.revoked, s.revoked)
	for i := range revocations {
		if one := &revocations[i]; len(one.check()) == 0 {
			out.revoked.add(one)
		}
	}
	return &out
}
