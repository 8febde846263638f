package e2e

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// forger makes tokens that nobody issued.
type forger struct{ key *rsa.PrivateKey }

func newForger(t *testing.T) *forger {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	return &forger{key: key}
}

func encoded(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	return base64.RawURLEncoding.EncodeToString(text)
}

// claimsOf returns the claims of a token, unverified.
func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	return partOf(t, token, 1)
}

func partOf(t *testing.T, token string, i int) map[string]any {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%d parts, want those of a JWT", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[i])
	must(t, err)
	var found map[string]any
	must(t, json.Unmarshal(text, &found))
	return found
}

// sign makes a token with a key of the forger's own.
func (f *forger) sign(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	text := encoded(t, header) + "." + encoded(t, claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, f.key, crypto.SHA256, digest[:])
	must(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// unknownKey makes a token with a key id that the issuer does not have.
func (f *forger) unknownKey(t *testing.T, good string) string {
	t.Helper()
	return f.sign(t, map[string]any{"alg": "RS256", "kid": rand.Text()}, claimsOf(t, good))
}

// forged is a token that must not be taken, and the reason that is given for that.
type forged struct{ name, token, reason string }

// forge makes what is tried from a good token.
func (f *forger) forge(t *testing.T, good string) []forged {
	t.Helper()
	parts := strings.Split(good, ".")
	header, claims := partOf(t, good, 0), claimsOf(t, good)
	with := func(values map[string]any, name string, value any) map[string]any {
		changed := maps.Clone(values)
		changed[name] = value
		return changed
	}
	symmetric := func() string {
		text := encoded(t, with(header, "alg", "HS256")) + "." + parts[1]
		mac := hmac.New(sha256.New, []byte(f.key.N.String()))
		mac.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	return []forged{
		{"another user with the same signature", parts[0] + "." + encoded(t, with(claims, "email", "root@example.org")) + "." + parts[2], "signature"},
		{"groups of the control plane with the same signature", parts[0] + "." + encoded(t, with(claims, "groups", []string{"system:masters"})) + "." + parts[2], "signature"},
		{"signed by somebody else", f.sign(t, header, claims), "signature"},
		{"signed by somebody else, with a key of theirs in the header", f.sign(t, with(header, "jwk", map[string]any{
			"kty": "RSA", "n": base64.RawURLEncoding.EncodeToString(f.key.N.Bytes()), "e": "AQAB",
		}), claims), "signature"},
		{"signed by somebody else, with half a key in the header", f.sign(t, with(header, "jwk", map[string]any{"kty": "RSA"}), claims), "signature"},
		{"not signed", encoded(t, with(header, "alg", "none")) + "." + parts[1] + ".", "algorithm"},
		{"not signed, and none in capitals", encoded(t, with(header, "alg", "NONE")) + "." + parts[1] + "." + parts[2], "algorithm"},
		{"signed with a shared secret", symmetric(), "algorithm"},
		{"signature of nothing", parts[0] + "." + parts[1] + ".", ""},
		{"cut off", good[:len(good)-8], ""},
		{"one part more", good + ".x", ""},
		{"a claim twice", parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://example.org",`+string(decode(t, parts[1])[1:]))) + "." + parts[2], ""},
	}
}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	content, err := base64.RawURLEncoding.DecodeString(text)
	must(t, err)
	return content
}
