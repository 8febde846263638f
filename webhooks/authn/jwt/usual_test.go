package jwt_test

import "k8s.io/apiserver/pkg/apis/apiserver"

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
