package authn_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// TestPasswordInIssuerURL wants findings about a URL with a password in it that do
// not repeat the password.
func TestPasswordInIssuerURL(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, url, discoveryURL string
		want                    []string
	}{
		{
			"a password", "https://jane:hunter2@issuer.example", "",
			[]string{`jwt[0].issuer.url: is not shown, because what stands before its "@" may be a password: URL must not contain a username or password`},
		},
		{"more is wrong", "http://jane:hunter2@issuer.example", "", []string{`may be a password: URL scheme must be https`, `must not contain a username or password`}},
		{"not a URL", "https://jane:hunter2%zz@issuer.example", "", []string{`may be a password: it is not a URL`}},
		{"of discovery", "https://issuer.example", "https://jane:hunter2@issuer.example", []string{`jwt[0].issuer.discoveryURL: is not shown`}},
		{"none", "http://issuer.example", "", []string{`jwt[0].issuer.url: Invalid value: "http://issuer.example": URL scheme must be https`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			config := &apiserver.JWTAuthenticator{
				Issuer:        apiserver.Issuer{URL: tc.url, DiscoveryURL: tc.discoveryURL, Audiences: []string{"kubernetes"}},
				ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: new("")}},
			}
			issuers := []authn.Issuer{{Field: "jwt[0]", Config: config}, {Field: "jwt[1]", Config: config}}
			_, err := authn.Compile(authn.Spec{Now: func() time.Time { return noon }, Issuers: issuers})
			if err == nil {
				t.Fatal("it compiles")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("findings:\n%v\nwant %s", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the password is in the findings:\n%v", err)
			}
		})
	}
}
