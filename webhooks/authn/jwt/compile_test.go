package jwt_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*apiserver.JWTAuthenticator)
		want   []string // parts of the findings, in order
	}{
		{
			"nothing is configured", func(c *apiserver.JWTAuthenticator) { *c = apiserver.JWTAuthenticator{} },
			[]string{"issuer.url: Required value", "issuer.audiences: Required value", "claimMappings.username: Required value"},
		},
		{
			"an egress selector", func(c *apiserver.JWTAuthenticator) { c.Issuer.EgressSelectorType = "cluster" },
			[]string{`issuer.egressSelectorType: Invalid value: "cluster": is not supported: it chooses among the API server's own connections`},
		},
		{
			"a list in an expression", func(c *apiserver.JWTAuthenticator) {
				c.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Expression: `claims.groups.map(g, g + "x")`}
			},
			[]string{`write dyn(claims.groups).map(g, …) for claims.groups.map(g, …)`},
		},
		{
			"another mistake in an expression", func(c *apiserver.JWTAuthenticator) {
				c.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Expression: `claim.groups`}
			},
			[]string{"claimMappings.groups.expression: Invalid value: \"claim.groups\": compilation failed"},
		},
		{
			"all at once", func(c *apiserver.JWTAuthenticator) {
				c.Issuer.URL = "http://issuer.example.com"
				c.ClaimMappings.Extra = []apiserver.ExtraMapping{{Key: "authentication.kubernetes.io/node-name", ValueExpression: "'x'"}}
				c.UserValidationRules = []apiserver.UserValidationRule{{Expression: "user.name"}}
				c.Issuer.EgressSelectorType = "controlplane"
			},
			[]string{
				"issuer.url: Invalid value", "claimMappings.extra[0].key: Invalid value", "userValidationRules[0].expression: Invalid value",
				"issuer.egressSelectorType: Invalid value",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			config := plain()
			tc.change(config)
			a, errs := jwt.Compile(config, issuerKeys())
			if a != nil || len(errs) != len(tc.want) {
				t.Fatalf("got %v, %v", a, errs)
			}
			for i, want := range tc.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("got %s, want %s", errs[i], want)
				}
			}
			if tc.name == "another mistake in an expression" && strings.Contains(errs[0].Detail, "dyn(") {
				t.Errorf("the hint does not fit: %s", errs[0])
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*apiserver.JWTAuthenticator)
		want   []string
	}{
		{"as recommended", func(*apiserver.JWTAuthenticator) {}, nil},
		{
			"address that nobody verified", func(c *apiserver.JWTAuthenticator) { c.ClaimMappings.Username.Claim = "email" },
			[]string{"claimMappings.username.claim unverified-email"},
		},
		{
			"address with a rule", func(c *apiserver.JWTAuthenticator) {
				c.ClaimMappings.Username.Claim = "email"
				c.ClaimValidationRules = []apiserver.ClaimValidationRule{{Expression: "claims.email_verified == true"}}
			}, nil,
		},
		{
			"address with a rule that never holds", func(c *apiserver.JWTAuthenticator) {
				c.ClaimMappings.Username.Claim = "email"
				c.ClaimValidationRules = []apiserver.ClaimValidationRule{{Claim: "hd", RequiredValue: "x"}, {Claim: "email_verified", RequiredValue: "true"}}
			}, []string{"claimValidationRules[1].claim never-matches"},
		},
		{
			"name that people choose", func(c *apiserver.JWTAuthenticator) { c.ClaimMappings.Username.Claim = "preferred_username" },
			[]string{"claimMappings.username.claim unstable-name"},
		},
		{
			"no prefixes", func(c *apiserver.JWTAuthenticator) {
				c.ClaimMappings.Username.Prefix, c.ClaimMappings.Groups.Prefix = new(""), new("")
			}, []string{"claimMappings.username.prefix no-prefix", "claimMappings.groups.prefix no-prefix"},
		},
		{
			"expressions without prefixes", func(c *apiserver.JWTAuthenticator) {
				c.ClaimMappings.Username = apiserver.PrefixedClaimOrExpression{Expression: " claims.sub "}
				c.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Expression: "claims.groups"}
			}, []string{"claimMappings.username.expression no-prefix", "claimMappings.groups.expression no-prefix"},
		},
		{
			"expressions that may have some", func(c *apiserver.JWTAuthenticator) {
				c.ClaimMappings.Username = apiserver.PrefixedClaimOrExpression{Expression: `"oidc:" + claims.sub`}
				c.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Expression: `claims.?groups.orValue([])`}
			}, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			config := plain()
			tc.change(config)
			var got []string
			for _, w := range compile(t, config, nil).Warnings() {
				if w.Message == "" || w.Hint == "" {
					t.Errorf("%+v says too little", w)
				}
				got = append(got, w.Field+" "+w.Code)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestCompileKeepsNothing: what the caller does to its configuration later changes
// nothing.
func TestCompileKeepsNothing(t *testing.T) {
	t.Parallel()
	config := plain()
	a := compile(t, config, issuerKeys())
	config.Issuer.Audiences[0] = "changed"
	*config.ClaimMappings.Username.Prefix = "changed:"
	if v := ours(t, a, issue(t, "ES256", claims(""))); v.no != nil || !strings.Contains(v.user, `"oidc:jane"`) {
		t.Error(v)
	}
}

// TestRules: what does not hold is said in the words of the configuration.
func TestRules(t *testing.T) {
	t.Parallel()
	required := func(claim, value string) apiserver.JWTAuthenticator {
		return apiserver.JWTAuthenticator{ClaimValidationRules: []apiserver.ClaimValidationRule{{Claim: claim, RequiredValue: value}}}
	}
	claimRule := func(expression, message string) apiserver.JWTAuthenticator {
		return apiserver.JWTAuthenticator{ClaimValidationRules: []apiserver.ClaimValidationRule{{Expression: expression, Message: message}}}
	}
	userRule := func(expression, message string) apiserver.JWTAuthenticator {
		return apiserver.JWTAuthenticator{UserValidationRules: []apiserver.UserValidationRule{{Expression: expression, Message: message}}}
	}
	mapping := func(change func(*apiserver.ClaimMappings)) apiserver.JWTAuthenticator {
		m := plain().ClaimMappings
		change(&m)
		return apiserver.JWTAuthenticator{ClaimMappings: m}
	}
	expression := func(text string) apiserver.PrefixedClaimOrExpression {
		return apiserver.PrefixedClaimOrExpression{Expression: text}
	}
	for _, tc := range []struct {
		name string
		// config has the rules, and the mappings if there are any.
		config apiserver.JWTAuthenticator
		detail string
	}{
		{"required claim is not there", required("hd", "example.com"), `there is no claim "hd"`},
		{"required claim has another value", required("azp", "other"), `the claim "azp" is "kubernetes", want "other"`},
		{"required claim is a boolean", required("email_verified", "true"), `the claim "email_verified" is a boolean, want a string`},
		{"claim rule", claimRule(`claims.sub == "joe"`, "only Joe may come in"), `the claim validation expression "claims.sub == \"joe\"" failed: only Joe may come in`},
		{"claim rule without words", claimRule(`claims.sub == "joe"`, ""), `the claim validation expression "claims.sub == \"joe\"" failed`},
		{"claim rule cannot be evaluated", claimRule(`claims.nothing == "x"`, ""), `the claim validation expression cannot be evaluated: expression 'claims.nothing == "x"' resulted in error: no such key: nothing`},
		{"claim in an error", claimRule(`int(claims.long) == 1`, ""), `the claim validation expression cannot be evaluated`},
		{"user rule", userRule(`user.username == "joe"`, "only Joe may come in"), `the user validation expression "user.username == \"joe\"" failed: only Joe may come in`},
		{"user rule cannot be evaluated", userRule(`user.groups[7] == "joe"`, ""), `the user validation expression cannot be evaluated`},
		{"user name is a number", mapping(func(m *apiserver.ClaimMappings) { m.Username = expression(`claims.exp`) }), `the username expression results in a double, want a string`},
		{"user name is empty", mapping(func(m *apiserver.ClaimMappings) { m.Username = expression(`claims.sub == "jane" ? "" : "x"`) }), `the username expression results in an empty name`},
		{"groups are numbers", mapping(func(m *apiserver.ClaimMappings) { m.Groups = expression(`[claims.exp]`) }), `the groups expression does not result in a string or a list of strings`},
		{"groups are split", mapping(func(m *apiserver.ClaimMappings) { m.Groups = expression(`claims.email.split("@")`) }), `results in a list that cannot be mapped (hint: write .map(g, g) behind it)`},
		{"uid is a list", mapping(func(m *apiserver.ClaimMappings) { m.UID.Expression = `claims.groups` }), `the uid expression results in a list, want a string`},
		{"uid is not there", mapping(func(m *apiserver.ClaimMappings) { m.UID.Claim = "uid" }), `there is no claim "uid"`},
		{"extra is a number", mapping(func(m *apiserver.ClaimMappings) {
			m.Extra = []apiserver.ExtraMapping{{Key: "example.com/x", ValueExpression: "claims.exp"}}
		}), `the expression for the extra key "example.com/x" does not result in a string`},
		{"address is not verified", mapping(func(m *apiserver.ClaimMappings) { m.Username.Claim = "email" }), `the claim "email_verified" is false, want true`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			config := plain()
			config.ClaimValidationRules, config.UserValidationRules = tc.config.ClaimValidationRules, tc.config.UserValidationRules
			if m := tc.config.ClaimMappings; m.Username != (apiserver.PrefixedClaimOrExpression{}) {
				config.ClaimMappings = m
			}
			token := issue(t, "ES256", claims(`,"azp":"kubernetes","groups":["dev"],"email":"a@example.com","email_verified":false,"long":"`+strings.Repeat("x", 5000)+`"`))
			v := ours(t, compile(t, config, issuerKeys()), token)
			checkRefused(t, v.no, jwt.Claims, tc.detail)
			if their := theirs(t, upstream(t, config, issuerKeys()), token); their.no == nil {
				t.Errorf("upstream takes it: %s", their.user)
			}
		})
	}
}
