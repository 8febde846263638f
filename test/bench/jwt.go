package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// The JSON Web Tokens of the benchmark, of some 700 bytes, and the keys that
// verify them. The private keys are lost, and the tokens expire in 2100.
var (
	//go:embed documents/rs256.jwt
	tokenRS256 string
	//go:embed documents/es256.jwt
	tokenES256 string
	//go:embed documents/issuer.jwks
	issuerKeys string
)

// pathVerify is where the null webhook verifies the token's signature too: the
// least that a JWT costs.
const pathVerify = "/verify"

// verifier verifies one JWT with the standard library alone.
type verifier struct {
	rsa   *rsa.PublicKey
	ecdsa *ecdsa.PublicKey
}

// newVerifier reads issuerKeys.
func newVerifier() verifier {
	var set jose.JSONWebKeySet
	must0(json.Unmarshal([]byte(issuerKeys), &set))
	var v verifier
	for _, key := range set.Keys {
		switch public := key.Key.(type) {
		case *rsa.PublicKey:
			v.rsa = public
		case *ecdsa.PublicKey:
			v.ecdsa = public
		}
	}
	return v
}

// verify returns an error unless the signature is right. It reads no claims, and
// tells the algorithms apart by the length of the signature.
func (v verifier) verify(token string) error {
	dot := strings.LastIndexByte(token, '.')
	if dot < 0 {
		return errors.New("no signature")
	}
	var buffer [256]byte
	signature, err := base64.RawURLEncoding.AppendDecode(buffer[:0], []byte(token[dot+1:]))
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(token[:dot]))
	const es256Bytes = 64
	if len(signature) != es256Bytes {
		return rsa.VerifyPKCS1v15(v.rsa, crypto.SHA256, digest[:], signature)
	}
	r, s := new(big.Int).SetBytes(signature[:es256Bytes/2]), new(big.Int).SetBytes(signature[es256Bytes/2:])
	if !ecdsa.Verify(v.ecdsa, digest[:], r, s) {
		return errors.New("the signature is wrong")
	}
	return nil
}
