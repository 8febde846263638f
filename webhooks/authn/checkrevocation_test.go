package authn

import (
	"fmt"
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

func TestNoSuchUser(t *testing.T) {
	t.Parallel()
	both := Spec{Directories: []NamedDirectory{directory("corp:")}, Issuers: []Issuer{byClaim("oidc:")}}
	tokens := []Token{{AccessToken: v1alpha1.AccessToken{Spec: v1alpha1.AccessTokenSpec{User: authenticationv1.UserInfo{Username: "ci-bot"}}}}}
	many := Spec{}
	for i := range 7 {
		many.Directories = append(many.Directories, directory(fmt.Sprintf("d%d:", i)))
	}
	for name, c := range map[string]struct {
		spec Spec
		user string
		hint string // empty if the user may be one
	}{
		"of a directory":           {both, "corp:jane", ""},
		"of an issuer":             {both, "oidc:jane", ""},
		"without a prefix":         {both, "jane", `perhaps "corp:jane" or "oidc:jane"`},
		"with nothing but one":     {both, "corp:", `perhaps "corp:corp:" or "oidc:corp:"`},
		"in capitals":              {both, "Corp:jane", `perhaps "corp:jane"`},
		"of a token":               {Spec{Directories: both.Directories, Tokens: tokens}, "ci-bot", ""},
		"of no token":              {Spec{Directories: both.Directories, Tokens: tokens}, "cd-bot", `perhaps "corp:cd-bot"`},
		"nothing but tokens":       {Spec{Tokens: tokens}, "jane", ""},
		"nothing at all":           {Spec{}, "jane", ""},
		"a directory gives any":    {Spec{Directories: []NamedDirectory{directory("corp:"), directory("")}}, "jane", ""},
		"an issuer gives any":      {Spec{Directories: both.Directories, Issuers: []Issuer{byClaim("")}}, "jane", ""},
		"an expression gives any":  {Spec{Directories: both.Directories, Issuers: []Issuer{mappedBy(apiserver.PrefixedClaimOrExpression{Expression: "claims.sub"})}}, "jane", ""},
		"an issuer that is broken": {Spec{Directories: both.Directories, Issuers: []Issuer{mappedBy(apiserver.PrefixedClaimOrExpression{Claim: "sub"})}}, "jane", ""},
		"one prefix for two":       {Spec{Directories: []NamedDirectory{directory("corp:"), directory("corp:")}}, "jane", `perhaps "corp:jane"`},
		"many":                     {many, "jane", `perhaps "d0:jane", "d1:jane", "d2:jane", "d3:jane", "d4:jane" or 2 others`},
		"what no terminal shows":   {Spec{Directories: both.Directories}, "\x1b[31m", `perhaps "corp:\x1b[31m"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problem, hint := NoSuchUser(&c.spec, c.user)
			if hint != c.hint || (problem == "") != (c.hint == "") {
				t.Errorf("got %q, %q, want %q", problem, hint, c.hint)
			}
			if problem != "" && (!strings.HasPrefix(problem, quote(c.user)+" is not the name of a user: ") || !strings.Contains(problem, "begin with "+quote(c.spec.Directories[0].Config.UsernamePrefix))) {
				t.Errorf("got %q", problem)
			}
			// A document says the same as the command.
			c.spec.Revocations = []Revocation{
				{Source: "good.yaml", TokenRevocation: v1alpha1.TokenRevocation{Spec: v1alpha1.TokenRevocationSpec{User: "corp:bob"}}},
				{Source: "it.yaml", TokenRevocation: v1alpha1.TokenRevocation{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.TokenRevocationSpec{User: c.user}}},
			}
			if name == "many" {
				c.spec.Revocations = c.spec.Revocations[1:]
			}
			found := checkRevocationUsers(&c.spec)
			if c.hint == "" {
				if len(found) > 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Source != "it.yaml" || found[0].Object != "TokenRevocation/r" || found[0].Field != "spec.user" ||
				found[0].Message != problem+", so nothing is revoked" || !strings.HasPrefix(found[0].Hint, hint+"; ") || found.Err() != nil {
				t.Errorf("found %v", found)
			}
		})
	}
}
