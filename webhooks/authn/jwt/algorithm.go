package jwt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"

	"github.com/go-jose/go-jose/v4"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// algorithms are the signing algorithms that are taken: upstream's nine.
//
//nolint:gochecknoglobals // constant
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512,
}

// algorithmNames are the algorithms for people.
const algorithmNames = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512"

// minModulusBits is the size from which RSA keys are taken.
const minModulusBits = 2048

// findAlgorithm returns the algorithm with this name, a String, and "" if there is
// none.
func findAlgorithm(name rawjson.Value) jose.SignatureAlgorithm {
	for _, a := range algorithms {
		if name.Is(string(a)) {
			return a
		}
	}
	return ""
}

// fits reports whether the key is one for the algorithm: of its type and size, and
// not declared for another.
func fits(a jose.SignatureAlgorithm, key Key) bool {
	if key.Algorithm != "" && key.Algorithm != string(a) {
		return false
	}
	switch public := key.Public.(type) {
	case *rsa.PublicKey:
		return (a[0] == 'R' || a[0] == 'P') && public != nil && public.N != nil && public.N.BitLen() >= minModulusBits
	case *ecdsa.PublicKey:
		return public != nil && (a == jose.ES256 && public.Curve == elliptic.P256() ||
			a == jose.ES384 && public.Curve == elliptic.P384() || a == jose.ES512 && public.Curve == elliptic.P521())
	}
	return false
}

// parseSigned returns the token as its signature is verified, which is go-jose's
// work. Parse has checked the token, so that there is no second reading of it.
func (t *Token) parseSigned() (*jose.JSONWebSignature, *Refusal) {
	signed, err := jose.ParseSignedCompact(t.text, []jose.SignatureAlgorithm{t.algorithm})
	if err != nil {
		return nil, refuse(Malformed, "the header is not one of a signature: "+boundedError(err))
	}
	return signed, nil
}
