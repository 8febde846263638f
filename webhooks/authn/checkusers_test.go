package authn

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// directory and byClaim and byExpression are sources of identities.
func directory(prefix string) NamedDirectory {
	return NamedDirectory{Config: &v1alpha1.Directory{Name: "corp", UsernamePrefix: prefix}}
}

func byClaim(prefix string) Issuer {
	return mappedBy(apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix})
}

func mappedBy(m apiserver.PrefixedClaimOrExpression) Issuer {
	return Issuer{Config: &apiserver.JWTAuthenticator{ClaimMappings: apiserver.ClaimMappings{Username: m}}}
}

func TestRevocationOfNobody(t *testing.T) {
	t.Parallel()
	both := Spec{Directories: []NamedDirectory{directory("corp:")}, Issuers: []Issuer{byClaim("oidc:")}}
	tokens := []Token{{AccessToken: v1alpha1.AccessToken{Spec: v1alpha1.AccessTokenSpec{User: authenticationv1.UserInfo{Username: "ci-bot"}}}}}
	for name, c := range map[string]struct {
		spec Spec
		user string
		says string // empty if the user may be one
	}{
		"of a directory":           {both, "corp:jane", ""},
		"of an issuer":             {both, "oidc:jane", ""},
		"without a prefix":         {both, "jane", `"jane" is not the name of a user, so nothing is revoked: no access token has it, and names of directories and issuers begin with ["corp:" "oidc:"]`},
		"with nothing but one":     {both, "corp:", `"corp:" is not`},
		"of a token":               {Spec{Directories: both.Directories, Tokens: tokens}, "ci-bot", ""},
		"of no token":              {Spec{Directories: both.Directories, Tokens: tokens}, "cd-bot", `"cd-bot" is not`},
		"nothing but tokens":       {Spec{Tokens: tokens}, "jane", ""},
		"a directory gives any":    {Spec{Directories: []NamedDirectory{directory("corp:"), directory("")}}, "jane", ""},
		"an expression gives any":  {Spec{Directories: both.Directories, Issuers: []Issuer{mappedBy(apiserver.PrefixedClaimOrExpression{Expression: "claims.sub"})}}, "jane", ""},
		"an issuer that is broken": {Spec{Directories: both.Directories, Issuers: []Issuer{mappedBy(apiserver.PrefixedClaimOrExpression{Claim: "sub"})}}, "jane", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.spec.Revocations = []Revocation{
				{Source: "good.yaml", TokenRevocation: v1alpha1.TokenRevocation{Spec: v1alpha1.TokenRevocationSpec{User: "corp:bob"}}},
				{Source: "it.yaml", TokenRevocation: v1alpha1.TokenRevocation{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.TokenRevocationSpec{User: c.user}}},
			}
			found := checkUsers(&c.spec)
			if c.says == "" && len(found) > 0 || c.says != "" && (len(found) != 1 || found[0].Source != "it.yaml" || !strings.HasPrefix(found[0].Message, c.says) || found.Err() != nil) {
				t.Errorf("found %v", found)
			}
		})
	}
}
