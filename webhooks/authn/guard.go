package authn

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The identity guard refuses identities that are not a backend's to give. It is
// always on and stands behind every backend: Kubernetes gives these identities a
// meaning of its own, and the API server takes each of them from a webhook without
// a question. The one exception is a reserved group that the configuration names,
// together with the source that may give it.
//
// Everything under "system:" is refused rather than a list of names, because
// the list grows. Known today, from k8s.io/apiserver and k8s.io/kubernetes 0.37:
//
//	system:masters                       passes every authorizer; apiserver pkg/authentication/user SystemPrivilegedGroup,
//	                                     pkg/server/options/authorization.go AlwaysAllowGroups
//	system:anonymous                     user.Anonymous; a request of it is treated as not logged in
//	system:unauthenticated               user.AllUnauthenticated
//	system:authenticated                 user.AllAuthenticated; the API server adds it, and does not where a backend has
//	system:apiserver                     user.APIServerUser; the API server's own loopback client
//	system:kube-proxy, system:kube-controller-manager, system:kube-scheduler
//	                                     user.KubeProxy and so on; bound in bootstrappolicy/policy.go
//	system:nodes, system:node:<name>     user.NodesGroup; pkg/auth/nodeidentifier: a kubelet, to the node authorizer
//	system:monitoring                    user.MonitoringGroup; bound to metrics and health
//	system:serviceaccount:<ns>:<name>, system:serviceaccounts, system:serviceaccounts:<ns>
//	                                     apiserver pkg/authentication/serviceaccount
//	system:bootstrap:<id>, system:bootstrappers, system:bootstrappers:<name>
//	                                     k8s.io/cluster-bootstrap/token/api
//	system:unsecured                     apiserver pkg/server/deprecated_insecure_serving.go
//
// Extra keys under kubernetes.io and k8s.io feed decisions of the API server:
// authentication.kubernetes.io/node-name, pod-name, credential-id and others of
// pkg/authentication/serviceaccount. apiserver reserves both domains and asks for
// lower case in pkg/apis/apiserver/validation. (An upper-case key does not
// survive impersonation, whose keys travel as HTTP headers.)
//
// Authorizers compare names exactly, so a variant such as " System:Masters"
// has no power; it is refused because people who read a log take it for what it
// looks like.
//
// One group is Gatehouse's own: what its members do is not sent to Gatehouse where
// that fails closed. A cluster administrator says by impersonation that it is an
// emergency; no source of identities may, and there is no exception.

// maxNameBytes bounds every text of an identity. Long names are no longer read
// by anybody, and every audit event of the user repeats them. X.509 subjects and
// LDAP names stay well below it.
const maxNameBytes = 1024

// fault is what is wrong with one text, as the end of a sentence that begins
// with the text in quotes. The zero fault is none.
type fault string

const (
	faultEmpty    fault = `must not be empty`
	faultReserved fault = `is reserved: names that begin with "system:" belong to Kubernetes itself`
	faultGlass    fault = `is reserved: what members of "` + v1alpha1.BreakGlassGroup + `" do is not sent to Gatehouse, so that the group is given by impersonation alone`
	faultSpace    fault = `must not begin or end with white space`
	faultControl  fault = `must not hold control or invisible characters`
	faultUTF8     fault = `must be valid UTF-8`
	faultReplaced fault = `must not hold U+FFFD, which stands for what could not be read: different names would be one`
	faultJoiner   fault = `must not begin or end with an invisible joiner`
	faultLong     fault = `must not be longer than 1024 bytes`
	faultKeyOwner fault = `is reserved: extra keys under kubernetes.io and k8s.io belong to Kubernetes itself`
	faultKeyCase  fault = `must be lower case`
	faultKeySpace fault = `must not hold white space`
)

// violation is one reason why an identity is refused.
type violation struct {
	// field is the path within a UserInfo: "groups[1]".
	field   string
	message string
}

// violations are all the reasons for which the guard refuses an identity that a
// backend gives, in the order of their fields; none means that it passes. Nothing
// is allocated then. The rules of its source may be nil.
func violations(u *authenticationv1.UserInfo, by Backend, rules *guardRules) []violation {
	var found []violation
	add := func(f fault, value, format string, args ...any) {
		found = append(found, violation{fmt.Sprintf(format, args...), quote(value) + " " + string(f)})
	}
	if f := nameFault(u.Username); f != "" {
		add(f, u.Username, "username")
	} else if rules != nil {
		if f := prefixFault(u.Username, rules.userPrefix); f != "" {
			add(f, u.Username, "username")
		}
	}
	if f := textFault(u.UID); f != "" {
		add(f, u.UID, "uid")
	}
	for i, group := range u.Groups {
		if breaksGlass(group) {
			add(faultGlass, group, "groups[%d]", i)
			continue
		}
		if rules.allows(group) {
			continue
		}
		if f := nameFault(group); f != "" {
			add(f, group, "groups[%d]", i)
		} else if rules != nil {
			if f := prefixFault(group, rules.groupsPrefix); f != "" {
				add(f, group, "groups[%d]", i)
			}
		}
	}
	// A map has no order, and only what has faults is worth sorting.
	if extraFaulty(u.Extra) {
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			if f := keyFault(key); f != "" && !mayHave(by, key) {
				add(f, key, "extra[%s]", quote(key))
			}
			for i, value := range u.Extra[key] {
				if f := textFault(value); f != "" {
					add(f, value, "extra[%s][%d]", quote(key), i)
				}
			}
		}
	}
	return found
}

// extraFaulty tells whether any key or value of an identity's extra has a fault.
func extraFaulty(extra map[string]authenticationv1.ExtraValue) bool {
	for key, values := range extra {
		if keyFault(key) != "" || slices.ContainsFunc(values, func(v string) bool { return textFault(v) != "" }) {
			return true
		}
	}
	return false
}

// nameFault judges a user name or a group.
func nameFault(name string) fault {
	switch {
	case name == "":
		return faultEmpty
	case len(name) <= maxNameBytes && reserved(name):
		// Before the other rules, because " system:masters" is a matter of more
		// than its space.
		return faultReserved
	}
	if f := textFault(name); f != "" {
		return f
	}
	if strings.TrimSpace(name) != name {
		return faultSpace
	}
	if strings.Trim(name, string(nonJoiner)+string(joiner)) != name {
		return faultJoiner
	}
	return ""
}

// keyFault judges a key of extra.
func keyFault(key string) fault {
	if key == "" {
		return faultEmpty
	}
	if f := textFault(key); f != "" {
		return f
	}
	lower := strings.ToLower(key)
	// The domain is all of a key without a slash: keys of the form
	// scopes.authorization.example.org are in use too.
	domain, _, _ := strings.Cut(lower, "/")
	domain = strings.TrimSuffix(strings.TrimSpace(domain), ".")
	switch {
	case domain == "kubernetes.io", strings.HasSuffix(domain, ".kubernetes.io"),
		domain == "k8s.io", strings.HasSuffix(domain, ".k8s.io"):
		return faultKeyOwner
	case lower != key:
		return faultKeyCase
	case strings.ContainsFunc(key, unicode.IsSpace):
		return faultKeySpace
	}
	return ""
}

// textFault judges what is common to all texts of an identity.
func textFault(s string) fault {
	if len(s) > maxNameBytes {
		return faultLong
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			return wideTextFault(s[i:])
		case c < ' ' || c == 0x7f:
			return faultControl
		}
	}
	return ""
}

// wideTextFault is textFault for text beyond ASCII.
func wideTextFault(s string) fault {
	if !utf8.ValidString(s) {
		return faultUTF8
	}
	for _, r := range s {
		if r == utf8.RuneError {
			return faultReplaced
		}
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) || invisible(r) {
			return faultControl
		}
	}
	return ""
}

// The joiners, which are not seen themselves.
const nonJoiner, joiner = '\u200c', '\u200d'

// invisible tells whether a character is not seen, or changes how its
// neighbours are shown. The joiners are spelling in several scripts.
func invisible(r rune) bool {
	return unseen(r) && r != nonJoiner && r != joiner
}

// unseen is invisible with the joiners.
func unseen(r rune) bool {
	const emptyBraille = '\u2800'
	return r == emptyBraille || unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// reserved tells whether a name begins with "system:" to somebody who reads it.
func reserved(name string) bool { return readsAs(name, "system:") }

// breaksGlass tells whether a group is, or reads like, that of emergencies.
func breaksGlass(group string) bool {
	return len(group) <= maxNameBytes && readsAs(group, v1alpha1.BreakGlassGroup)
}

// readsAs tells whether a name begins with a text, in lower case, to somebody who
// reads it: whatever the case, and whatever white space or invisible characters are
// before it or in it.
func readsAs(name, text string) bool {
	rest := text
	for _, r := range name {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unseen(r) {
			continue
		}
		// By way of upper case, so that the long s (U+017F) folds as well.
		if unicode.ToLower(unicode.ToUpper(r)) != rune(rest[0]) {
			return false
		}
		if rest = rest[1:]; rest == "" {
			return true
		}
	}
	return false
}

// quote shows a value in a message: in quotes, in printable ASCII, not all of a
// very long one.
func quote(s string) string {
	const limit = 64
	if len(s) <= limit {
		return fmt.Sprintf("%+q", s)
	}
	return fmt.Sprintf("%+q… (%d bytes)", s[:limit], len(s))
}
