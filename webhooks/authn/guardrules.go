package authn

import (
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// guard is what the configuration adds to the identity guard, by source.
type guard map[string]*guardRules

// guardRules are about the identities of one source.
type guardRules struct {
	userPrefix, groupsPrefix string
	// allowed are reserved groups that the source may give.
	allowed []string
}

// of returns the rules about a source, nil if there are none.
func (g guard) of(source string) *guardRules {
	if len(g) == 0 {
		return nil
	}
	return g[source]
}

// violations are all the reasons for which the guard refuses an identity.
func (g guard) violations(by Backend, source string, u *authenticationv1.UserInfo) []violation {
	return violations(u, by, g.of(source))
}

// allows tells whether the rules let a reserved group pass.
func (r *guardRules) allows(group string) bool {
	return r != nil && slices.Contains(r.allowed, group)
}

// prefixFault judges a name by the prefix that the names of its source must have.
func prefixFault(name, prefix string) fault {
	if strings.HasPrefix(name, prefix) {
		return ""
	}
	return fault("must begin with " + quote(prefix) + ", as the configuration demands of this source")
}

// mayHave tells whether a backend may give a reserved extra key. Upstream's JWT
// authenticator itself makes the credential id of the claim jti.
func mayHave(by Backend, key string) bool {
	return by == JWTs && key == user.CredentialIDKey
}

// detailOf is what the guard found, for the operator.
func detailOf(found []violation) string {
	const most = 5
	parts := make([]string, 0, most+1)
	for i, v := range found {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(found)-most))
			break
		}
		parts = append(parts, v.field+": "+v.message)
	}
	return strings.Join(parts, "; ")
}

// isNeverAllowed tells groups that no configuration can let pass: the API server
// gives them itself, or takes a user that has them for one that is not logged in.
func isNeverAllowed(group string) bool {
	switch group {
	case user.AllAuthenticated, user.AllUnauthenticated:
		return true
	default:
		return false
	}
}

// newGuard takes the configuration's rules.
func newGuard(c *v1alpha1.GuardConfiguration) guard {
	g := guard{}
	of := func(source string) *guardRules {
		if g[source] == nil {
			g[source] = &guardRules{}
		}
		return g[source]
	}
	for _, p := range c.Prefixes {
		r := of(p.Source)
		r.userPrefix, r.groupsPrefix = p.Username, p.Groups
	}
	for _, a := range c.AllowedGroups {
		for _, source := range a.Sources {
			r := of(source)
			r.allowed = append(r.allowed, a.Name)
		}
	}
	return g
}
