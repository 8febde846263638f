package authn

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// revokedBy is by what tokens are revoked: the name of a user, or a claim of an issuer's JWTs.
type revokedBy struct{ issuer, name, value string }

// userName is the name of a revokedBy that is about a user, of any issuer.
const userName = "user"

// revoked has the times before which issued tokens are revoked. A zero time is for all of
// them.
type revoked map[revokedBy]time.Time

// find returns why a token that was issued then is revoked, "" if it is not. A token without a
// time of issue is revoked: it may have been issued before.
func (r revoked) find(by revokedBy, issuedAt time.Time) string {
	if len(r) == 0 || by.value == "" {
		return ""
	}
	before, ok := r[by]
	if !ok || !before.IsZero() && !issuedAt.Before(before) {
		return ""
	}
	text := "tokens of " + quote(by.value)
	if by.name != userName {
		text = "tokens of this issuer with " + by.name + " " + quote(by.value)
	}
	if !before.IsZero() {
		text += " issued before " + before.UTC().Format(time.RFC3339)
	}
	return text + " are revoked"
}

// add adds a valid revocation. Of several about the same tokens the latest counts.
func (r revoked) add(one *Revocation) {
	s := &one.Spec
	by := revokedBy{s.Issuer, userName, s.User}
	switch {
	case s.TokenID != "":
		by.name, by.value = "jti", s.TokenID
	case s.SessionID != "":
		by.name, by.value = "sid", s.SessionID
	case s.Subject != "":
		by.name, by.value = "sub", s.Subject
	}
	if known, ok := r[by]; !ok || s.IssuedBefore.After(known) {
		r[by] = s.IssuedBefore.Time
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
		report("spec.user", quote(spec.User)+" "+string(f)+": Gatehouse gives this name to no token", "")
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

// warnings warns of a time in the future, until which every new token of the user is revoked
// too, and of an issuer that is not configured.
func (one *Revocation) warnings(spec *Spec) diagnostic.List {
	var found diagnostic.List
	warn := func(field, message string) {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Warning, Source: one.Source, Object: "TokenRevocation/" + one.Name, Field: field, Message: message})
	}
	// Clocks differ by less than an hour.
	if before := one.Spec.IssuedBefore; !before.Time.Before(spec.Now().Add(time.Hour)) {
		warn("spec.issuedBefore", fmt.Sprintf("%q is in the future: until then the user cannot log in at all", before.UTC().Format(time.RFC3339)))
	}
	known := func(i Issuer) bool { return i.Config.Issuer.URL == one.Spec.Issuer }
	if one.Spec.Issuer != "" && len(spec.Issuers) > 0 && !slices.ContainsFunc(spec.Issuers, known) {
		warn("spec.issuer", quoteURL(one.Spec.Issuer)+" is not the URL of a configured issuer, so nothing is revoked")
	}
	return found
}

// unknownID is the verdict on a well-formed access token that is not known.
//
// It is not a No: a token is often used within a second of being issued, and reaches a
// replica that has not loaded it yet. The API server would cache a No for two minutes by
// default. It does not cache an error.
func unknownID(id string) verdict {
	return verdict{outcome: Unknown, reason: ReasonUnknownID, tokenID: id, message: "unknown access token"}
}

// Withdraw returns the Set without some access tokens and Grants, and with further revocations,
// which must take effect even if the rest of a new configuration is invalid. Tokens and Grants
// are those of the names of their documents. Invalid revocations are ignored. The receiver is
// unchanged.
func (s *Set) Withdraw(tokens, grants []string, revocations []Revocation) *Set {
	out := *s
	out.withdrawn, out.withdrawnGrants = withNames(s.withdrawn, tokens), withNames(s.withdrawnGrants, grants)
	out.revoked = maps.Clone(s.revoked)
	for i := range revocations {
		if one := &revocations[i]; len(one.check()) == 0 {
			out.revoked.add(one)
		}
	}
	return &out
}

// withNames returns a set of names with further ones.
func withNames(names map[string]struct{}, more []string) map[string]struct{} {
	out := make(map[string]struct{}, len(names)+len(more))
	maps.Copy(out, names)
	for _, name := range more {
		out[name] = struct{}{}
	}
	return out
}
