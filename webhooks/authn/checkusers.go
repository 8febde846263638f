package authn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// checkUsers warns of revocations and Grants without effect because nobody has the name,
// such as one that lacks a prefix.
//
// Names come from access tokens, and from directories and issuers, whose names begin with
// their prefix. One without a prefix, or with an expression, can give any name. Without
// directories and issuers nothing is reported: the name may be that of an access token
// that was deleted.
func checkUsers(spec *Spec) diagnostic.List {
	prefixes, ok := prefixesOf(spec)
	if !ok {
		return nil
	}
	// There may be a hundred thousand tokens, and as many revocations.
	unknown := map[string]struct{}{}
	note := func(user string) {
		if user != "" && !slices.ContainsFunc(prefixes, func(prefix string) bool { return len(user) > len(prefix) && strings.HasPrefix(user, prefix) }) {
			unknown[user] = struct{}{}
		}
	}
	for i := range spec.Revocations {
		note(spec.Revocations[i].Spec.User)
	}
	for i := range spec.Grants {
		note(spec.Grants[i].Spec.Subject.User)
	}
	if len(unknown) == 0 {
		return nil
	}
	for i := range spec.Tokens {
		delete(unknown, spec.Tokens[i].Spec.User.Username)
	}
	var found diagnostic.List
	warn := func(source, object, field, user, effect, hint string) {
		if _, is := unknown[user]; is {
			found = append(found, diagnostic.Diagnostic{
				Severity: diagnostic.Warning, Source: source, Object: object, Field: field, Code: "no-such-user",
				Message: fmt.Sprintf("%s is not the name of a user, so nothing is %s: no access token has it, and names of directories and issuers begin with %q", quote(user), effect, prefixes),
				Hint:    "write the name with its prefix" + hint,
			})
		}
	}
	for i := range spec.Revocations {
		one := &spec.Revocations[i]
		warn(one.Source, "TokenRevocation/"+one.Name, "spec.user", one.Spec.User, "revoked", "; if the access tokens of this user are deleted, delete the revocation too")
	}
	for i := range spec.Grants {
		one := &spec.Grants[i]
		warn(one.Source, grantObject(one), "spec.subject.user", one.Spec.Subject.User, "given", "")
	}
	return found
}

// prefixesOf returns the prefixes of the names of all directories and issuers, sorted, each once. It
// returns false if there are none, or if one of them can give any name.
func prefixesOf(spec *Spec) ([]string, bool) {
	var all []string
	for i := range spec.Directories {
		all = append(all, spec.Directories[i].Config.UsernamePrefix)
	}
	for i := range spec.Issuers {
		m := &spec.Issuers[i].Config.ClaimMappings.Username
		if m.Expression != "" || m.Prefix == nil {
			return nil, false
		}
		all = append(all, *m.Prefix)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all, len(all) > 0 && all[0] != ""
}
