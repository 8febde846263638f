package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// signer signs tokens of an issuer.
type signer struct{ key *ecdsa.PrivateKey }

func newSigner(t testing.TB) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{key}
}

func (s signer) keys() *jwt.KeySet {
	return jwt.NewKeySet(jwt.Key{ID: "one", Algorithm: "ES256", Public: s.key.Public()})
}

// sign makes a token for jane, and one more hour, with more or other claims.
func (s signer) sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": issuerURL, "aud": "kubernetes", "sub": "jane", "groups": []string{"dev"}, "jti": "token-1",
		"iat": noon.Add(-time.Minute).Unix(), "exp": noon.Add(time.Hour).Unix(),
	}
	for name, value := range claims {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"one"}`)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(text))
	r, sum, err := ecdsa.Sign(rand.Reader, s.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	sum.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// noKeys are those of an issuer that cannot be asked.
type noKeys struct{ err error }

func (n noKeys) Find(context.Context, string) ([]jwt.Key, error) { return nil, n.err }

func TestJWTs(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	good := s.sign(t, nil)
	for name, test := range map[string]struct {
		token   string
		keys    jwt.Keys
		outcome authn.Outcome
		reason  authn.Reason
	}{
		"good":                       {good, s.keys(), authn.Yes, authn.ReasonOK},
		"without jti and iat":        {s.sign(t, map[string]any{"jti": nil, "iat": nil}), s.keys(), authn.Yes, authn.ReasonOK},
		"of nobody":                  {s.sign(t, map[string]any{"iss": "https://kubernetes.default.svc"}), s.keys(), authn.No, authn.ReasonForeign},
		"an issuer in another case":  {s.sign(t, map[string]any{"iss": strings.ToUpper(issuerURL)}), s.keys(), authn.No, authn.ReasonForeign},
		"signed by another":          {newSigner(t).sign(t, nil), s.keys(), authn.No, authn.ReasonSignature},
		"expired":                    {s.sign(t, map[string]any{"exp": noon.Unix() - 1}), s.keys(), authn.No, authn.ReasonExpired},
		"not yet valid":              {s.sign(t, map[string]any{"nbf": noon.Add(time.Hour).Unix()}), s.keys(), authn.No, authn.ReasonNotYetValid},
		"for another":                {s.sign(t, map[string]any{"aud": "vault"}), s.keys(), authn.No, authn.ReasonAudience},
		"a group that is reserved":   {s.sign(t, map[string]any{"groups": "system:masters"}), s.keys(), authn.No, authn.ReasonGuard},
		"a user without a name":      {s.sign(t, map[string]any{"sub": ""}), s.keys(), authn.No, authn.ReasonClaims},
		"the issuer has no such key": {good, noKeys{}, authn.No, authn.ReasonUnknownKey},
		"the issuer cannot be asked": {good, noKeys{errors.New("connection refused")}, authn.Unknown, authn.ReasonKeys},
		"nobody can know the keys":   {good, nil, authn.Unknown, authn.ReasonKeys},
		"expired, and no keys":       {s.sign(t, map[string]any{"exp": noon.Unix() - 1}), noKeys{errors.New("down")}, authn.No, authn.ReasonExpired},
		"a newline at its end":       {good + "\n", s.keys(), authn.No, authn.ReasonMalformed},
		"cut off":                    {good[:len(good)-6], s.keys(), authn.No, authn.ReasonSignature},
		"two parts":                  {good[:strings.LastIndexByte(good, '.')], s.keys(), authn.No, authn.ReasonForeign},
		"unsigned":                   {good[:strings.LastIndexByte(good, '.')+1], s.keys(), authn.No, authn.ReasonSignature},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := issuer()
			one.Keys = test.keys
			set, err := authn.Compile(authn.Spec{Issuers: []authn.Issuer{one}, Now: atNoon})
			if err != nil {
				t.Fatal(err)
			}
			d := set.Decide(t.Context(), authn.Input{Token: test.token, Audiences: []string{apiServer}})
			if d.Outcome != test.outcome || d.Reason != test.reason {
				t.Fatalf("%+v", d)
			}
			if signature := test.token[strings.LastIndexByte(test.token, '.')+1:]; len(signature) > 20 && strings.Contains(d.Detail+d.Status.Error, signature) {
				t.Errorf("the signature is in %q and %q", d.Detail, d.Status.Error)
			}
			if strings.Contains(d.Status.Error, "refused") {
				t.Errorf("the API server is told why the issuer cannot be asked: %q", d.Status.Error)
			}
			if id := d.TokenID; d.Source != "" && id != "token-1" && (len(id) != 19 || !strings.HasPrefix(id, "sha256:")) {
				t.Errorf("the token's id is %q", id)
			}
			if d.Outcome == authn.Unknown && (d.Status.Error == "" || len(d.Status.Audiences) != 1) {
				t.Errorf("%+v", d.Status)
			}
			if d.Outcome != authn.Yes {
				return
			}
			if d.Status.User.Username != "oidc:jane" || d.Status.User.Groups[0] != "dev" || d.Status.Audiences != nil ||
				d.Backend != authn.JWTs || d.Source != issuerURL || !d.ExpiresAt.Equal(noon.Add(time.Hour)) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestEmptyGroup: behind a prefix an empty group is the prefix, which kube-apiserver's own authenticator gives (package jwt holds that),
// and for which anyone may have written a binding by mistake.
func TestEmptyGroup(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	one := issuer()
	one.Keys, one.Config.ClaimMappings.Groups.Prefix = s.keys(), new("oidc:")
	set, err := authn.Compile(authn.Spec{Issuers: []authn.Issuer{one}, Now: atNoon})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		groups any
		reason authn.Reason
		detail string
	}{
		{[]string{"dev"}, authn.ReasonOK, ""},
		{[]string{}, authn.ReasonOK, ""},
		{"", authn.ReasonGuard, `groups[0]: "oidc:" is only the prefix: the name of the group is empty`},
		{[]string{"dev", ""}, authn.ReasonGuard, `groups[1]: "oidc:" is only the prefix: the name of the group is empty`},
	} {
		d := set.Decide(t.Context(), authn.Input{Token: s.sign(t, map[string]any{"groups": test.groups}), Audiences: []string{apiServer}})
		if d.Reason != test.reason || d.Detail != test.detail {
			t.Errorf("%q: %s %q", test.groups, d.Reason, d.Detail)
		}
	}
}

func TestRevocationOfJWTs(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	one := issuer()
	one.Keys = s.keys()
	set, err := authn.Compile(authn.Spec{
		Issuers: []authn.Issuer{one}, Now: atNoon, Revocations: []authn.Revocation{revoke("oidc:jane", noon.Add(-time.Second*30))},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		claims map[string]any
		reason authn.Reason
	}{
		"issued before":        {nil, authn.ReasonRevoked},
		"issued after":         {map[string]any{"iat": noon.Unix()}, authn.ReasonOK},
		"nobody knows when":    {map[string]any{"iat": nil}, authn.ReasonRevoked},
		"of somebody else":     {map[string]any{"sub": "joe"}, authn.ReasonOK},
		"a name like a user's": {map[string]any{"sub": "Jane"}, authn.ReasonOK},
	} {
		if d := set.Decide(t.Context(), authn.Input{Token: s.sign(t, test.claims)}); d.Reason != test.reason {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
