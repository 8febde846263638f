package authn

import (
	"maps"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
)

// Scopes returns the named scopes of the configuration.
func (s *Set) Scopes() *authz.Set { return s.scopes }

// addScope adds the scope of a token to the identity of a Yes, behind the guard, which lets no source set it. A token whose scope
// is not known here, or would not be enforced, cannot be decided on: another replica may know it, and the API server may ask about
// scopes soon. It must not be a Yes, which would give the token all the rights of its user.
func (s *Set) addScope(v verdict, e *explanation) verdict {
	scope := v.scope
	if scope == nil {
		return v
	}
	unknown := func(reason Reason, detail string) verdict {
		e.add("scope", "%s", detail)
		return verdict{
			outcome: Unknown, reason: reason, source: v.source, tokenID: v.tokenID, detail: detail,
			message: "Gatehouse cannot enforce the scope of this token now: its log has the reason",
		}
	}
	if scope.Name != "" {
		if _, known := s.scopes.Rules(scope.Name); !known {
			return unknown(ReasonUnknownScope, "the scope "+quote(scope.Name)+" is not configured")
		}
	}
	if s.scopesEnforced == nil {
		return unknown(ReasonScopeNotEnforced, notServed)
	}
	if err := s.scopesEnforced(); err != nil {
		return unknown(ReasonScopeNotEnforced, err.Error())
	}
	if e != nil {
		e.add("scope", "%s", authz.ScopeText(scope))
	}
	identity := *v.identity
	identity.Extra = make(map[string]authenticationv1.ExtraValue, len(identity.Extra)+1)
	maps.Copy(identity.Extra, v.identity.Extra)
	identity.Extra[v1alpha1.ScopeExtraKey] = authz.Values(scope)
	v.identity = &identity
	return v
}

// notServed is the detail of a token with a scope where nothing enforces scopes.
const notServed = "this Gatehouse runs without --authorize, so API servers cannot ask it about requests of tokens with a scope (hint: serve --authorize, in the chart authentication.authorize)"

// scopeProblem returns what is wrong with the name of a scope that a login asks for, as a sentence with what to do; "" if nothing is.
func (s *Set) scopeProblem(name string) string {
	if name == "" {
		return ""
	}
	if s.scopesEnforced == nil {
		return "this server does not enforce scopes, so that a session with one could do nothing (hint: an administrator starts it with --authorize)"
	}
	if _, known := s.scopes.Rules(name); known {
		return ""
	}
	return "the scope " + quote(name) + " is not configured (hint: the scopes are " + strings.Join(s.scopes.Names(), ", ") + ")"
}
