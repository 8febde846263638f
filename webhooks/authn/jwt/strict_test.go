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
	for _, tc := range []struct {
		name, token string
		keys        static
		reason      jwt.Reason
		detail      string
	}{
		{
			name: "claim twice", token: issue(t, "ES256", claims(`,"groups":["dev"],"groups":["admin"]`)),
			reason: jwt.Malformed, detail: `it has the claim "groups" twice`,
		},
		{
			name: "claim twice, once escaped", token: issue(t, "ES256", claims(`,"groups":["dev"],"gr\u006fups":["admin"]`)),
			reason: jwt.Malformed, detail: `it has the claim "groups" twice`,
		},
		{
			name: "among many claims", token: issue(t, "ES256", claims(many(40)+`,"x39":"again"`)),
			reason: jwt.Malformed, detail: `it has the claim "x39" twice`,
		},
		{
			name: "member twice inside a claim", token: issue(t, "ES256", claims(`,"a":[[{"b":[{}],"c":{"d":1,"e":2,"d":3}}]]`)),
			reason: jwt.Malformed, detail: `the claim "a" has the member "d" twice in one object`,
		},
		{
			name: "subject in another case behind it", token: issue(t, "ES256", claims(`,"Sub":"admin"`)),
			reason: jwt.Malformed, detail: `it has the claim "Sub", which is sub but for its case`,
		},
		{
			name: "issuer in another case instead", token: issue(t, "ES256", strings.Replace(claims(""), "iss", "ISS", 1)),
			reason: jwt.Malformed, detail: `it has the claim "ISS", which is iss but for its case`,
		},
		{
			name: "issuer with a long s", token: issue(t, "ES256", strings.Replace(claims(""), "iss", "iſs", 1)),
			reason: jwt.Malformed, detail: `it has the claim "iſs", which is iss but for its case`,
		},
		{
			name: "end in another case, escaped", token: issue(t, "ES256", claims(`,"\u0045xp":4000000000`)),
			reason: jwt.Malformed, detail: `it has the claim "Exp", which is exp but for its case`,
		},
		{
			name: "token id in another case", token: issue(t, "ES256", claims(`,"JTI":"1"`)),
			reason: jwt.Malformed, detail: `it has the claim "JTI", which is jti but for its case`,
		},
		{
			name: "algorithm in another case", token: signed(t, "ES256", p256, `{"alg":"ES256","Alg":"none"}`, claims("")),
			reason: jwt.Malformed, detail: `the header has "Alg", which is alg but for its case`,
		},
		{
			name: "key id with a Kelvin sign", token: signed(t, "ES256", p256, `{"alg":"ES256","`+"\u212a"+`id":"x"}`, claims("")),
			reason: jwt.Malformed, detail: `which is kid but for its case`,
		},
		{
			name: "critical extension that upstream knows", token: signed(t, "ES256", p256, `{"alg":"ES256","crit":["b64"],"b64":true}`, claims("")),
			reason: jwt.Malformed, detail: "the header has crit, and no extension is known",
		},
		{
			name: "no extension is critical", token: signed(t, "ES256", p256, `{"alg":"ES256","crit":[]}`, claims("")),
			reason: jwt.Malformed, detail: "the header has crit, and no extension is known",
		},
		{
			name: "unencoded payload", token: unencoded(t, claims("")),
			reason: jwt.Malformed, detail: "the header has b64, which changes what is signed",
		},
		{
			name: "distributed groups", token: issue(t, "ES256", claims(`,"_claim_names":{"groups":"s"},"_claim_sources":{"s":{}}`)),
			reason: jwt.Claims, detail: `the claim "groups" is distributed, and is fetched from nowhere`,
		},
		{
			name: "empty subject", token: issue(t, "ES256", strings.Replace(claims(""), "jane", "", 1)),
			reason: jwt.Claims, detail: `the claim "sub" is empty, and is the user name`,
		},
		{
			name: "null for the subject", token: issue(t, "ES256", strings.Replace(claims(""), `"jane"`, "null", 1)),
			reason: jwt.Claims, detail: `the claim "sub" is empty, and is the user name`,
		},
		{
			name: "stray bits behind the signature", token: strayBits(good),
			reason: jwt.Malformed, detail: "the signature is not base64url without padding",
		},
		{
			name: "line break in the payload", token: strings.Replace(good, ".", ".\n", 1),
			reason: jwt.Malformed, detail: "there is a line break in it",
		},
		{
			name: "space in front", token: " " + good,
			reason: jwt.Malformed, detail: "it is not three parts between dots",
		},
		{
			name: "header that begins with space", token: signed(t, "ES256", p256, " "+header, claims("")),
			reason: jwt.Malformed, detail: "it is not three parts between dots",
		},
		{
			name: "invalid UTF-8", token: issue(t, "ES256", claims(",\"x\":\"\xff\"")),
			reason: jwt.Malformed, detail: "invalid UTF-8",
		},
		{
			name: "begin beyond all times", token: issue(t, "ES256", claims(`,"nbf":9223372036854775807`)),
			reason: jwt.Malformed, detail: `the claim nbf is "9223372036854775807", want a number of seconds`,
		},
		{
			name: "small RSA key", token: signed(t, "RS256", weak, `{"alg":"RS256"}`, claims("")),
			keys:   static{{Public: &weak.PublicKey}},
			reason: jwt.Algorithm, detail: "no key \"\" of the issuer is for that (RSA keys need 2048 bits",
		},
		{
			name: "key for another algorithm", token: issue(t, "RS256", claims("")),
			keys:   static{{Algorithm: "RS512", Public: &keyRing().rsa2048.PublicKey}},
			reason: jwt.Algorithm, detail: "it is signed with RS256, and no key",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			keys := tc.keys
			if keys == nil {
				keys = issuerKeys()
			}
			if v := theirs(t, upstream(t, plain(), keys), tc.token); v.no != nil {
				t.Fatalf("upstream does not take it either: %v", v.no)
			}
			checkRefused(t, ours(t, compile(t, plain(), keys), tc.token).no, tc.reason, tc.detail)
		})
	}
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
	checkRefused(t, ours(t, compile(t, plain(), issuerKeys()), token).no, jwt.Claims, "is distributed")

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
