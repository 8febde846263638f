package authn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// checkRevocationUsers warns of revocations without effect because nobody has the name,
// such as one that lacks a prefix.
//
// Names come from access tokens, and from directories and issuers, whose names begin with
// their prefix. One without a prefix, or with an expression, can give any name. Without
// directories and issuers nothing is reported: the name may be that of an access token
// that was deleted.
func checkRevocationUsers(spec *Spec) diagnostic.List {
	prefixes, ok := prefixesOf(spec)
	if !ok {
		return nil
	}
	// There may be a hundred thousand tokens, and as many revocations.
	unknown := map[string]struct{}{}
	for i := range spec.Revocations {
		user := spec.Revocations[i].Spec.User
		if user != "" && !slices.ContainsFunc(prefixes, func(prefix string) bool { return len(user) > len(prefix) && strings.HasPrefix(user, prefix) }) {
			unknown[user] = struct{}{}
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	for i := range spec.Tokens {
		delete(unknown, spec.Tokens[i].Spec.User.Username)
	}
	var found diagnostic.List
	for i := range spec.Revocations {
		one := &spec.Revocations[i]
		if _, ok := unknown[one.Spec.User]; ok {
			found = append(found, diagnostic.Diagnostic{
				Severity: diagnostic.Warning, Source: one.Source, Object: "TokenRevocation/" + one.Name, Field: "spec.user", Code: "no-such-user",
				Message: fmt.Sprintf("%s is not the name of a user, so nothing is revoked: no access token has it, and names of directories and issuers begin with %q", quote(one.Spec.User), prefixes),
				Hint:    "write the name with its prefix; if the access tokens of this user are deleted, delete the revocation too",
			})
		}
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
