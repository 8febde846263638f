package jwt_test

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// TestStricterThanUpstream has a token for each refusal that is ours alone: the
// API server's own authenticator takes it.
func TestStricterThanUpstream(t *testing.T) {
	t.Parallel()
	const header = `{"alg":"ES256"}`
	p256 := private("ES256")
	good := issue(t, "ES256", claims(""))
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	check := func(tc refused, keys static) {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if v := theirs(t, upstream(t, plain(), keys), tc.token); v.no != nil {
				t.Fatalf("upstream does not take it either: %v", v.no)
			}
			checkRefused(t, ours(t, compile(t, plain(), keys), tc.token).no, tc.reason, tc.detail)
		})
	}
	for _, tc := range []refused{
		{"claim twice", issue(t, "ES256", claims(`,"groups":["dev"],"groups":["admin"]`)), jwt.Malformed, `it has the claim "groups" twice`},
		{"claim twice, once escaped", issue(t, "ES256", claims(`,"groups":["dev"],"gr\u006fups":["admin"]`)), jwt.Malformed, `it has the claim "groups" twice`},
		{"among many claims", issue(t, "ES256", claims(many(40)+`,"x39":"again"`)), jwt.Malformed, `it has the claim "x39" twice`},
		{"member twice inside a claim", issue(t, "ES256", claims(`,"a":[[{"b":[{}],"c":{"d":1,"e":2,"d":3}}]]`)), jwt.Malformed, `the claim "a" has the member "d" twice in one object`},
		{"subject in another case behind it", issue(t, "ES256", claims(`,"Sub":"admin"`)), jwt.Malformed, `it has the claim "Sub", which differs from sub only in case`},
		{"issuer in another case instead", issue(t, "ES256", strings.Replace(claims(""), "iss", "ISS", 1)), jwt.Malformed, `it has the claim "ISS", which differs from iss only in case`},
		{"issuer with a long s", issue(t, "ES256", strings.Replace(claims(""), "iss", "iſs", 1)), jwt.Malformed, `it has the claim "iſs", which differs from iss only in case`},
		{"end in another case, escaped", issue(t, "ES256", claims(`,"\u0045xp":4000000000`)), jwt.Malformed, `it has the claim "Exp", which differs from exp only in case`},
		{"token id in another case", issue(t, "ES256", claims(`,"JTI":"1"`)), jwt.Malformed, `it has the claim "JTI", which differs from jti only in case`},
		{"algorithm in another case", signed(t, "ES256", p256, `{"alg":"ES256","Alg":"none"}`, claims("")), jwt.Malformed, `the header has "Alg", which differs from alg only in case`},
		{"key id with a Kelvin sign", signed(t, "ES256", p256, `{"alg":"ES256","`+"\u212a"+`id":"x"}`, claims("")), jwt.Malformed, `which differs from kid only in case`},
		{"critical extension that upstream knows", signed(t, "ES256", p256, `{"alg":"ES256","crit":["b64"],"b64":true}`, claims("")), jwt.Malformed, "the header has crit, but no extension is supported"},
		{"no extension is critical", signed(t, "ES256", p256, `{"alg":"ES256","crit":[]}`, claims("")), jwt.Malformed, "the header has crit, but no extension is supported"},
		{"unencoded payload", unencoded(t, claims("")), jwt.Malformed, "the header has b64, which changes what is signed"},
		{"distributed groups", issue(t, "ES256", claims(`,"_claim_names":{"groups":"s"},"_claim_sources":{"s":{}}`)), jwt.Claims, `the claim "groups" is a distributed claim, which is not supported`},
		{"empty subject", issue(t, "ES256", strings.Replace(claims(""), "jane", "", 1)), jwt.Claims, `the claim "sub" is the user name, and is empty`},
		{"null for the subject", issue(t, "ES256", strings.Replace(claims(""), `"jane"`, "null", 1)), jwt.Claims, `the claim "sub" is the user name, and is empty`},
		{"stray bits behind the signature", strayBits(good), jwt.Malformed, "the signature is not base64url without padding"},
		{"line break in the payload", strings.Replace(good, ".", ".\n", 1), jwt.Malformed, "it contains a line break"},
		{"space in front", " " + good, jwt.Malformed, "it does not have three parts separated by dots"},
		{"header that begins with space", signed(t, "ES256", p256, " "+header, claims("")), jwt.Malformed, "it does not have three parts separated by dots"},
		{"invalid UTF-8", issue(t, "ES256", claims(",\"x\":\"\xff\"")), jwt.Malformed, "invalid UTF-8"},
		{"begin beyond all times", issue(t, "ES256", claims(`,"nbf":9223372036854775807`)), jwt.Malformed, `the claim nbf is "9223372036854775807", want a number of seconds`},
	} {
		check(tc, issuerKeys())
	}
	check(refused{"small RSA key", signed(t, "RS256", weak, `{"alg":"RS256"}`, claims("")), jwt.Algorithm, "no key \"\" of the issuer supports that (RSA keys need 2048 bits"}, static{{Public: &weak.PublicKey}})
	check(refused{"key for another algorithm", issue(t, "RS256", claims("")), jwt.Algorithm, "it is signed with RS256, and no key"}, static{{Algorithm: "RS512", Public: &keyRing().rsa2048.PublicKey}})
}

// TestOtherHeadersAreIgnored: typ as upstream does, and keys and certificates also where
// upstream cannot read them.
func TestOtherHeadersAreIgnored(t *testing.T) {
	t.Parallel()
	us := compile(t, plain(), issuerKeys())
	for _, header := range []string{
		`{"alg":"ES256","typ":"at+jwt"}`, `{"alg":"ES256","typ":5}`, `{"alg":"ES256","cty":"JWT","x5t":"abc"}`, `{"alg":"ES256","kid":null}`,
		`{"alg":"ES256","x5c":["no certificate"]}`, `{"alg":"ES256","jwk":{"kty":"none"}}`, `{"alg":"ES256","jku":"https://elsewhere.example.com"}`,
		`{"\u0061lg":"ES\u003256","b64":true}`,
	} {
		if v := ours(t, us, signed(t, "ES256", private("ES256"), header, claims(""))); v.no != nil {
			t.Errorf("%s: %v", header, v.no)
		}
	}
	// A key in the header is not a key of the issuer.
	stranger := signed(t, "RS256", keyRing().stranger, `{"alg":"RS256","jwk":{"kty":"RSA","n":"AQAB","e":"AQAB"}}`, claims(""))
	checkRefused(t, ours(t, us, stranger).no, jwt.Signature, "")
}

func checkRefused(t *testing.T, err error, reason jwt.Reason, detail string) {
	t.Helper()
	r, ok := errors.AsType[*jwt.Refusal](err)
	if !ok {
		t.Fatalf("it is not refused: %v", err)
	}
	if r.Reason != reason || !strings.Contains(r.Detail, detail) {
		t.Errorf("refused as %v, want %s: %s", r, reason, detail)
	}
	if len(r.Detail) > 900 || strings.ContainsAny(r.Detail, "\n\r\x00\x1b") {
		t.Errorf("the refusal is too long for a line, or breaks it: %q", r.Detail)
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"x` + string(rune('0'+i/10)) + string(rune('0'+i%10)) + `":1`)
	}
	return b.String()
}

// unencoded signs as with RFC 7797, but without saying that this is critical.
func unencoded(t *testing.T, payload string) string {
	t.Helper()
	header := encode(`{"alg":"ES256","b64":false}`)
	return header + "." + encode(payload) + "." + encode(string(signature(t, "ES256", private("ES256"), header+"."+payload)))
}

// strayBits sets a bit behind the last byte of the signature.
func strayBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(token) - 1
	return token[:last] + string(alphabet[strings.IndexByte(alphabet, token[last])|1])
}

// TestDistributedClaimsAreNotFetched: upstream gets groups from any address that
// a token names.
func TestDistributedClaimsAreNotFetched(t *testing.T) {
	t.Parallel()
	token := issue(t, "ES256", claims(`,"_claim_names":{"groups":"s"},"_claim_sources":{"s":{"endpoint":"https://169.254.169.254/latest","access_token":"x"}}`))
	if v := theirs(t, upstream(t, plain(), issuerKeys()), token); v.no == nil || !strings.Contains(v.no.Error(), "169.254.169.254/latest is not reached in tests") {
		t.Fatalf("upstream does not fetch any more: %v", v.no)
	}
	checkRefused(t, ours(t, compile(t, plain(), issuerKeys()), token).no, jwt.Claims, "is a distributed claim")

	// Groups in the token, or no groups wanted: other claims may be anywhere.
	elsewhere := `,"_claim_names":{"groups":"s","photo":"s"},"_claim_sources":{"s":{"endpoint":"https://elsewhere.example.com"}}`
	none := plain()
	none.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{}
	for _, tc := range []struct {
		config *apiserver.JWTAuthenticator
		more   string
	}{{plain(), `,"groups":"dev"` + elsewhere}, {none, elsewhere}} {
		if !compare(t, compile(t, tc.config, issuerKeys()), upstream(t, tc.config, issuerKeys()), issue(t, "ES256", claims(tc.more)), tc.more) {
			t.Errorf("%s is refused", tc.more)
		}
	}
}

// TestBoundaries is about the exact moments.
func TestBoundaries(t *testing.T) {
	t.Parallel()
	a := compile(t, plain(), issuerKeys())
	end := time.Unix(2_000_000_000, 0)
	for _, tc := range []struct {
		name   string
		more   string
		now    time.Time
		reason jwt.Reason
	}{
		{"at the end", ``, end, ""},
		{"just behind the end", ``, end.Add(1), jwt.Expired},
		{"a fraction of the end is cut", `.9`, end.Add(1), jwt.Expired},
		{"a minute before the begin", `,"nbf":1999990060`, time.Unix(1999990000, 0), ""},
		{"more than a minute before the begin", `,"nbf":1999990060`, time.Unix(1999989999, 999999999), jwt.NotYetValid},
		{"begin is null", `,"nbf":null`, end, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			token, err := jwt.Parse(issue(t, "ES256", `{"iss":"`+issuerURL+`","aud":"kubernetes","sub":"jane","exp":2000000000`+tc.more+`}`))
			if err != nil {
				t.Fatal(err)
			}
			proof, err := a.Verify(t.Context(), token, tc.now, nil)
			if tc.reason != "" {
				checkRefused(t, err, tc.reason, "")
			} else if err != nil || !proof.ExpiresAt.Equal(end) || !proof.IssuedAt.IsZero() {
				t.Errorf("%+v, %v", proof, err)
			}
		})
	}
}
