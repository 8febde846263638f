package issuers

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

func TestParseKeySet(t *testing.T) {
	t.Parallel()
	ed := jose.JSONWebKey{Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public(), KeyID: "ed"}
	weak := keyOf("weak", "RS256", material().weak.Public())
	even := material().rsa.PublicKey
	even.E = 4
	for name, c := range map[string]struct {
		text []byte
		// want are ids and algorithms in order, or words of the error.
		want, wantErr string
	}{
		"RSA":                 {setOf(t, signing("a")), "a/RS256", ""},
		"RSA for any":         {setOf(t, keyOf("a", "", material().rsa.Public())), "a/", ""},
		"PS512":               {setOf(t, keyOf("a", "PS512", material().rsa.Public())), "a/PS512", ""},
		"P-256":               {setOf(t, keyOf("a", "ES256", material().ec["P-256"].Public())), "a/ES256", ""},
		"P-384":               {setOf(t, keyOf("a", "ES384", material().ec["P-384"].Public())), "a/ES384", ""},
		"P-521":               {setOf(t, keyOf("a", "ES512", material().ec["P-521"].Public())), "a/ES512", ""},
		"without id":          {setOf(t, keyOf("", "", material().rsa.Public())), "/", ""},
		"in order of ids":     {setOf(t, signing("c"), signing("a"), signing("b")), "a/RS256 b/RS256 c/RS256", ""},
		"unknown types":       {[]byte(`{"keys":[{"kty":"AKP","kid":"x","alg":"ML-DSA-44","pub":"AAAA"},{"kty":"new"},` + inner(t, signing("a")) + `]}`), "a/RS256", ""},
		"beside a broken one": {[]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"},{"kid":1},` + inner(t, signing("a")) + `]}`), "a/RS256", ""},
		"more members":        {[]byte(`{"keys":[` + inner(t, signing("a")) + `],"expires":1}`), "a/RS256", ""},
		"null private":        {[]byte(`{"keys":[` + strings.TrimSuffix(inner(t, signing("a")), "}") + `,"d":null}]}`), "a/RS256", ""},
		"Ed25519":             {setOf(t, ed), "", `keys[0] "ed" has kty "OKP": must be RSA or EC`},
		"weak":                {setOf(t, weak, ed), "", `keys[0] "weak" has 1024 bits: must have 2048 to 8192; keys[1] "ed"`},
		"even exponent":       {setOf(t, keyOf("a", "", &even)), "", "is not an RSA key"},
		"wrong alg":           {setOf(t, keyOf("a", "ES256", material().rsa.Public())), "", `keys[0] "a" has alg "ES256": must be one of RS256, `},
		"alg of other curve":  {setOf(t, keyOf("a", "ES256", material().ec["P-384"].Public())), "", "must be one of ES384"},
		"symmetric alg":       {setOf(t, keyOf("a", "HS256", material().rsa.Public())), "", `alg "HS256"`},
		"no alg":              {setOf(t, keyOf("a", "none", material().rsa.Public())), "", `alg "none"`},
		"not on the curve":    {[]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","y":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}`), "", `is not a key of kty "EC", crv "P-256"`},
		"secp256k1":           {[]byte(`{"keys":[{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}]}`), "", `crv "secp256k1"`},
		"member twice":        {[]byte(`{"keys":[` + strings.TrimSuffix(inner(t, signing("a")), "}") + `,"kid":"b"}]}`), "", "no usable key"},
		"keys twice":          {[]byte(`{"keys":[],"keys":[` + inner(t, signing("a")) + `]}`), "", "occurs twice"},
		"Keys":                {[]byte(`{"Keys":[` + inner(t, signing("a")) + `]}`), "", "has no keys"},
		"private":             {setOf(t, signing("a"), jose.JSONWebKey{Key: material().ec["P-256"], KeyID: "p"}), "", "keys[1]: must be public: anyone who read this key can sign"},
		"private to encrypt":  {setOf(t, signing("a"), jose.JSONWebKey{Key: material().rsa, Use: "enc"}), "", "keys[1]: must be public"},
		"symmetric":           {setOf(t, jose.JSONWebKey{Key: []byte("hunter2")}), "", "keys[0]: must be public"},
		"symmetric, empty":    {[]byte(`{"keys":[{"kty":"oct"}]}`), "", "keys[0]: must be public"},
		"one key, no set":     {[]byte(inner(t, signing("a"))), "", "has no keys"},
		"a list":              {[]byte(`[` + inner(t, signing("a")) + `]`), "", "is not a JSON Web Key Set"},
		"trailing data":       {append(setOf(t, signing("a")), " {}"...), "", "is not a JSON Web Key Set"},
		"a certificate":       {[]byte("-----BEGIN CERTIFICATE-----"), "", "is not a JSON Web Key Set"},
		"empty":               {nil, "", "is not a JSON Web Key Set"},
		"deep":                {[]byte(strings.Repeat("[", 100_000)), "", "is not a JSON Web Key Set"},
		"long names": {
			[]byte(`{"keys":[` + strings.Repeat(`{"kty":"`+strings.Repeat("x", 10_000)+`","kid":"`+strings.Repeat("y", 10_000)+`"},`, 20) + `{}]}`),
			"", "and 16 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := jwt.ParseKeySet(c.text)
			var got []string
			for _, key := range keysOf(set) {
				got = append(got, key.ID+"/"+key.Algorithm)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("keys %q, want %q", got, c.want)
			}
			switch {
			case c.wantErr == "" && err == nil:
			case err == nil || c.wantErr == "" || !strings.Contains(err.Error(), c.wantErr):
				t.Errorf("error %v, want %q", err, c.wantErr)
			case len(err.Error()) > 3000 || strings.Contains(err.Error(), "hunter2"):
				t.Errorf("error of %d bytes: %.3000s", len(err.Error()), err)
			}
		})
	}
}

// keysOf returns the keys of a set, none for nil.
func keysOf(set *jwt.KeySet) []jwt.Key {
	if set == nil {
		return nil
	}
	return set.All()
}

func inner(t testing.TB, key jose.JSONWebKey) string {
	t.Helper()
	text, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Ids SHOULD differ, says the RFC.
func TestKeysOfTheSameID(t *testing.T) {
	t.Parallel()
	set, err := jwt.ParseKeySet(setOf(t, signing("a"), keyOf("b", "", material().ec["P-256"].Public()), keyOf("a", "", material().ec["P-384"].Public()), keyOf("", "", material().rsa.Public())))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int{"a": 2, "b": 1, "c": 0, "": 4} {
		if got := len(set.Keys(id)); got != want {
			t.Errorf("%d keys of id %q, want %d", got, id, want)
		}
	}
}

func FuzzParseKeySet(f *testing.F) {
	f.Add(setOf(f, signing("a"), keyOf("b", "ES256", material().ec["P-256"].Public())))
	f.Add(setOf(f, jose.JSONWebKey{Key: material().rsa, KeyID: "p"}, jose.JSONWebKey{Key: []byte("k")}))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-521","x":"AA","y":"AA"},{"kty":"AKP","alg":"ML-DSA-44","pub":"AA"},{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB","x5c":["AA"],"x5t":"AA","x5u":":"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := jwt.ParseKeySet(text)
		keys := keysOf(set)
		if (err == nil) != (len(keys) > 0) || len(keys) > jwt.MaxKeys {
			t.Fatalf("%d keys and error %v", len(keys), err)
		}
		for _, key := range keys {
			mustBeUsable(t, key)
		}
		if err != nil && len(err.Error()) > 5000 {
			t.Fatalf("error of %d bytes", len(err.Error()))
		}
	})
}

func mustBeUsable(t *testing.T, key jwt.Key) {
	t.Helper()
	switch public := key.Public.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() < 2048 || public.N.BitLen() > 8192 || public.E < 3 {
			t.Fatalf("RSA key of %d bits, exponent %d", public.N.BitLen(), public.E)
		}
	case *ecdsa.PublicKey:
		if _, err := public.ECDH(); err != nil { // it is on its curve
			t.Fatal(err)
		}
	default:
		t.Fatalf("key of type %T", public)
	}
}

func FuzzParseDiscovery(f *testing.F) {
	f.Add([]byte(`{"issuer":"https://issuer.example.com","jwks_uri":"https://issuer.example.com/keys"}`))
	f.Add([]byte(`{"issuer":"https://issuer.example.com","jwks_uri":"https://me:you@[::1]:1/%00?x#y"}`))
	f.Add([]byte(`{"issuer":"https://issuer.example.com","jwks_uri":"//x"}`))
	f.Add([]byte(`{"issuer":{},"jwks_uri":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		u, err := parseDiscovery(text, example)
		switch {
		case err != nil:
			if u != nil || len(err.Error()) > 5000 {
				t.Fatalf("%v and an error of %d bytes", u, len(err.Error()))
			}
		case u.Scheme != "https" || u.Hostname() == "" || u.User != nil:
			t.Fatalf("%q would be called", u)
		}
	})
}
