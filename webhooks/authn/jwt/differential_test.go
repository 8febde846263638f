package jwt_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// stricter are the refusals that upstream does not share, by a part of their
// text. TestStricterThanUpstream has a token for each.
func stricter() []string {
	return []string{
		"twice",                          // members that occur twice
		"only in case",                   // names that differ in case only
		"the header has crit",            //
		"the header has b64",             //
		"is a distributed claim",         // fetched by upstream
		"is the user name, and is empty", //
		"not base64url",                  // stray bits
		"a line break",                   //
		"invalid UTF-8",                  // replaced by upstream
		"it does not have three parts",   // space around, or a header that begins with space
		"a number of seconds",            // times out of range
		"(RSA keys need 2048 bits",       // keys that do not fit
		"out of ",                        //
	}
}

// verdict is what was made of a token, in a form to compare and to read.
type verdict struct {
	user string
	no   error
}

func ours(t testing.TB, a *jwt.Authenticator, text string) verdict {
	t.Helper()
	token, err := jwt.Parse(text)
	if err == nil {
		var proof *jwt.Proof
		if proof, err = a.Verify(t.Context(), token, clock(), nil); err == nil {
			extra := map[string][]string{}
			for key, values := range proof.User.Extra {
				extra[key] = values
			}
			return verdict{user: shown(proof.User.Username, proof.User.UID, proof.User.Groups, extra)}
		}
	}
	if _, ok := errors.AsType[*jwt.Refusal](err); !ok {
		t.Fatalf("%q could not be decided: %v", text, err)
	}
	return verdict{no: err}
}

func theirs(t testing.TB, a authenticator.Token, text string) verdict {
	t.Helper()
	resp, ok, err := a.AuthenticateToken(t.Context(), text)
	if err != nil {
		return verdict{no: err}
	}
	if !ok {
		return verdict{no: errors.New("foreign")}
	}
	return verdict{user: shown(resp.User.GetName(), resp.User.GetUID(), resp.User.GetGroups(), resp.User.GetExtra())}
}

func shown(name, uid string, groups []string, extra map[string][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name %q uid %q groups %q", name, uid, groups)
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		fmt.Fprintf(&b, " %s %q", key, extra[key])
	}
	return b.String()
}

// compare fails the test where we and upstream differ on a token, and the
// difference is not one that we mean.
func compare(t testing.TB, us *jwt.Authenticator, them authenticator.Token, text, about string) (yes bool) {
	t.Helper()
	our, their := ours(t, us, text), theirs(t, them, text)
	if our.no == nil && their.no == nil && our.user == their.user {
		return true
	}
	if our.no != nil && their.no != nil {
		return false
	}
	if our.no != nil && slices.ContainsFunc(stricter(), func(part string) bool { return strings.Contains(our.no.Error(), part) }) {
		return false
	}
	t.Errorf("%s\nours     %s %v\nupstream %s %v", about, our.user, our.no, their.user, their.no)
	return false
}

// pick chooses one of a list.
func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// prefer chooses one of a list that has the likely ones in its front half.
func prefer[T any](r *rand.Rand, list ...T) T {
	if r.IntN(6) > 0 {
		list = list[:len(list)/2]
	}
	return pick(r, list...)
}

// randomConfig is a configuration that may be wrong.
func randomConfig(r *rand.Rand) *apiserver.JWTAuthenticator {
	c := withUID()
	c.Issuer.Audiences = pick(r, []string{"kubernetes"}, []string{"kubernetes"}, []string{"a", "kubernetes", "b"})
	if len(c.Issuer.Audiences) > 1 {
		c.Issuer.AudienceMatchPolicy = apiserver.AudienceMatchPolicyMatchAny
	}
	m := &c.ClaimMappings
	m.Username = pick(r, m.Username,
		apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: new("")},
		apiserver.PrefixedClaimOrExpression{Claim: "email", Prefix: new("")},
		apiserver.PrefixedClaimOrExpression{Claim: "a.b", Prefix: new("x-")},
		apiserver.PrefixedClaimOrExpression{Expression: prefer(r, textExpressions()...)},
		apiserver.PrefixedClaimOrExpression{Expression: prefer(r, textExpressions()...)},
	)
	m.Groups = pick(r, m.Groups,
		apiserver.PrefixedClaimOrExpression{},
		apiserver.PrefixedClaimOrExpression{Claim: "roles", Prefix: new("")},
		apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: new("")},
		apiserver.PrefixedClaimOrExpression{Expression: prefer(r, listExpressions()...)},
		apiserver.PrefixedClaimOrExpression{Expression: prefer(r, listExpressions()...)},
	)
	m.UID = pick(r, m.UID, apiserver.ClaimOrExpression{}, apiserver.ClaimOrExpression{Claim: "sub"},
		apiserver.ClaimOrExpression{Expression: prefer(r, textExpressions()...)})
	for i := range r.IntN(3) {
		m.Extra = append(m.Extra, apiserver.ExtraMapping{
			Key:             fmt.Sprintf("example.com/k%d", i),
			ValueExpression: pick(r, prefer(r, listExpressions()...), prefer(r, textExpressions()...)),
		})
	}
	for range r.IntN(3) {
		c.ClaimValidationRules = append(c.ClaimValidationRules, pick(r,
			apiserver.ClaimValidationRule{Claim: "hd", RequiredValue: "example.com"},
			apiserver.ClaimValidationRule{Claim: "nonce", RequiredValue: ""},
			apiserver.ClaimValidationRule{Expression: prefer(r, ruleExpressions()...), Message: "no way"},
			apiserver.ClaimValidationRule{Expression: prefer(r, ruleExpressions()...)},
			apiserver.ClaimValidationRule{Expression: prefer(r, ruleExpressions()...)},
		))
	}
	for range r.IntN(2) {
		c.UserValidationRules = append(c.UserValidationRules, apiserver.UserValidationRule{
			Expression: pick(r,
				`!user.username.startsWith("system:")`,
				`user.groups.all(g, !g.startsWith("system:"))`,
				`user.groups.size() < 3`,
				`user.uid != ""`,
				`"example.com/k0" in user.extra`,
				`user.extra["example.com/k0"][0] == "dev"`,
				`user.extra.all(k, k.startsWith("example.com/") || k.startsWith("authentication.kubernetes.io/"))`,
				`user.extra.?example__dot__com__slash__k0.hasValue()`,
				`user.?groups[0].orValue("") != "dev"`,
				`has(user.extra)`,
				`user == user`,
			), Message: "not this user",
		})
	}
	return c
}

func textExpressions() []string {
	return []string{
		`claims.sub`,
		`claims["sub"]`,
		`"p:" + claims.sub`,
		`claims.email_verified ? claims.email : claims.sub`,
		`claims.?name.orValue("anonymous")`,
		`claims.a__dot__b`,
		`claims["a.b"]`,
		`claims.nested.a__dot__b`,
		`claims.nested["a.b"]`,
		`claims.nested.list[0].c__dot__d`,
		`claims.groups[0]`,
		`string(claims.exp)`,
		`claims.jti`,
		`claims.?email.orValue("nobody") + (claims.?email_verified.orValue(true) ? "" : "?")`,
		`claims.nested.list.map(x, x.c__dot__d)[0]`,
		`string(claims.iat)`,
		`string(size(claims.sub))`,
		`type(claims.nonce) == double ? "number" : "other"`,
		`string(type(claims))`,
		`string(claims)`,
		`claims.sub.split("@")[0]`,
		`dyn(claims.groups).map(g, "x-" + g)[0]`,
		`claims`,
		`claims.nested`,
		`null`,
		`""`,
	}
}

func listExpressions() []string {
	return []string{
		`claims.groups`,
		`claims.roles`,
		`claims.?roles.orValue([])`,
		`dyn(claims.groups).map(g, "x-" + g)`,
		`dyn(claims.groups).filter(g, g.startsWith("d"))`,
		`[claims.sub, "", "fixed"]`,
		`claims.nested.a__dot__b`,
		`dyn(claims.groups) + ["more"]`,
		`claims.aud`,
		`[claims.groups[0]]`,
		`null`,
		`claims.?roles.orValue("") == "" ? [] : claims.roles.split(",")`,
		`claims.groups.map(g, g)`, // does not compile
		`[claims.sub, 1]`,
		`claims.nested.list`,
		`dyn(claims.nested.list).map(x, x.c__dot__d)`,
		`dyn(claims.nested.list).map(x, x["c.d"])`,
		`claims.?nested.list[1].orValue("none")`,
		`["a", claims.exp > 5.0 ? "b" : ""]`,
		`{"a": "b"}`,
		`claims.sub.split("")`,
		`7`,
	}
}

func ruleExpressions() []string {
	return []string{
		`has(claims.sub)`,
		`"sub" in claims`,
		`has(claims.a__dot__b)`,
		`"a.b" in claims.nested`,
		`size(claims) > 6`,
		`claims.exp - claims.iat <= 86400`,
		`type(claims.exp) == double`,
		`claims.?hd.orValue("example.com") == "example.com"`,
		`claims.email_verified == true`,
		`claims.all(k, k != "evil")`,
		`claims == claims`,
		`claims.groups == ["dev", "eng"]`,
		`dyn(claims.groups).exists(g, g == "dev")`,
		`"dev" in dyn(claims.groups)`,
		`claims.sub.matches("^[a-z]+$")`,
		`"a.b" in claims`,
		`has(claims.nested.a__dot__b)`,
		`claims.exp > 1700000000`,
		`type(claims.groups) == list`,
		`claims.hd == "example.com"`,
		`claims.exists(k, k == "jane")`,
		`claims.nested == {"a.b": "c"}`,
		`claims.nested.list[0] == claims.nested.list[0]`,
		`claims.nested.all(k, k != "x")`,
		`claims.nested.list.size() < 3`,
		`"dev" in claims.groups`,
		`claims.nonce == null`,
		`claims.iat`, // does not result in a boolean, nor compile
		`claims.email_verified`,
		`dyn(claims.email_verified)`,
	}
}

// randomClaims is a payload that is mostly good, and about which something may be
// odd.
func randomClaims(r *rand.Rand) string {
	now := clock().Unix()
	odd := func() string {
		return pick(r, `null`, `""`, `0`, `5`, `-1`, `1.5`, `1e3`, `true`, `false`, `[]`, `{}`, `["dev"]`, `["dev",null]`, `["dev",1]`,
			`[["dev"]]`, `[""]`, `{"a.b":"c"}`, `"\u00e9\ud83d\ude00"`, `"\ud800"`, `"1"`, `"system:masters"`, `1e400`, `123456789012345678901234567890`,
			`"`+strings.Repeat("long ", 60)+`"`, `[{"c.d":"e"},{"c.d":"f"}]`, `{"a":{"a":1},"b":[{"a":1}]}`, `{"a":1,"a":2}`, `"kubernetes"`, `["kubernetes"]`,
			`{"groups":"src"}`, `{"src":{"endpoint":"https://elsewhere.example.com","access_token":"x"}}`, `{"src":{}}`, `{"src":null}`, `{"groups":""}`)
	}
	tame := r.IntN(2) == 0
	var members []string
	add := func(chance float64, name string, good ...string) {
		if tame && chance > 0.2 {
			members = append(members, `"`+name+`":`+good[0])
			return
		}
		if r.Float64() >= chance {
			return
		}
		value := pick(r, good...)
		if r.Float64() < 0.06 {
			value = odd()
		}
		if r.Float64() < 0.004 {
			name = strings.ToUpper(name[:1]) + name[1:]
		}
		members = append(members, `"`+name+`":`+value)
		if r.Float64() < 0.004 {
			members = append(members, `"`+name+`":`+odd())
		}
	}
	add(0.99, "iss", `"`+issuerURL+`"`)
	add(0.98, "sub", `"jane"`, `"jane"`, `"system:masters"`, `"jan\u0065"`, `"a@b"`, `""`)
	add(0.98, "aud", `"kubernetes"`, `["kubernetes"]`, `["x","kubernetes",null]`, `["b"]`)
	add(0.99, "exp", fmt.Sprint(now+1000), fmt.Sprint(now+1000), fmt.Sprintf("%d.5", now+500), fmt.Sprintf(`"%d"`, now+500), fmt.Sprint(now-5), `4e9`)
	add(0.4, "nbf", fmt.Sprint(now-50), fmt.Sprint(now+50), fmt.Sprint(now+100), `null`, fmt.Sprintf(`"%d"`, now))
	add(0.8, "iat", fmt.Sprint(now-50), `1.7e9`)
	add(0.5, "jti", `"id-1"`, `"`+"\u00e9"+`"`, `""`, `7`)
	add(0.3, "nonce", `"n"`, `""`, `null`)
	add(0.1, "at_hash", `"h"`)
	add(0.5, "email", `"jane@example.com"`, `"x"`, `""`)
	add(0.5, "email_verified", `true`, `false`, `"true"`, `null`)
	add(0.8, "groups", `["dev","eng"]`, `"dev"`, `[]`, `["dev",""]`, `"dev,eng"`, `["d1","d2","d3","d4"]`)
	add(0.5, "roles", `"a,b"`, `["r"]`, `""`)
	add(0.7, "oid", `"42"`, `"42"`, `null`, `42`)
	add(0.5, "hd", `"example.com"`, `"example.org"`)
	add(0.5, "name", `"Jane Doe"`, `""`)
	add(0.5, "a.b", `"dotted"`, `["dotted"]`)
	add(0.3, "a__dot__b", `"not dotted"`)
	add(0.6, "nested", `{"a.b":"c","list":[{"c.d":"e"},{"c.d":"f"}]}`, `{"a.b":"c"}`, `{"a__dot__b":"c"}`, `{"list":["x",""],"x":{"y":[1,2.5]}}`)
	add(0.05, "_claim_names", `{"groups":"src"}`, `{"roles":"src"}`, `{"other":"src"}`, `{}`, `null`)
	add(0.05, "_claim_sources", `{"src":{"endpoint":""}}`, `{"src":{"JWT":"x"}}`)
	for i := range r.IntN(3) * r.IntN(12) {
		add(1, fmt.Sprintf("x%d", i), `"more"`)
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, pick(r, ",", " , ", ",\n")) + "}"
}

// TestLikeUpstream puts random tokens to random configurations, and to the API
// server's own authenticator.
func TestLikeUpstream(t *testing.T) {
	t.Parallel()
	const configs, tokens = 80, 60
	var yes, no, refused int
	for seed := range uint64(configs) {
		r := rand.New(rand.NewPCG(seed, 5)) // #nosec G404 -- the same tokens at each run
		config := randomConfig(r)
		us, errs := jwt.Compile(config, issuerKeys())
		if them, err := newUpstream(t, config, issuerKeys()); (err == nil) != (len(errs) == 0) {
			t.Fatalf("configuration %d: ours %v, upstream %v", seed, errs.ToAggregate(), err)
		} else if err != nil {
			refused++
		} else {
			for i := range tokens {
				payload := randomClaims(r)
				if compare(t, us, them, issue(t, "ES256", payload), fmt.Sprintf("seed %d token %d: %+v\n%s", seed, i, config, payload)) {
					yes++
				} else {
					no++
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d accepted, %d refused, %d configurations refused", yes, no, refused)
	if yes < 500 || no < 500 || refused < 3 || refused > configs/2 {
		t.Errorf("%d accepted, %d refused, %d configurations refused: the generator is too narrow", yes, no, refused)
	}
}
