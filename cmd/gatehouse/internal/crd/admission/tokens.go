package admission

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// diagnoseToken compiles a token with the active guard, and with tokens of the same hash.
func diagnoseToken(current *config.Config, t *v1alpha1.AccessToken) diagnostic.List {
	var tokens []authn.Token
	for i := range current.Authn.Tokens {
		if other := &current.Authn.Tokens[i]; other.Name != t.Name && other.Spec.SHA256 == t.Spec.SHA256 {
			tokens = append(tokens, *other)
		}
	}
	tokens = append(tokens, authn.Token{Source: config.ClusterSource, AccessToken: *t})
	own, _ := partition(compileAuthn(current, authn.Spec{Tokens: tokens}), accessToken+"/"+t.Name)
	return own
}

// diagnoseRevocation compiles a revocation. Only its status says that there is no such user:
// anyone who reaches the port could find out which users have access tokens.
func diagnoseRevocation(current *config.Config, revocation *v1alpha1.TokenRevocation) diagnostic.List {
	object := tokenRevocation + "/" + revocation.Name
	own, _ := partition(compileAuthn(current, authn.Spec{
		Revocations: []authn.Revocation{{Source: config.ClusterSource, TokenRevocation: *revocation}},
	}), object)
	return own
}

// clock returns the clock of a configuration.
func clock(current *config.Config) func() time.Time {
	if current.Authn.Now != nil {
		return current.Authn.Now
	}
	return time.Now
}

// compileAuthn returns the diagnostics of a spec, to which it adds the guard. Directories
// and issuers of the configuration are not compiled again.
func compileAuthn(current *config.Config, spec authn.Spec) diagnostic.List {
	spec.Configuration = current.Authn.Configuration
	spec.Now = clock(current)
	set, err := authn.Compile(spec)
	if err != nil {
		return diagnosticsOf(err, nil)
	}
	return set.Warnings()
}
