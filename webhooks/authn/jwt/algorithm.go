package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha256" // for crypto.SHA256
	_ "crypto/sha512" // for crypto.SHA384 and crypto.SHA512
	"math/big"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// algorithm is an accepted signing algorithm.
type algorithm struct {
	name string
	hash crypto.Hash
	// curve is the only curve of an ECDSA algorithm, and nil for RSA.
	curve elliptic.Curve
	// pss selects RSASSA-PSS in place of PKCS #1 v1.5.
	pss bool
}

// algorithms are all accepted signing algorithms, the nine of upstream: "none" and
// symmetric ones are not among them.
//
//nolint:gochecknoglobals // constant
var algorithms = []algorithm{
	{name: "RS256", hash: crypto.SHA256},
	{name: "RS384", hash: crypto.SHA384},
	{name: "RS512", hash: crypto.SHA512},
	{name: "PS256", hash: crypto.SHA256, pss: true},
	{name: "PS384", hash: crypto.SHA384, pss: true},
	{name: "PS512", hash: crypto.SHA512, pss: true},
	{name: "ES256", hash: crypto.SHA256, curve: elliptic.P256()},
	{name: "ES384", hash: crypto.SHA384, curve: elliptic.P384()},
	{name: "ES512", hash: crypto.SHA512, curve: elliptic.P521()},
}

// algorithmNames lists the algorithms in messages.
const algorithmNames = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512"

// minModulusBits is the minimum size of RSA keys.
const minModulusBits = 2048

// findAlgorithm returns the algorithm with this name, nil if there is none.
func findAlgorithm(name rawjson.Value) *algorithm {
	for i := range algorithms {
		if name.Is(algorithms[i].name) {
			return &algorithms[i]
		}
	}
	return nil
}

// fits reports whether the key has the type and size that the algorithm requires, and
// is not declared for another algorithm.
func (a *algorithm) fits(key Key) bool {
	if key.Algorithm != "" && key.Algorithm != a.name {
		return false
	}
	switch public := key.Public.(type) {
	case *rsa.PublicKey:
		return a.curve == nil && public != nil && public.N != nil && public.N.BitLen() >= minModulusBits
	case *ecdsa.PublicKey:
		return a.curve != nil && public != nil && public.Curve == a.curve
	}
	return false
}

// digest returns the hash of the signed part of a token.
func (a *algorithm) digest(signed []byte) []byte {
	h := a.hash.New()
	h.Write(signed)
	return h.Sum(nil)
}

// verify reports whether the signature of the digest is valid. The key must fit the
// algorithm.
func (a *algorithm) verify(key crypto.PublicKey, digest, signature []byte) bool {
	switch public := key.(type) {
	case *rsa.PublicKey:
		if a.pss {
			return rsa.VerifyPSS(public, a.hash, digest, signature, nil) == nil // with a salt of any length, as upstream
		}
		return rsa.VerifyPKCS1v15(public, a.hash, digest, signature) == nil
	case *ecdsa.PublicKey:
		// RFC 7518, section 3.4: r and s, each as wide as the order of the curve.
		width := (a.curve.Params().BitSize + 7) / 8
		if len(signature) != 2*width {
			return false
		}
		r, s := new(big.Int).SetBytes(signature[:width]), new(big.Int).SetBytes(signature[width:])
		return ecdsa.Verify(public, digest, r, s)
	}
	return false
}
