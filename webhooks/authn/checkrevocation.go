package authn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// NoSuchUser returns why no token of the Spec can have a user name, and which name may be
// meant. Both are empty if one can, or if that is not known.
//
// Names come from access tokens, and from directories and issuers, whose names begin with
// their prefix. One without a prefix, or with an expression, can give any name. Without
// directories and issuers nothing is reported: the name may be that of an access token
// that was deleted.
func NoSuchUser(spec *Spec, user string) (problem, hint string) {
	p, ok := prefixesOf(spec)
	if !ok || p.match(user) || slices.ContainsFunc(spec.Tokens, func(t Token) bool { return t.Spec.User.Username == user }) {
		return "", ""
	}
	return p.explain(user)
}

// checkRevocationUsers warns of revocations without effect because nobody has the name,
// such as one that lacks a prefix.
func checkRevocationUsers(spec *Spec) diagnostic.List {
	p, ok := prefixesOf(spec)
	if !ok {
		return nil
	}
	// There may be a hundred thousand tokens, and as many revocations.
	unknown := map[string]struct{}{}
	for i := range spec.Revocations {
		if user := spec.Revocations[i].Spec.User; user != "" && !p.match(user) {
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
		if _, ok := unknown[one.Spec.User]; !ok {
			continue
		}
		problem, hint := p.explain(one.Spec.User)
		found = append(found, diagnostic.Diagnostic{
			Severity: diagnostic.Warning, Source: one.Source, Object: "TokenRevocation/" + one.Name, Field: "spec.user", Code: "no-such-user",
			Message: problem + ", so nothing is revoked",
			Hint:    hint + "; if the access tokens of this user are deleted, delete the revocation too",
		})
	}
	return found
}

// prefixes are the prefixes of the names of all directories and issuers, sorted, each once.
type prefixes []string

// prefixesOf returns false if there are no directories and issuers, or if one of them can
// give any name.
func prefixesOf(spec *Spec) (prefixes, bool) {
	var all prefixes
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

// match reports whether a name begins with one of them and is longer.
func (p prefixes) match(user string) bool {
	return slices.ContainsFunc(p, func(prefix string) bool { return len(user) > len(prefix) && strings.HasPrefix(user, prefix) })
}

// explain describes a name that begins with none of them, and suggests others.
func (p prefixes) explain(user string) (problem, hint string) {
	var meant prefixes
	for _, prefix := range p {
		if len(user) > len(prefix) && strings.EqualFold(user[:len(prefix)], prefix) {
			meant = prefixes{prefix + user[len(prefix):]}
			break
		}
		meant = append(meant, prefix+user)
	}
	problem = fmt.Sprintf("%s is not the name of a user: no access token has it, and names of directories and issuers begin with %s", quote(user), p.list())
	return problem, "perhaps " + meant.list()
}

// list lists a few of them.
func (p prefixes) list() string {
	const most = 5
	var words []string
	for i, text := range p {
		if i == most {
			words = append(words, fmt.Sprintf("%d others", len(p)-most))
			break
		}
		words = append(words, quote(text))
	}
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
