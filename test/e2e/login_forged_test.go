package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// forged is a token that must not be accepted, and the reason for that.
type forged struct{ name, token, reason string }

// decodePart returns a part of a JWT, unverified: the header, or the claims.
func decodePart(t *testing.T, token string, i int) map[string]any {
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

// encodePart returns a part of a JWT with another value.
func encodePart(t *testing.T, part map[string]any, name string, value any) string {
	t.Helper()
	changed := maps.Clone(part)
	changed[name] = value
	text, err := json.Marshal(changed)
	must(t, err)
	return base64.RawURLEncoding.EncodeToString(text)
}

// unknownKey returns a token whose key id the issuer does not have. Nobody verifies its signature.
func unknownKey(t *testing.T, good string) string {
	t.Helper()
	_, rest, _ := strings.Cut(good, ".")
	return encodePart(t, decodePart(t, good, 0), "kid", rand.Text()) + "." + rest
}

// forge makes tokens that nobody issued from a good one. Package jwt tests many more.
func forge(t *testing.T, good string) []forged {
	t.Helper()
	parts := strings.Split(good, ".")
	header, claims := decodePart(t, good, 0), decodePart(t, good, 1)
	return []forged{
		{"another user with the same signature", parts[0] + "." + encodePart(t, claims, "email", "root@example.org") + "." + parts[2], "signature"},
		{"reserved group with the same signature", parts[0] + "." + encodePart(t, claims, "groups", []string{"system:masters"}) + "." + parts[2], "signature"},
		{"not signed", encodePart(t, header, "alg", "none") + "." + parts[1] + ".", "algorithm"},
		{"signed with a shared secret", encodePart(t, header, "alg", "HS256") + "." + parts[1] + "." + parts[2], "algorithm"},
		{"unknown key", unknownKey(t, good), "unknown-key"},
		{"cut off", good[:len(good)-8], ""},
	}
}
