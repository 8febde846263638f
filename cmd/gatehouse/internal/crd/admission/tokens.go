package admission

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// judgeToken compiles a token with the guard that is in use, and with the tokens of
// the same hash, of which there should be none.
func judgeToken(current *config.Config, t *v1alpha1.AccessToken) diagnostic.List {
	var tokens []authn.Token
	for i := range current.Authn.Tokens {
		if other := &current.Authn.Tokens[i]; other.Name != t.Name && other.Spec.SHA256 == t.Spec.SHA256 {
			tokens = append(tokens, *other)
		}
	}
	tokens = append(tokens, authn.Token{Source: config.ClusterSource, AccessToken: *t})
	own, _ := about(compileAuthn(current, authn.Spec{Tokens: tokens}), accessToken+"/"+t.Name)
	return own
}

// judgeRevocation compiles a revocation. That it is about nobody is for its status to
// say: anybody who reaches the port could try which users have access tokens.
func judgeRevocation(current *config.Config, revocation *v1alpha1.TokenRevocation) diagnostic.List {
	object := tokenRevocation + "/" + revocation.Name
	own, _ := about(compileAuthn(current, authn.Spec{
		Revocations: []authn.Revocation{{Source: config.ClusterSource, TokenRevocation: *revocation}},
	}), object)
	return own
}

// clock is that of a configuration.
func clock(current *config.Config) func() time.Time {
	if current.Authn.Now != nil {
		return current.Authn.Now
	}
	return time.Now
}

// compileAuthn is everything that there is to say about a spec, to which it adds
// the guard. What the configuration says of directories and issuers is not looked
// at: it has compiled before.
func compileAuthn(current *config.Config, spec authn.Spec) diagnostic.List {
	spec.Configuration = current.Authn.Configuration
	spec.Now = clock(current)
	set, err := authn.Compile(spec)
	if err != nil {
		return listOf(err, nil)
	}
	return set.Warnings()
}
