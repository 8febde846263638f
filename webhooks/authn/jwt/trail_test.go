package jwt_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// noon is when the tokens of these tests are looked at.
func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// TestTrail: a person reads each step, and what was not evaluated.
func TestTrail(t *testing.T) {
	t.Parallel()
	const (
		header   = `header: signed with ES256, key "p256"`
		lifetime = "lifetime: no iat, no nbf, expires 2096-10-02T07:06:40Z (exp), now 2026-11-20T12:00:00Z"
		audience = `audience: "kubernetes": "kubernetes" is among issuer.audiences ("kubernetes")`
		verified = `signature: verified with key "p256"`
		username = `username: "oidc:jane", from the claim "sub" behind the prefix "oidc:"`
		groups   = `groups: none, from the claim "groups" behind the prefix "oidc:"`
	)
	front := []string{header, lifetime, audience, verified, username, groups}
	required := func(claim, value string) apiserver.ClaimValidationRule {
		return apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value}
	}
	about := func(claims ...string) (rules []apiserver.ClaimValidationRule) {
		for _, expression := range claims {
			rules = append(rules, apiserver.ClaimValidationRule{Expression: expression})
		}
		return rules
	}
	rules := func(about []apiserver.ClaimValidationRule, users ...apiserver.UserValidationRule) func(*apiserver.JWTAuthenticator) {
		return func(c *apiserver.JWTAuthenticator) { c.ClaimValidationRules, c.UserValidationRules = about, users }
	}
	extra := func(c *apiserver.JWTAuthenticator) {
		for _, claim := range []string{"z", "a", "n"} {
			c.ClaimMappings.Extra = append(c.ClaimMappings.Extra, apiserver.ExtraMapping{Key: "example.com/" + claim, ValueExpression: "claims." + claim})
		}
	}
	users := []apiserver.UserValidationRule{
		{Expression: `user.username != "oidc:joe"`}, {Expression: `user.groups.size() == 0`, Message: "no groups"},
	}
	for name, tc := range map[string]struct {
		change  func(*apiserver.JWTAuthenticator)
		header  string
		payload string
		want    []string
		no      string
	}{
		"claims alone": {want: front},
		"all there is": {
			change: func(c *apiserver.JWTAuthenticator) {
				*c = *expressive()
				c.Issuer.Audiences, c.Issuer.AudienceMatchPolicy = []string{"ci", "kubernetes"}, apiserver.AudienceMatchPolicyMatchAny
				c.ClaimValidationRules = append(c.ClaimValidationRules, required("name", "Jane Doe"))
			},
			payload: strings.Replace(usual(), `"kubernetes"`, `["a","kubernetes"]`, 1),
			want: []string{
				header,
				"lifetime: issued 2023-11-14T22:13:20Z (iat), no nbf, expires 2096-10-02T07:06:40Z (exp), now 2026-11-20T12:00:00Z",
				`audience: ["a","kubernetes"]: "kubernetes" is among issuer.audiences ("ci", "kubernetes")`,
				verified,
				`username: "oidc:jane", from the expression "oidc:" + claims.sub`,
				`groups: "oidc:dev", "oidc:eng", "oidc:oncall", from the expression dyn(claims.groups).map(g, "oidc:" + g)`,
				`uid: "CgVqYW5lEgRsZGFw", from the expression claims.oid`,
				`extra: authentication.kubernetes.io/credential-id = "JTI=0d5c4c0d-2c5b-4a1e-8b3a-6e9a7f2f5d11", from the claim "jti"`,
				`extra: example.com/realm = "main", from the expression claims.realm.name`,
				`claimValidationRules[2]: true: the claim "name" is "Jane Doe"`,
				"claimValidationRules[0]: true: claims.email_verified == true",
				`claimValidationRules[1]: true: claims.azp == "kubernetes"`,
				`userValidationRules[0]: true: !user.username.startsWith("system:")`,
				`userValidationRules[1]: true: user.groups.all(g, !g.startsWith("system:"))`,
			},
		},
		"groups without a prefix, which can give that for emergencies": {
			change:  func(c *apiserver.JWTAuthenticator) { c.ClaimMappings.Groups.Prefix = new("") },
			payload: claims(`,"groups":["dev"]`),
			want:    append(front[:5:5], `groups: "dev", from the claim "groups"`),
		},
		"no key id": {header: `{"alg":"ES256"}`, want: append([]string{"header: signed with ES256, names no key"}, front[1:]...)},
		"all times": {
			payload: claims(`,"iat":1700000000,"nbf":1700000060`),
			want: append([]string{
				header, "lifetime: issued 2023-11-14T22:13:20Z (iat), not before 2023-11-14T22:14:20Z (nbf), expires 2096-10-02T07:06:40Z (exp), now 2026-11-20T12:00:00Z",
			}, front[2:]...),
		},
		"expired": {
			payload: endless(`1700003600,"iat":1700000000`), no: "expired: it expired at 2023-11-14T23:13:20Z, now is 2026-11-20T12:00:00Z",
			want: []string{header, "lifetime: issued 2023-11-14T22:13:20Z (iat), no nbf, expires 2023-11-14T23:13:20Z (exp), now 2026-11-20T12:00:00Z"},
		},
		"without an end": {
			payload: strings.Replace(claims(`,"nbf":null`), "exp", "end", 1), no: "expired: it has no claim exp",
			want: []string{header, "lifetime: no iat, no nbf, no exp, now 2026-11-20T12:00:00Z"},
		},
		"for somebody else": {
			payload: strings.Replace(claims(""), `"kubernetes"`, `["vault","ci"]`, 1), no: `audience: it is for ["vault","ci"], want one of "kubernetes"`,
			want: []string{header, lifetime, `audience: ["vault","ci"]: none is among issuer.audiences ("kubernetes")`},
		},
		"for nobody": {
			payload: strings.Replace(claims(""), "aud", "auds", 1), no: "audience: it is for no audience",
			want: []string{header, lifetime, `audience: no audience: none is among issuer.audiences ("kubernetes")`},
		},
		"an expression for the name that does not fit": {
			change: func(c *apiserver.JWTAuthenticator) {
				c.ClaimMappings.Username = apiserver.PrefixedClaimOrExpression{Expression: "claims.n"}
			},
			payload: claims(`,"n":7`), no: "claims: the username expression results in a double, want a string",
			want: append(front[:4:4], "username: error, from the expression claims.n"),
		},
		"groups that do not fit": {
			payload: claims(`,"groups":7`), no: `claims: the claim "groups" is a number`,
			want: append(front[:5:5], `groups: error, from the claim "groups" behind the prefix "oidc:"`),
		},
		"many groups": {
			payload: claims(`,"groups":["` + strings.Repeat(`g","`, 29) + `g"]`),
			want:    append(front[:5:5], "groups: "+strings.Repeat(`"oidc:g", `, 20)+`and 10 more, from the claim "groups" behind the prefix "oidc:"`),
		},
		"a uid that is not there": {
			change:  func(c *apiserver.JWTAuthenticator) { c.ClaimMappings.UID.Claim = "oid" },
			payload: claims(""), no: `claims: there is no claim "oid"`, want: append(front[:6:6], `uid: error, from the claim "oid"`),
		},
		"extra keys in the order of the configuration": {
			change:  extra,
			payload: claims(`,"z":["y","x"],"a":"b","n":null`),
			want: append(front[:6:6], `extra: example.com/z = "y", "x", from the expression claims.z`,
				`extra: example.com/a = "b", from the expression claims.a`, "extra: example.com/n = none, from the expression claims.n"),
		},
		"extra keys that cannot be": {
			change:  extra,
			payload: claims(`,"z":5,"n":"m"`), no: "claims: the extra expression cannot be evaluated: expression 'claims.a' resulted in error: no such key: a",
			want: append(front[:6:6], "extra: example.com/z = error: neither a string nor a list of strings, from the expression claims.z",
				"extra: example.com/a = error: no such key: a, from the expression claims.a", "extra: example.com/n = not evaluated, from the expression claims.n"),
		},
		"a claim that has another value": {
			change:  rules(append(about(`claims.sub != ""`), required("a", "b"), required("c", "d"), required("e", "f")), users...),
			payload: claims(`,"a":"b","c":"x"`), no: `claims: the claim "c" is "x", want "d"`,
			want: append(front[:6:6], `claimValidationRules[1]: true: the claim "a" is "b"`, `claimValidationRules[2]: false: the claim "c" is "x", want "d"`,
				`claimValidationRules[3]: not evaluated: the claim "e" must be "f"`, `claimValidationRules[0]: not evaluated: claims.sub != ""`,
				`userValidationRules[0]: not evaluated: user.username != "oidc:joe"`, "userValidationRules[1]: not evaluated: user.groups.size() == 0"),
		},
		"a rule that does not hold": {
			change:  rules(about("claims.a == 1.0", "claims.a == 2.0", "claims.a < 2.0", "claims.a == 4.0"), users[0]),
			payload: claims(`,"a":1`), no: `claims: the claim validation expression "claims.a == 2.0" failed`,
			want: append(front[:6:6], "claimValidationRules[0]: true: claims.a == 1.0", "claimValidationRules[1]: false: claims.a == 2.0",
				"claimValidationRules[2]: true: claims.a < 2.0", "claimValidationRules[3]: false: claims.a == 4.0",
				`userValidationRules[0]: not evaluated: user.username != "oidc:joe"`),
		},
		"a rule that cannot be evaluated, behind one that does not hold": {
			change:  rules(about("claims.a == 2.0", "claims.b == 2.0", "claims.a < 2.0"), users[0]),
			payload: claims(`,"a":1`), no: "claims: the claim validation expression cannot be evaluated: expression 'claims.b == 2.0' resulted in error: no such key: b",
			want: append(front[:6:6], "claimValidationRules[0]: false: claims.a == 2.0", "claimValidationRules[1]: error: no such key: b: claims.b == 2.0",
				"claimValidationRules[2]: not evaluated: claims.a < 2.0", `userValidationRules[0]: not evaluated: user.username != "oidc:joe"`),
		},
		"a rule about the user that does not hold": {
			change:  rules(about("claims.sub == 'jane'"), append(users[:2:2], apiserver.UserValidationRule{Expression: "user.uid == ''"})...),
			payload: claims(`,"groups":"dev"`), no: `claims: the user validation expression "user.groups.size() == 0" failed: no groups`,
			want: append(front[:5:5], `groups: "oidc:dev", from the claim "groups" behind the prefix "oidc:"`, "claimValidationRules[0]: true: claims.sub == 'jane'",
				`userValidationRules[0]: true: user.username != "oidc:joe"`, "userValidationRules[1]: false: user.groups.size() == 0", "userValidationRules[2]: true: user.uid == ''"),
		},
		"a long expression on two lines": {
			change: rules(about("claims.sub\n!= '" + strings.Repeat("x", 200) + "'")),
			want:   append(front[:6:6], `claimValidationRules[0]: true: claims.sub\n!= '`+strings.Repeat("x", 105)+"…"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := plain()
			if tc.change != nil {
				tc.change(config)
			}
			if tc.payload == "" {
				tc.payload = claims("")
			}
			if tc.header == "" {
				tc.header = `{"alg":"ES256","kid":"p256"}`
			}
			trail, err := steps(t.Context(), t, compile(t, config, issuerKeys()), signed(t, "ES256", private("ES256"), tc.header, tc.payload))
			if got := fmt.Sprint(err); tc.no == "" && err != nil || !strings.HasPrefix(got, tc.no) {
				t.Errorf("%s, want %q", got, tc.no)
			}
			if got, want := strings.Join(trail, "\n"), strings.Join(tc.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// steps returns the trail of a token, a line a step, and the error of Verify.
func steps(ctx context.Context, t *testing.T, a *jwt.Authenticator, text string) (steps []string, err error) {
	t.Helper()
	token, err := jwt.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Verify(ctx, token, noon(), func(step, found string) { steps = append(steps, step+": "+found) })
	return steps, err
}

// TestTrailWithoutTime: a rule that took too long is not said to be wrong.
func TestTrailWithoutTime(t *testing.T) {
	t.Parallel()
	config := plain()
	slow := `dyn(claims.groups).all(a, dyn(claims.groups).all(b, dyn(claims.groups).all(c, a + b + c != "")))`
	config.ClaimValidationRules = []apiserver.ClaimValidationRule{{Expression: slow}, {Expression: "claims.sub != ''"}}
	ctx, cancel := context.WithCancel(t.Context())
	trail, err := steps(ctx, t, compile(t, config, keysFunc(func(ctx context.Context, id string) ([]jwt.Key, error) {
		cancel()
		return issuerKeys().Find(ctx, id)
	})), issue(t, "ES256", claims(`,"groups":["`+strings.Repeat(`g","`, 100)+`g"]`)))
	if _, ok := errors.AsType[*jwt.Refusal](err); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	got := strings.Join(trail[max(0, len(trail)-2):], "\n")
	if want := "claimValidationRules[0]: no time: " + slow + "\nclaimValidationRules[1]: not evaluated: claims.sub != ''"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTrailDecidesNothing: with a trail the answer is the same, and what is told
// does not contradict it.
func TestTrailDecidesNothing(t *testing.T) {
	t.Parallel()
	var yes, no int
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 11)) // #nosec G404 -- the same tokens at each run
		a, errs := jwt.Compile(randomConfig(r), issuerKeys())
		if len(errs) > 0 {
			continue
		}
		for range 20 {
			switch by, err := checkTrail(t, a, issue(t, "ES256", randomClaims(r))); {
			case err == nil:
				yes++
			case by:
				no++
			}
		}
	}
	if yes < 100 || no < 20 {
		t.Errorf("only %d tokens are taken, and %d refused by expressions", yes, no)
	}
}

// checkTrail verifies a token without a trail and with one, and fails the test
// where they differ, or what is told is no line or contradicts the answer. It
// returns the error of Verify, or of Parse, and whether it is about expressions in
// lists, which are told of one by one.
func checkTrail(t testing.TB, a *jwt.Authenticator, text string) (byExpression bool, err error) {
	t.Helper()
	token, err := jwt.Parse(text)
	if err != nil {
		return false, err
	}
	now := clock()
	proof, err := a.Verify(t.Context(), token, now, nil)
	var bad []string
	again, other := a.Verify(t.Context(), token, now, func(step, found string) {
		if len(found) > 6000 || strings.ContainsAny(found, "\n\r\x00\x1b") {
			t.Errorf("%s: too long for a line, or breaks it: %q", step, found)
		}
		_, extra, _ := strings.Cut(found, " = ")
		rule := strings.Contains(step, "ValidationRules[")
		if rule && !strings.HasPrefix(found, "true: ") || strings.HasPrefix(found, "error, from") || step == "extra" && strings.HasPrefix(extra, "error: ") {
			bad = append(bad, step+": "+found)
		}
	})
	if !reflect.DeepEqual(proof, again) || fmt.Sprint(err) != fmt.Sprint(other) {
		t.Errorf("%+v, %v without a trail, and %+v, %v with one", proof, err, again, other)
	}
	byExpression = err != nil && (strings.Contains(err.Error(), "validation expression") || strings.Contains(err.Error(), "the extra expression"))
	if err == nil && len(bad) > 0 || byExpression && len(bad) == 0 {
		t.Errorf("the answer is %v, and the trail has %q", err, bad)
	}
	return byExpression, err
}
