package jwt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"math/big"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// usual are claims as an issuer writes them.
func usual() string {
	return claims(`,"iat":1700000000,"auth_time":1700000000,"nonce":"Q0ZVJ3TkFb","at_hash":"MTIzNDU2Nzg5MDEyMzQ1Ng","c_hash":"MTIzNDU2Nzg5MDEyMzQ1Ng",` +
		`"azp":"kubernetes","jti":"0d5c4c0d-2c5b-4a1e-8b3a-6e9a7f2f5d11","oid":"CgVqYW5lEgRsZGFw","email":"jane@example.com","email_verified":true,` +
		`"name":"Jane Doe","preferred_username":"jane","groups":["dev","eng","oncall"],"realm":{"name":"main","roles":["a","b"]}`)
}

// expressive is a configuration with two mappings, a uid, an extra key and four
// rules as expressions.
func expressive() *apiserver.JWTAuthenticator {
	c := plain()
	c.ClaimMappings = apiserver.ClaimMappings{
		Username: apiserver.PrefixedClaimOrExpression{Expression: `"oidc:" + claims.sub`},
		Groups:   apiserver.PrefixedClaimOrExpression{Expression: `dyn(claims.groups).map(g, "oidc:" + g)`},
		UID:      apiserver.ClaimOrExpression{Expression: `claims.oid`},
		Extra:    []apiserver.ExtraMapping{{Key: "example.com/realm", ValueExpression: `claims.realm.name`}},
	}
	c.ClaimValidationRules = []apiserver.ClaimValidationRule{
		{Expression: `claims.email_verified == true`, Message: "verify the address first"},
		{Expression: `claims.azp == "kubernetes"`, Message: "not the command line"},
	}
	c.UserValidationRules = []apiserver.UserValidationRule{
		{Expression: `!user.username.startsWith("system:")`, Message: "reserved"},
		{Expression: `user.groups.all(g, !g.startsWith("system:"))`, Message: "reserved"},
	}
	return c
}

// BenchmarkBare is what the signatures alone cost, with the standard library.
func BenchmarkBare(b *testing.B) {
	for _, alg := range []string{"RS256", "ES256"} {
		b.Run(alg, func(b *testing.B) {
			key := private(alg)
			text, _, _ := strings.Cut(issue(b, alg, usual()), ".x")
			text = text[:strings.LastIndexByte(text, '.')]
			sig := signature(b, alg, key, text)
			signed := []byte(text)
			b.ReportAllocs()
			for b.Loop() {
				sum := sha256.Sum256(signed)
				switch key := key.(type) {
				case *rsa.PrivateKey:
					if rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], sig) != nil {
						b.Fatal("not verified")
					}
				case *ecdsa.PrivateKey:
					if !ecdsa.Verify(&key.PublicKey, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
						b.Fatal("not verified")
					}
				}
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	forged := withKeyID(b, "RS256", "rsa")
	last := strings.LastIndexByte(forged, '.')
	forged = forged[:last+1] + encode(string(signature(b, "RS256", keyRing().stranger, forged[:last])))
	for _, bc := range []struct {
		name   string
		config *apiserver.JWTAuthenticator
		token  string
		yes    bool
	}{
		{"RS256/claims", withUID(), withKeyID(b, "RS256", "rsa"), true},
		{"ES256/claims", withUID(), withKeyID(b, "ES256", "p256"), true},
		{"RS256/expressions", expressive(), withKeyID(b, "RS256", "rsa"), true},
		{"ES256/expressions", expressive(), withKeyID(b, "ES256", "p256"), true},
		{"RS256/forged", withUID(), forged, false},
	} {
		b.Run(bc.name, func(b *testing.B) {
			a := compile(b, bc.config, issuerKeys())
			now := clock()
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				token, err := jwt.Parse(bc.token)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := a.Verify(ctx, token, now, nil); (err == nil) != bc.yes {
					b.Fatal(err)
				}
			}
		})
		b.Run(bc.name+"/upstream", func(b *testing.B) {
			a := upstream(b, bc.config, issuerKeys())
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := a.AuthenticateToken(ctx, bc.token); ok != bc.yes {
					b.Fatal(err)
				}
			}
		})
	}
}

func withKeyID(b *testing.B, alg, id string) string {
	b.Helper()
	return signed(b, alg, private(alg), `{"alg":"`+alg+`","kid":"`+id+`"}`, usual())
}

// BenchmarkForeign is the way to the issuer of a token that is for somebody else.
func BenchmarkForeign(b *testing.B) {
	token := issue(b, "RS256", strings.Replace(usual(), issuerURL, "https://elsewhere.example.com", 1))
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t, err := jwt.Parse(token)
			if err != nil || t.Issuer() == issuerURL {
				b.Fatal(err)
			}
		}
	})
	b.Run("upstream", func(b *testing.B) {
		a := upstream(b, plain(), issuerKeys())
		b.ReportAllocs()
		for b.Loop() {
			if _, ok, err := a.AuthenticateToken(b.Context(), token); ok || err != nil {
				b.Fatal(err)
			}
		}
	})
}
