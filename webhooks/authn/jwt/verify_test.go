package jwt_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

const issuerURL = "https://issuer.example.com"

func plain() *apiserver.JWTAuthenticator {
	return &apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: issuerURL, Audiences: []string{"kubernetes"}},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: new("oidc:")},
			Groups:   apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: new("oidc:")},
		},
	}
}

func withUID() *apiserver.JWTAuthenticator {
	c := plain()
	c.ClaimMappings.UID.Claim = "oid"
	return c
}

// claims are good claims, with more behind them.
func claims(more string) string {
	return `{"iss":"` + issuerURL + `","aud":"kubernetes","exp":4000000000,"sub":"jane"` + more + `}`
}

// TestEveryAlgorithm: with and without a key id, and what is proved.
func TestEveryAlgorithm(t *testing.T) {
	t.Parallel()
	us, them := compile(t, withUID(), issuerKeys()), upstream(t, withUID(), issuerKeys())
	want := jwt.Proof{
		Subject: "jane", User: authenticationv1.UserInfo{
			Username: "oidc:jane", UID: "42", Groups: []string{"oidc:dev", "oidc:eng"},
			Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=7"}},
		},
		ID: "7", IssuedAt: time.Unix(1700000000, 0), ExpiresAt: time.Unix(4000000000, 0),
	}
	payload := `{"iss":"` + issuerURL + `","aud":["x","kubernetes"],"exp":4000000000,"sub":"jane","groups":["dev","eng"],"oid":"42","jti":"7","iat":1700000000}`
	for alg, id := range map[string]string{
		"RS256": "rsa", "RS384": "big", "RS512": "rsa", "PS256": "rsa", "PS384": "big", "PS512": "rsa", "ES256": "p256", "ES384": "p384", "ES512": "p521",
	} {
		for _, header := range []string{`{"alg":"` + alg + `"}`, `{"kid":"` + id + `","alg":"` + alg + `"}`} {
			t.Run(header, func(t *testing.T) {
				t.Parallel()
				text := signed(t, alg, private(alg), header, payload)
				token, err := jwt.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				if !jwt.Shaped(text) || token.Issuer() != issuerURL {
					t.Errorf("shaped %v, of %q", jwt.Shaped(text), token.Issuer())
				}
				proof, err := us.Verify(t.Context(), token, clock(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(proof, &want) {
					t.Errorf("proved %+v, want %+v", proof, want)
				}
				if !compare(t, us, them, text, header) {
					t.Error("refused")
				}
				// No bit of the token can be turned.
				for _, at := range []int{len(text) - 2, strings.LastIndexByte(text, '.') - 2, strings.IndexByte(text, '.') - 2} {
					turned := []byte(text)
					if turned[at]++; turned[at] > 'z' || turned[at] == 'Z'+1 || turned[at] == '9'+1 {
						turned[at] = 'A'
					}
					if v := ours(t, us, string(turned)); v.no == nil {
						t.Errorf("%q is taken too", turned)
					}
				}
			})
		}
	}
}

// TestManySignatures: numbers in ECDSA signatures have all sorts of leading bits.
func TestManySignatures(t *testing.T) {
	t.Parallel()
	a := compile(t, plain(), issuerKeys())
	for range 100 {
		for _, alg := range []string{"ES256", "ES512"} {
			if v := ours(t, a, issue(t, alg, claims(""))); v.no != nil {
				t.Fatal(v.no)
			}
		}
	}
}

// hostile are tokens that nobody takes.
func hostile(t *testing.T) []refused {
	t.Helper()
	ring := keyRing()
	es := func(header, payload string) string { return signed(t, "ES256", ring.p256, header, payload) }
	const header = `{"alg":"ES256","kid":"p256"}`
	good := es(header, claims(""))
	parts := strings.Split(good, ".")
	future, past := clock().Add(time.Hour).Unix(), clock().Add(-time.Hour).Unix()
	der, err := x509.MarshalPKIXPublicKey(&ring.rsa2048.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	confused := encode(`{"alg":"HS256","kid":"rsa"}`) + "." + encode(claims(""))
	mac := hmac.New(sha256.New, der)
	mac.Write([]byte(confused))
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	derSigned, err := ring.p256.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	zeros := encode(strings.Repeat("\x00", 64))

	return []refused{
		{"nothing", "", jwt.Malformed, "it does not have three parts"},
		{"dots", "..", jwt.Malformed, "it does not have three parts"},
		{"a megabyte of dots", strings.Repeat(".", 1<<20), jwt.Malformed, "it does not have three parts"},
		{"a megabyte of dots behind a brace", "eyJ" + strings.Repeat(".", 1<<20), jwt.Malformed, "it does not have three parts"},
		{"two parts", parts[0] + "." + parts[1], jwt.Malformed, "it does not have three parts"},
		{"four parts", good + ".AAAA", jwt.Malformed, "it does not have three parts"},
		{"five parts, encrypted", "eyJhbGciOiJSU0EtT0FFUCJ9.AA.AA.AA.AA", jwt.Malformed, "it does not have three parts"},
		{"JSON serialization", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, jwt.Malformed, "it does not have three parts"},
		{"too long", parts[0] + "." + strings.Repeat("A", 1<<20) + "." + parts[2], jwt.Malformed, "it has 10"},
		{"header is no JSON", encode("{nonsense}") + "." + parts[1] + "." + parts[2], jwt.Malformed, "the header is invalid JSON"},
		{"header is cut", encode(`{"alg":"ES256"`) + "." + parts[1] + "." + parts[2], jwt.Malformed, "the header is invalid JSON"},
		{"header has an object behind it", es(`{"alg":"ES256"}{}`, claims("")), jwt.Malformed, "the header is invalid JSON"},
		{"header twice", es(`{"alg":"ES256","alg":"none"}`, claims("")), jwt.Malformed, `the header has "alg" twice`},
		{"payload is no object", es(header, `["a"]`), jwt.Malformed, "the payload is an array, want an object"},
		{"payload is null", es(header, `null`), jwt.Malformed, "the payload is null, want an object"},
		{"payload is empty", es(header, ``), jwt.Malformed, "the payload is invalid JSON"},
		{"payload is deep", es(header, `{"a":`+strings.Repeat("[", 10_001)+strings.Repeat("]", 10_001)+`}`), jwt.Malformed, "nested too deeply"},
		{"padding", parts[0] + "." + parts[1] + "=." + parts[2], jwt.Malformed, "the payload is not base64url"},
		{"base64 with another alphabet", parts[0] + "." + parts[1] + "+/+/." + parts[2], jwt.Malformed, "the payload is not base64url"},
		{"NUL in the signature", good[:len(good)-1] + "\x00", jwt.Malformed, "the signature is not base64url"},

		{"unsigned", encode(`{"alg":"none"}`) + "." + parts[1] + ".", jwt.Algorithm, `it is signed with "none", want one of RS256, `},
		{"unsigned, with a signature", encode(`{"alg":"none"}`) + "." + parts[1] + "." + parts[2], jwt.Algorithm, `it is signed with "none"`},
		{"unsigned in capitals", encode(`{"alg":"NONE"}`) + "." + parts[1] + ".", jwt.Algorithm, `it is signed with "NONE"`},
		{"no algorithm", es(`{"kid":"p256"}`, claims("")), jwt.Algorithm, `it is signed with ""`},
		{"member twice inside the header", es(`{"alg":"ES256","x":{"a":1,"a":2}}`, claims("")), jwt.Malformed, `the header "x" has the member "a" twice in one object`},
		{"algorithm is no string", es(`{"alg":["ES256"]}`, claims("")), jwt.Malformed, "the header alg is an array, want a string"},
		{"algorithm in lower case", es(`{"alg":"es256"}`, claims("")), jwt.Algorithm, `it is signed with "es256"`},
		{"public key as a secret", confused + "." + encode(string(mac.Sum(nil))), jwt.Algorithm, `it is signed with "HS256"`},
		{"EdDSA", es(`{"alg":"EdDSA"}`, claims("")), jwt.Algorithm, `it is signed with "EdDSA"`},
		{"long algorithm", es(`{"alg":"`+strings.Repeat("A\\u0007", 5000)+`"}`, claims("")), jwt.Algorithm, `it is signed with "A\aA`},
		{"key of another type", es(`{"alg":"ES256","kid":"rsa"}`, claims("")), jwt.Algorithm, `it is signed with ES256, and no key "rsa"`},
		{"key of another curve", es(`{"alg":"ES256","kid":"p384"}`, claims("")), jwt.Algorithm, `it is signed with ES256, and no key "p384"`},
		{"another curve", signed(t, "ES384", ring.p256, `{"alg":"ES384","kid":"p256"}`, claims("")), jwt.Algorithm, `it is signed with ES384, and no key "p256"`},

		{"unknown key", es(`{"alg":"ES256","kid":"p"}`, claims("")), jwt.UnknownKey, `the issuer has no key "p"`},
		{"key id is a path", es(`{"alg":"ES256","kid":"../../dev/null"}`, claims("")), jwt.UnknownKey, `the issuer has no key "../../dev/null"`},
		{"key id is a number", es(`{"alg":"ES256","kid":1}`, claims("")), jwt.Malformed, "the header kid is a number, want a string"},

		{"no signature", parts[0] + "." + parts[1] + ".", jwt.Signature, `no key "p256" of the issuer verifies the signature`},
		{"signature of zeros", parts[0] + "." + parts[1] + "." + zeros, jwt.Signature, ""},
		{"signature with a byte more", parts[0] + "." + parts[1] + "." + encode("\x00"+decoded(t, parts[2])), jwt.Signature, ""},
		{"signature in DER", parts[0] + "." + parts[1] + "." + encode(string(derSigned)), jwt.Signature, ""},
		{"signature of another token", parts[0] + "." + encode(claims(`,"groups":["admin"]`)) + "." + parts[2], jwt.Signature, ""},
		{"signed by somebody else", signed(t, "RS256", ring.stranger, `{"alg":"RS256"}`, claims("")), jwt.Signature, "out of 2"},
		{"PSS for PKCS #1", signed(t, "PS256", ring.rsa2048, `{"alg":"RS256","kid":"rsa"}`, claims("")), jwt.Signature, ""},
		{"another hash", signed(t, "RS512", ring.rsa2048, `{"alg":"RS256","kid":"rsa"}`, claims("")), jwt.Signature, ""},

		{"no issuer", es(header, strings.Replace(claims(""), `"iss"`, `"isz"`, 1)), jwt.Foreign, `it is from the issuer "", want "https://issuer.example.com"`},
		{"another issuer", es(header, strings.Replace(claims(""), ".com", ".org", 1)), jwt.Foreign, `it is from the issuer "https://issuer.example.org"`},
		{"issuer with a slash", es(header, strings.Replace(claims(""), ".com", ".com/", 1)), jwt.Foreign, ""},
		{"issuer is a list", es(header, strings.Replace(claims(""), `"`+issuerURL+`"`, `["`+issuerURL+`"]`, 1)), jwt.Malformed, "the claim iss is an array, want a string"},
		{"expired", es(header, endless(fmt.Sprint(past))), jwt.Expired, "it expired at "},
		{"expired and forged", signed(t, "RS256", ring.stranger, `{"alg":"RS256"}`, endless(fmt.Sprint(past))), jwt.Expired, "it expired at "},
		{"without an end", es(header, strings.Replace(claims(""), "exp", "end", 1)), jwt.Expired, "it has no claim exp"},
		{"end is null", es(header, endless(`null`)), jwt.Malformed, `the claim exp is "null", want a number of seconds`},
		{"end is a word", es(header, endless(`"never"`)), jwt.Malformed, "the claim exp is"},
		{"end is a number in spaces", es(header, endless(`" 4000000000"`)), jwt.Malformed, "the claim exp is"},
		{"end is no JSON number", es(header, endless(`"0x7fffffff"`)), jwt.Malformed, "the claim exp is"},
		{"end is far beyond", es(header, endless(`1e400`)), jwt.Malformed, "the claim exp is"},
		{"end wraps around", es(header, endless(`9223372036854775807`)), jwt.Malformed, "the claim exp is"},
		{"not yet valid", es(header, claims(fmt.Sprintf(`,"nbf":%d`, future))), jwt.NotYetValid, "it is not valid before "},
		{"issued at no time", es(header, claims(`,"iat":"today"`)), jwt.Malformed, "the claim iat is"},
		{"no audience", es(header, strings.Replace(claims(""), "aud", "auds", 1)), jwt.Audience, `it is for no audience, want one of "kubernetes"`},
		{"wrong audience", es(header, strings.Replace(claims(""), "kubernetes", "argocd", 1)), jwt.Audience, `it is for "argocd", want one of "kubernetes"`},
		{"part of an audience", es(header, strings.Replace(claims(""), "kubernetes", "kubernetes2", 1)), jwt.Audience, ""},
		{"audience in another case", es(header, strings.Replace(claims(""), "kubernetes", "Kubernetes", 1)), jwt.Audience, ""},
		{"audience is null", es(header, strings.Replace(claims(""), `"kubernetes"`, "null", 1)), jwt.Audience, ""},
		{"no audience in a list", es(header, strings.Replace(claims(""), `"kubernetes"`, "[]", 1)), jwt.Audience, "it is for [], want"},
		{"right audience among wrong types", es(header, strings.Replace(claims(""), `"kubernetes"`, `["kubernetes",5]`, 1)), jwt.Malformed, "the claim aud has a number in it"},
		{"audience is an object", es(header, strings.Replace(claims(""), `"kubernetes"`, `{"kubernetes":1}`, 1)), jwt.Malformed, "the claim aud is an object"},
		{"many audiences", es(header, strings.Replace(claims(""), `"kubernetes"`, `["`+strings.Repeat(`x","`, 2000)+`y"]`, 1)), jwt.Audience, `"x"`},

		{"subject is a number", es(header, strings.Replace(claims(""), `"jane"`, `5`, 1)), jwt.Malformed, "the claim sub is a number, want a string"},
		{"no subject", es(header, strings.Replace(claims(""), `"sub"`, `"subject"`, 1)), jwt.Claims, `there is no claim "sub"`},
		{"nonce is a list", es(header, claims(`,"nonce":[]`)), jwt.Malformed, "the claim nonce is an array"},
		{"groups are a number", es(header, claims(`,"groups":7`)), jwt.Claims, `the claim "groups" is a number, want a string or a list of strings`},
		{"groups are an object", es(header, claims(`,"groups":{"a":true}`)), jwt.Claims, `the claim "groups" is an object`},
		{"a number among groups", es(header, claims(`,"groups":["dev",7]`)), jwt.Claims, `the claim "groups" has a number in it`},
		{"lists among groups", es(header, claims(`,"groups":[["dev"]]`)), jwt.Claims, `the claim "groups" has an array in it`},
		{"a source that is not there", es(header, claims(`,"_claim_names":{"x":"s"}`)), jwt.Malformed, "the claim _claim_names names a source that is not in _claim_sources"},
		{"names of claims are a list", es(header, claims(`,"_claim_names":["x"]`)), jwt.Malformed, "the claim _claim_names does not map"},
		{"sources are a list", es(header, claims(`,"_claim_sources":["x"]`)), jwt.Malformed, "the claim _claim_sources does not map"},
		{"names without sources", es(header, claims(`,"_claim_names":{}`)), jwt.Claims, "there is a claim _claim_names"},
	}
}

type refused struct {
	name, token string
	reason      jwt.Reason
	detail      string
}

func endless(end string) string {
	return `{"iss":"` + issuerURL + `","aud":"kubernetes","sub":"jane","exp":` + end + `}`
}

func decoded(t *testing.T, part string) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHostile: each of them is refused, here and by upstream, for the reason that
// an operator can do something about.
func TestHostile(t *testing.T) {
	t.Parallel()
	us, them := compile(t, plain(), issuerKeys()), upstream(t, plain(), issuerKeys())
	for _, tc := range hostile(t) {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, ours(t, us, tc.token).no, tc.reason, tc.detail)
			if v := theirs(t, them, tc.token); v.no == nil {
				t.Error("upstream takes it")
			}
		})
	}
}

// TestNoSignatureInTexts: what is said about a token never holds its last part.
func TestNoSignatureInTexts(t *testing.T) {
	t.Parallel()
	a := compile(t, plain(), issuerKeys())
	tokens := hostile(t)
	tokens = append(tokens, refused{name: "good", token: issue(t, "RS256", claims(""))})
	for _, tc := range tokens {
		var said strings.Builder
		token, err := jwt.Parse(tc.token)
		if err == nil {
			_, err = a.Verify(t.Context(), token, clock(), func(step, found string) { said.WriteString(step + " " + found + "\n") })
		}
		fmt.Fprintln(&said, err)
		secret := tc.token[strings.LastIndexByte(tc.token, '.')+1:]
		if len(secret) > 8 && (strings.Contains(said.String(), secret) || strings.Contains(said.String(), secret[:8])) {
			t.Errorf("%s: the signature is in %q", tc.name, said.String())
		}
	}
}

// keysFunc are the keys that a function finds.
type keysFunc func(ctx context.Context, id string) ([]jwt.Key, error)

func (f keysFunc) Find(ctx context.Context, id string) ([]jwt.Key, error) { return f(ctx, id) }

// TestKeysAreAskedLast: a token that is refused anyway asks for no key, and no
// token asks twice.
func TestKeysAreAskedLast(t *testing.T) {
	t.Parallel()
	for _, tc := range append(hostile(t), refused{name: "good", token: issue(t, "ES256", claims(""))}) {
		want := 0
		switch tc.reason {
		case jwt.Signature, jwt.UnknownKey, jwt.Claims, "":
			want = 1
		case jwt.Algorithm:
			if strings.Contains(tc.detail, "and no key") {
				want = 1
			}
		case jwt.Malformed, jwt.Foreign, jwt.Expired, jwt.NotYetValid, jwt.Audience:
		}
		var times []string
		v := ours(t, compile(t, plain(), keysFunc(func(ctx context.Context, id string) ([]jwt.Key, error) {
			times = append(times, id)
			return issuerKeys().Find(ctx, id)
		})), tc.token)
		if len(times) != want {
			t.Errorf("%s (%v): keys were asked for %q, want %d", tc.name, v.no, times, want)
		}
	}
}

func TestCannotDecide(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	down := errors.New("issuer is down")
	for _, tc := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // the case
		keys jwt.Keys
		want error
	}{
		{"nobody knows keys", t.Context(), nil, jwt.ErrNoKeys},
		{"keys are not known", t.Context(), keysFunc(func(context.Context, string) ([]jwt.Key, error) { return nil, down }), down},
		{"time is up", over, issuerKeys(), context.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			a := compile(t, plain(), tc.keys)
			verify := func(payload string) error {
				token, err := jwt.Parse(issue(t, "ES256", payload))
				if err != nil {
					t.Fatal(err)
				}
				_, err = a.Verify(tc.ctx, token, clock(), nil)
				return err
			}
			err := verify(claims(""))
			if _, ok := errors.AsType[*jwt.Refusal](err); ok || !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			// What is over is over, whatever the keys are.
			checkRefused(t, verify(endless("5")), jwt.Expired, "it expired at 1970-01-01T00:00:05Z")
		})
	}
}

// TestKeysOfOtherTypes: whatever Keys holds, it is no key for a token.
func TestKeysOfOtherTypes(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.PublicKey{
		nil, public, []byte("secret"), "secret", keyRing().rsa2048, (*rsa.PublicKey)(nil), &rsa.PublicKey{}, (*ecdsa.PublicKey)(nil), &ecdsa.PublicKey{},
	} {
		for _, alg := range []string{"RS256", "PS256", "ES256"} {
			a := compile(t, plain(), static{{Public: key}})
			checkRefused(t, ours(t, a, issue(t, alg, claims(""))).no, jwt.Algorithm, "and no key")
		}
	}
}

// TestOneIDForSeveralKeys: an id may be that of keys of several types, and a
// token is verified with the one that fits.
func TestOneIDForSeveralKeys(t *testing.T) {
	t.Parallel()
	r := keyRing()
	keys := static{
		{ID: "a", Public: &r.rsa2048.PublicKey}, {ID: "b", Public: &r.p384.PublicKey}, {ID: "a", Public: &r.p256.PublicKey},
	}
	a := compile(t, plain(), keys)
	for _, alg := range []string{"RS256", "ES256"} {
		if v := ours(t, a, signed(t, alg, private(alg), `{"alg":"`+alg+`","kid":"a"}`, claims(""))); v.no != nil {
			t.Errorf("%s: %v", alg, v.no)
		}
	}
	checkRefused(t, ours(t, a, signed(t, "ES384", private("ES384"), `{"alg":"ES384","kid":"a"}`, claims(""))).no, jwt.Algorithm, "and no key")
	if keys[1].ID != "b" {
		t.Errorf("the keys were written to: %v", keys)
	}
}

func TestGoogle(t *testing.T) {
	t.Parallel()
	config := plain()
	config.Issuer.URL = "https://accounts.google.com"
	us, them := compile(t, config, issuerKeys()), upstream(t, config, issuerKeys())
	for _, iss := range []string{"accounts.google.com", "https://accounts.google.com"} {
		token := issue(t, "ES256", strings.Replace(claims(""), issuerURL, iss, 1))
		if !compare(t, us, them, token, iss) {
			t.Errorf("%s is refused", iss)
		}
		if parsed, err := jwt.Parse(token); err != nil || parsed.Issuer() != us.Issuer() {
			t.Errorf("%v, %v", parsed.Issuer(), err)
		}
	}
	// No other issuer may go without its scheme.
	if compare(t, compile(t, plain(), issuerKeys()), upstream(t, plain(), issuerKeys()),
		issue(t, "ES256", strings.Replace(claims(""), "https://", "", 1)), "without a scheme") {
		t.Error("an issuer without a scheme is taken")
	}
}

// TestProofCanBeWritten: JSON has no room for years of five digits.
func TestProofCanBeWritten(t *testing.T) {
	t.Parallel()
	token, err := jwt.Parse(issue(t, "ES256", endless(`1700000000000,"iat":-99999999999999`)))
	if err != nil {
		t.Fatal(err)
	}
	proof, err := compile(t, plain(), issuerKeys()).Verify(t.Context(), token, clock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(proof); err != nil {
		t.Error(err)
	}
	if y := proof.ExpiresAt.UTC().Year(); y != 9999 {
		t.Errorf("it ends in %d", y)
	}
}
