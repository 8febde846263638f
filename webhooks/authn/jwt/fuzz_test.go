package jwt_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// fuzzConfigs are configurations of all sorts.
func fuzzConfigs() []*apiserver.JWTAuthenticator {
	email := plain()
	email.ClaimMappings.Username = apiserver.PrefixedClaimOrExpression{Claim: "email", Prefix: new("")}
	email.ClaimValidationRules = []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "example.com"}}
	loose := plain()
	loose.Issuer.Audiences = []string{"a", "kubernetes"}
	loose.Issuer.AudienceMatchPolicy = apiserver.AudienceMatchPolicyMatchAny
	loose.ClaimMappings = apiserver.ClaimMappings{
		Username: apiserver.PrefixedClaimOrExpression{Expression: `claims.?sub.orValue("") == "" ? "nobody" : string(claims.sub)`},
		Groups:   apiserver.PrefixedClaimOrExpression{Expression: `claims.?groups.orValue([])`},
		UID:      apiserver.ClaimOrExpression{Expression: `claims.?oid.orValue("none")`},
		Extra: []apiserver.ExtraMapping{
			{Key: "example.com/nested", ValueExpression: `claims.?nested.list[0].a__dot__b.orValue("")`},
			{Key: "example.com/count", ValueExpression: `string(size(claims))`},
		},
	}
	loose.UserValidationRules = []apiserver.UserValidationRule{{Expression: `user.groups.size() < 4 && user.extra.size() > 0`}}
	return []*apiserver.JWTAuthenticator{plain(), withUID(), email, loose, expressive()}
}

// FuzzClaims puts tokens of any header and payload, rightly signed, to us and to
// the API server's own authenticator.
func FuzzClaims(f *testing.F) {
	configs := fuzzConfigs()
	us, them := make([]*jwt.Authenticator, len(configs)), make([]authenticator.Token, len(configs))
	for i, config := range configs {
		us[i], them[i] = compile(f, config, issuerKeys()), upstream(f, config, issuerKeys())
	}
	header := `{"alg":"ES256","kid":"p256","typ":"JWT"}`
	for i := range configs {
		f.Add(uint8(i), header, usual())                                                                                                                                           // #nosec G115 -- a few
		f.Add(uint8(i), `{"alg":"ES256"}`, claims(`,"groups":"dev","email":"x","email_verified":true,"hd":"example.com","nested":{"list":[{"a.b":"c"}]},"oid":null`))              // #nosec G115 -- a few
		f.Add(uint8(i), `{"alg":"ES256","nonce":null,"b64":true}`, endless(`"4000000000","nbf":null,"iat":1e9,"nonce":"","at_hash":null,"_claim_names":{},"_claim_sources":null`)) // #nosec G115 -- a few
	}
	f.Fuzz(func(t *testing.T, which uint8, header, payload string) {
		i := int(which) % len(configs)
		text := encode(header) + "." + encode(payload)
		text += "." + encode(string(signature(t, "ES256", private("ES256"), text)))
		_, _ = checkTrail(t, us[i], text) // what it returns is compared with upstream's below
		if our, their := ours(t, us[i], text), theirs(t, them[i], text); our.no == nil && their.no != nil &&
			strings.Contains(their.no.Error(), "malformed jwt: failed to unmarshal ") {
			return // a header that nothing needs: see TestOtherHeadersAreIgnored
		}
		compare(t, us[i], them[i], text, fmt.Sprintf("configuration %d\n%s\n%s", i, header, payload))
	})
}
