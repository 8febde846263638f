package authn

import (
	"fmt"
	"maps"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// revoked holds, by user name, the time before which issued tokens are revoked.
type revoked map[string]time.Time

// find reports whether a token of the user that was issued then is revoked, and returns
// the time of the revocation. A token without a time of issue is revoked: it may have
// been issued before.
func (r revoked) find(user string, issuedAt time.Time) (before time.Time, ok bool) {
	if len(r) == 0 {
		return before, false
	}
	before, ok = r[user]
	return before, ok && issuedAt.Before(before)
}

// add adds a revocation. Of several about one user the latest counts.
func (r revoked) add(one *Revocation) {
	if before := one.Spec.IssuedBefore.Time; before.After(r[one.Spec.User]) {
		r[one.Spec.User] = before
	}
}

// check returns the errors of a revocation.
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
	} else if f := guard.CheckString(one.Spec.User); f != "" {
		report(diagnostic.Error, "spec.user", quote(one.Spec.User)+" "+string(f)+": no token proves this name", "")
	}
	if one.Spec.IssuedBefore.IsZero() {
		report(diagnostic.Error, "spec.issuedBefore", "is missing: nothing would be revoked", `for example "2026-11-20T12:00:00Z"`)
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
	out.revoked = make(revoked, len(s.revoked)+len(revocations))
	maps.Copy(out.revoked, s.revoked)
	for i := range revocations {
		if one := &revocations[i]; len(one.check()) == 0 {
			out.revoked.add(one)
		}
	}
	return &out
}
