package jwt_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// ring is a set of keys of each kind, made once.
type ring struct {
	rsa2048, rsa3072 *rsa.PrivateKey
	p256, p384, p521 *ecdsa.PrivateKey
	// stranger is a key that the issuer does not have.
	stranger *rsa.PrivateKey
}

// Making keys takes longer than most tests.
var keyRing = sync.OnceValue(func() ring {
	newRSA := func(bits int) *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			panic(err)
		}
		return key
	}
	newEC := func(curve elliptic.Curve) *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			panic(err)
		}
		return key
	}
	return ring{
		rsa2048: newRSA(2048), rsa3072: newRSA(3072), stranger: newRSA(2048),
		p256: newEC(elliptic.P256()), p384: newEC(elliptic.P384()), p521: newEC(elliptic.P521()),
	}
})

// issuerKeys are the keys of the tests' issuer.
func issuerKeys() static {
	r := keyRing()
	return static{
		{ID: "rsa", Public: &r.rsa2048.PublicKey},
		{ID: "big", Public: &r.rsa3072.PublicKey},
		{ID: "p256", Public: &r.p256.PublicKey},
		{ID: "p384", Public: &r.p384.PublicKey},
		{ID: "p521", Public: &r.p521.PublicKey},
	}
}

// static is a fixed set of keys, also for upstream.
type static []jwt.Key

func (s static) Find(ctx context.Context, id string) ([]jwt.Key, error) {
	return jwt.NewKeySet(s...).Find(ctx, id)
}

// VerifySignature makes of the keys a key set of upstream's.
func (s static) VerifySignature(_ context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSigned(token)
	if err != nil {
		return nil, err
	}
	for _, key := range s {
		if id := jws.Signatures[0].Header.KeyID; id != "" && id != key.ID {
			continue
		}
		if payload, err := jws.Verify(key.Public); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no key verifies the signature")
}

// private is the key that signs for an algorithm.
func private(alg string) crypto.Signer {
	r := keyRing()
	switch alg {
	case "ES256":
		return r.p256
	case "ES384":
		return r.p384
	case "ES512":
		return r.p521
	case "RS384", "PS384":
		return r.rsa3072
	}
	return r.rsa2048
}

func hashOf(alg string) crypto.Hash {
	switch alg[2:] {
	case "384":
		return crypto.SHA384
	case "512":
		return crypto.SHA512
	}
	return crypto.SHA256
}

// signature signs a text.
func signature(tb testing.TB, alg string, key crypto.Signer, text string) []byte {
	tb.Helper()
	hash := hashOf(alg)
	h := hash.New()
	_, _ = io.WriteString(h, text)
	sum := h.Sum(nil)
	if key, ok := key.(*ecdsa.PrivateKey); ok {
		r, s, err := ecdsa.Sign(rand.Reader, key, sum)
		if err != nil {
			tb.Fatal(err)
		}
		width := (key.Params().BitSize + 7) / 8
		return append(r.FillBytes(make([]byte, width)), s.FillBytes(make([]byte, width))...)
	}
	opts := crypto.SignerOpts(hash)
	if strings.HasPrefix(alg, "PS") {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	signed, err := key.Sign(rand.Reader, sum, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return signed
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// signed is a token with this header and payload, signed as alg with a key.
func signed(tb testing.TB, alg string, key crypto.Signer, header, payload string) string {
	tb.Helper()
	text := encode(header) + "." + encode(payload)
	return text + "." + encode(string(signature(tb, alg, key, text)))
}

// issue is a token of the issuer with these claims.
func issue(tb testing.TB, alg, payload string) string {
	tb.Helper()
	return signed(tb, alg, private(alg), `{"alg":"`+alg+`","typ":"JWT"}`, payload)
}

// A CEL environment takes milliseconds.
var compiler = sync.OnceValue(authenticationcel.NewDefaultCompiler)

// clock is the time of tests that ask upstream too: upstream's clock cannot be
// set.
func clock() time.Time {
	return time.Now() //nolint:forbidigo // see above
}

// offline is a network that reaches nothing.
type offline struct{}

func (offline) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%s is not reached in tests", r.URL)
}

// newUpstream is the API server's own authenticator with the same configuration
// and keys.
func newUpstream(tb testing.TB, config *apiserver.JWTAuthenticator, keys static) (authenticator.Token, error) {
	tb.Helper()
	return oidc.New(tb.Context(), oidc.Options{
		JWTAuthenticator:     *config,
		KeySet:               keys,
		SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
		Compiler:             compiler(),
		Client:               &http.Client{Transport: offline{}},
	})
}

func upstream(tb testing.TB, config *apiserver.JWTAuthenticator, keys static) authenticator.Token {
	tb.Helper()
	a, err := newUpstream(tb, config, keys)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func compile(tb testing.TB, config *apiserver.JWTAuthenticator, keys jwt.Keys) *jwt.Authenticator {
	tb.Helper()
	a, errs := jwt.Compile(config, keys)
	if err := errs.ToAggregate(); err != nil {
		tb.Fatal(err)
	}
	return a
}
