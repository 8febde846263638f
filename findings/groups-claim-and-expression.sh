#!/bin/sh
# groups-claim-and-expression.sh: where `claim: groups` and `expression: claims.groups` of an AuthenticationConfiguration differ.
#
#	sh findings/groups-claim-and-expression.sh
#
# A token without the claim logs in without groups by `claim`, and not at all by the expression. An empty group becomes a group of the prefix alone by `claim`, and
# is left out by the expression. `claims.groups.split(",")` compiles, and no login with the claim succeeds; with `.map(g, g)` behind it they do. One element that is no string
# ends the login either way. The authenticator is the API server's own.
# It needs Go and its module proxy. It ends with 1 if this changes.
set -eu
behaviour=$(sed -n '/^#\t/,/^# It needs/{/^#\t/d;/^# It needs/d;s/^# //p;}' "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"gopkg.in/go-jose/go-jose.v2"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/klog/v2"
)

// keys is the key of the issuer.
type keys struct{ public *rsa.PublicKey }

func (k keys) VerifySignature(_ context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token)
	check(err)
	return signed.Verify(k.public)
}

func main() {
	klog.SetLogger(logr.Discard())
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check(err)
	none, prefix := "", "oidc:"
	claim := apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: &prefix}
	expression := func(text string) apiserver.PrefixedClaimOrExpression {
		return apiserver.PrefixedClaimOrExpression{Expression: text}
	}
	changed := false
	for _, c := range []struct {
		claims string
		groups apiserver.PrefixedClaimOrExpression
		want   string
	}{
		{``, claim, "[]"},
		{``, expression("claims.groups"), "no login"},
		{`,"groups":["","dev"]`, claim, "[oidc: oidc:dev]"},
		{`,"groups":["","dev"]`, expression("claims.groups"), "[dev]"},
		{`,"groups":"dev,ops"`, expression(`claims.groups.split(",")`), "no login"},
		{`,"groups":"dev,ops"`, expression(`claims.groups.split(",").map(g, g)`), "[dev ops]"},
		{`,"groups":["dev",1]`, claim, "no login"},
		{`,"groups":["dev",1]`, expression("claims.groups"), "no login"},
	} {
		authenticator, err := oidc.New(context.Background(), oidc.Options{
			JWTAuthenticator: apiserver.JWTAuthenticator{
				Issuer:        apiserver.Issuer{URL: "https://issuer.example", Audiences: []string{"kubernetes"}},
				ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &none}, Groups: c.groups},
			},
			KeySet: keys{&key.PublicKey}, SupportedSigningAlgs: []string{"RS256"}, Compiler: cel.NewDefaultCompiler(),
		})
		check(err)
		got := "no login"
		if response, ok, err := authenticator.AuthenticateToken(context.Background(), sign(key, c.claims)); ok && err == nil {
			got = fmt.Sprint(response.User.GetGroups())
		}
		fmt.Printf("%q with claim %q, expression %q: %s\n", c.claims, c.groups.Claim, c.groups.Expression, got)
		changed = changed || got != c.want
	}
	if changed {
		fmt.Println("this has changed")
		os.Exit(1)
	}
}

func sign(key *rsa.PrivateKey, claims string) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, nil)
	check(err)
	now := time.Now().Unix()
	signed, err := signer.Sign([]byte(fmt.Sprintf(`{"iss":"https://issuer.example","aud":"kubernetes","sub":"jane","iat":%d,"exp":%d%s}`, now, now+3600, claims)))
	check(err)
	text, err := signed.CompactSerialize()
	check(err)
	return text
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
EOF
cat >go.mod <<'EOF'
module finding

go 1.26

require (
	github.com/go-logr/logr v1.4.3
	gopkg.in/go-jose/go-jose.v2 v2.6.3
	k8s.io/apiserver v0.37.2
	k8s.io/klog/v2 v2.140.0
)
EOF
unset GOFLAGS
GOWORK=off go mod tidy >tidy.log 2>&1 || { cat tidy.log; exit 2; }
echo "version: github.com/go-logr/logr v1.4.3, gopkg.in/go-jose/go-jose.v2 v2.6.3, k8s.io/apiserver v0.37.2, k8s.io/klog/v2 v2.140.0"
echo "behaviour: $behaviour"
echo "output:"
GOWORK=off go run .
