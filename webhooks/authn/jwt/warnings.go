package jwt

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apiserver/pkg/apis/apiserver"
)

// Warning is a warning about an issuer's configuration.
type Warning struct {
	// Field is a path that begins at the JWTAuthenticator:
	// "claimMappings.username.prefix".
	Field string
	// Message says what is risky, Hint what to do about it, Code names the kind of
	// warning.
	Message, Hint, Code string
}

func warnings(config *apiserver.JWTAuthenticator) []Warning {
	var (
		list     []Warning
		username = config.ClaimMappings.Username
		groups   = config.ClaimMappings.Groups
	)
	switch username.Claim {
	case "email":
		if !requires(config, "email_verified") {
			list = append(list, Warning{
				Field:   "claimMappings.username.claim",
				Message: `claim "email" is used as the user name, even without email_verified: at some issuers, users can choose it freely`,
				Hint:    `add the claim validation rule claims.email_verified == true, or map "sub"`,
				Code:    "unverified-email",
			})
		}
	case "name", "given_name", "family_name", "nickname", "preferred_username", "upn", "unique_name":
		list = append(list, Warning{
			Field:   "claimMappings.username.claim",
			Message: fmt.Sprintf("claim %q is used as the user name: OpenID Connect does not guarantee that it is unique or never changes", username.Claim),
			Hint:    `map "sub", unless the issuer guarantees more`,
			Code:    "unstable-name",
		})
	}
	if w, ok := prefixless(username, "user"); ok {
		w.Field = "claimMappings.username." + w.Field
		list = append(list, w)
	}
	if w, ok := prefixless(groups, "group"); ok {
		w.Field = "claimMappings.groups." + w.Field
		list = append(list, w)
	}
	for i, rule := range config.ClaimValidationRules {
		switch rule.Claim {
		case "email_verified", "phone_number_verified", "exp", "iat", "nbf", "auth_time":
			list = append(list, Warning{
				Field:   fmt.Sprintf("claimValidationRules[%d].claim", i),
				Message: fmt.Sprintf("claim %q is not a string, and a required value is a string: every token is rejected", rule.Claim),
				Hint:    fmt.Sprintf("write an expression, such as claims.%s == true or claims.%[1]s > 0", rule.Claim),
				Code:    "never-matches",
			})
		}
	}
	return list
}

// prefixless warns of names that go into the cluster as the issuer writes them: a
// claim without a prefix, or an expression that is a claim alone.
func prefixless(m apiserver.PrefixedClaimOrExpression, what string) (Warning, bool) {
	w := Warning{
		Message: "no prefix: the issuer can claim any " + what + " of the cluster, including those of other issuers",
		Code:    "no-prefix",
	}
	name, alone := strings.CutPrefix(strings.TrimSpace(m.Expression), "claims.")
	switch {
	case m.Claim != "" && (m.Prefix == nil || *m.Prefix == ""):
		w.Field, w.Hint = "prefix", `set one, such as "oidc:"`
		return w, true
	case alone && name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }):
		w.Field, w.Hint = "expression", `add one, as in "oidc:" + claims.sub`
		return w, true
	}
	return w, false
}

// requires reports whether a rule looks at the claim.
func requires(config *apiserver.JWTAuthenticator, claim string) bool {
	return slices.ContainsFunc(config.ClaimValidationRules, func(rule apiserver.ClaimValidationRule) bool {
		return rule.Claim == claim || strings.Contains(rule.Expression, claim)
	})
}
