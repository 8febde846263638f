package jwt_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

func TestShaped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, token string
		want        bool
	}{
		{"a token", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.AAAA", true},
		{"empty object", "e30.e30.", true},
		{"object that begins with a line break", encode("{\n}") + ".x.y", true},
		{"object that begins with a high byte", encode("{\xff") + ".x.y", true},
		{"one dot", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0", false},
		{"three dots", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.AAAA.", false},
		{"an array", encode(`["a"]`) + ".x.y", false},
		{"base64 of the other kind", "e+0.x.y", false},
		{"an access token", "gatehouse_ci_abc", false},
		{"an access token with dots", "gatehouse_ci.a.b", false},
		{"nothing", "", false},
		{"one character", "e", false},
		{"dots", "..", false},
		{"space in front", " e30.e30.", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := jwt.Shaped(tc.token); got != tc.want {
				t.Errorf("Shaped(%q) = %v", tc.token, got)
			}
		})
	}
}

// FuzzParse: what is taken apart can be put together again, in one way only, and
// other readers find the same issuer.
func FuzzParse(f *testing.F) {
	for _, tc := range []string{
		"e30.e30.", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.AAAA", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.AAB", "eyJ...", "..",
		encode(`{"alg":"ES256","kid":"a"}`) + "." + encode(`{"iss":"accounts.google.com","Iss":"b"}`) + ".",
		encode(`{"alg":"ES256","crit":[]}`) + "." + encode(`{"\u0069ss":"a","a":{"b":[1,{"b":2}]}}`) + "." + strings.Repeat("A", 86),
	} {
		f.Add(tc)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := jwt.Parse(text)
		if err != nil {
			r, ok := errors.AsType[*jwt.Refusal](err)
			if !ok || r.Reason != jwt.Malformed && r.Reason != jwt.Algorithm {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !jwt.Shaped(text) {
			t.Fatalf("%q is not shaped", text)
		}
		var again []string
		var payload []byte
		for i, part := range strings.Split(text, ".") {
			bytes, err := base64.RawURLEncoding.DecodeString(part)
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				payload = bytes
			}
			again = append(again, base64.RawURLEncoding.EncodeToString(bytes))
		}
		if strings.Join(again, ".") != text {
			t.Errorf("%q can be written as %q", text, again)
		}
		var read struct {
			Issuer string `json:"iss"`
		}
		if err := json.Unmarshal(payload, &read); err != nil {
			t.Fatal(err)
		}
		if read.Issuer == "accounts.google.com" {
			read.Issuer = "https://accounts.google.com"
		}
		if read.Issuer != token.Issuer() {
			t.Errorf("%q is of %q, others read %q", text, token.Issuer(), read.Issuer)
		}
	})
}
