package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"
)

// The JSON Web Tokens of the benchmark, of some 700 bytes, and the keys that
// verify them. Nobody has the private keys, and the tokens are good until 2100.
const (
	tokenRS256 = "eyJhbGciOiJSUzI1NiIsImtpZCI6InIxIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjpbImt1Ym" +
		"VybmV0ZXMiXSwic3ViIjoiMjQ4Mjg5NzYxMDAxIiwicHJlZmVycmVkX3VzZXJuYW1lIjoiZGV2ZWxvcGVyQGV4YW1wbGUuY29tIiwiZW1haWwi" +
		"OiJkZXZlbG9wZXJAZXhhbXBsZS5jb20iLCJlbWFpbF92ZXJpZmllZCI6dHJ1ZSwiZ3JvdXBzIjpbImRldmVsb3BlcnMiLCJwbGF0Zm9ybSIsIm" +
		"9uLWNhbGwiLCJldS13ZXN0Iiwia3ViZXJuZXRlcy11c2VycyJdLCJpYXQiOjE3NjcyMjU2MDAsIm5iZiI6MTc2NzIyNTYwMCwiZXhwIjo0MTAy" +
		"NDQ0ODAwLCJqdGkiOiJiMTk0NmFjOTI0OTJkMjM0N2M2MjM1YjRkMjYxMTE4NCIsImF6cCI6Imt1YmVybmV0ZXMiLCJuYW1lIjoiQSBEZXZlbG" +
		"9wZXIifQ.p_KqSfVU6tNWdimmJBGUmZX0eNKDbtff-x3mMoqvwj0SZjusZbvmybSbU-e3-cjk4kcFQ5hujqW2Jj8FP9Db9h0DwWrjEyoISNDyy" +
		"ftoBlz1DXueKWP5JrKA5Okhxw8QE0T4gdGXxHmDzo9FLp0DlSbOv7zy3x7t88SZD_vTzf3Q6L1DVTgkpqVFibUsqPWW75C9lnpsBUw2mybMYgh" +
		"6HgqbyCaiWNGL-qIjZbVRJ3Ujiiq7ePUy3-sW-UIgTfibzM7JlY6qdBh0VGh0GET3Ip0cLSztq1JYFwQDvImQx-w6qZJRgD67oRpkLLUKW9o0W" +
		"MUu0FEw-mBnlhL9EV923g"
	tokenES256 = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUxIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjpbImt1Ym" +
		"VybmV0ZXMiXSwic3ViIjoiMjQ4Mjg5NzYxMDAxIiwicHJlZmVycmVkX3VzZXJuYW1lIjoiZGV2ZWxvcGVyQGV4YW1wbGUuY29tIiwiZW1haWwi" +
		"OiJkZXZlbG9wZXJAZXhhbXBsZS5jb20iLCJlbWFpbF92ZXJpZmllZCI6dHJ1ZSwiZ3JvdXBzIjpbImRldmVsb3BlcnMiLCJwbGF0Zm9ybSIsIm" +
		"9uLWNhbGwiLCJldS13ZXN0Iiwia3ViZXJuZXRlcy11c2VycyJdLCJpYXQiOjE3NjcyMjU2MDAsIm5iZiI6MTc2NzIyNTYwMCwiZXhwIjo0MTAy" +
		"NDQ0ODAwLCJqdGkiOiJiMTk0NmFjOTI0OTJkMjM0N2M2MjM1YjRkMjYxMTE4NCIsImF6cCI6Imt1YmVybmV0ZXMiLCJuYW1lIjoiQSBEZXZlbG" +
		"9wZXIifQ.pCjpTR_wlULGoqedRBHAAEcLaGXSvvnu84aZdyc94Td5Qw5GLTVxETPBDjOtdqV5f_s8hs1-MtRIhV_N-KqDRw"
	issuerKeys = `{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"r1","e":"AQAB","n":"wJuIO14YGNxAtff-m_8F8-SdUBgwislMiDv2vkZPsBnJZ4E7iYEJSj1MrxArkWRXzWoRaY2Q8fqutsZDbZKXPeOsDjCLCrJIcyh98RIjUSOUOe9MQ0kh9TwOKAhkx8hvJfPYbMVhhrCvPM2YXTs3bohUelljLfmoEJiBEtHGLs2R-qt-qOLr_hO8Bb0bQ5hn4WkU01TVWUg6nbckYar16d491IjoWCOsuYwYVloT9bqYLPSiV8i_0z169YAArA9_GEMSO0zWgKC2SJDyRyaFyzVAXsinfekzYGQt38wPbsA2XUmQZOLJnUMVl8s8nDfLQu1sOCRVFLbyvuuuN9zObQ"},{"kty":"EC","use":"sig","alg":"ES256","kid":"e1","crv":"P-256","x":"d3ZEvpSJkqZczeH_FVCN1A1aR1ml8619yV0SaFFOhMU","y":"9p_FrQJvDvJ8IKgrMYR2pxWJff1sFFHurLJ0pZxip_Y"}]}`
)

// pathVerify is where the null webhook verifies the token's signature, and does
// nothing else beyond what it always does: what a JWT costs at the least.
const pathVerify = "/verify"

// verifier verifies one JWT by the standard library alone.
type verifier struct {
	rsa   *rsa.PublicKey
	ecdsa *ecdsa.PublicKey
}

// newVerifier reads issuerKeys.
func newVerifier() (*verifier, error) {
	var set struct {
		Keys []struct{ Kty, N, X, Y string } `json:"keys"`
	}
	if err := json.Unmarshal([]byte(issuerKeys), &set); err != nil {
		return nil, err
	}
	decoded := func(text string) []byte {
		data, _ := base64.RawURLEncoding.DecodeString(text) // a constant of this file
		return data
	}
	v := &verifier{}
	for _, key := range set.Keys {
		switch key.Kty {
		case "RSA":
			v.rsa = &rsa.PublicKey{N: new(big.Int).SetBytes(decoded(key.N)), E: 65537}
		case "EC":
			point := append([]byte{4}, append(decoded(key.X), decoded(key.Y)...)...)
			public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
			if err != nil {
				return nil, err
			}
			v.ecdsa = public
		}
	}
	return v, nil
}

var errSignature = errors.New("the signature is not right")

// verify hashes and verifies, and looks at nothing that the token says but its
// length.
func (v *verifier) verify(token string) error {
	dot := strings.LastIndexByte(token, '.')
	if dot < 0 {
		return errSignature
	}
	var room [256]byte
	signature, err := base64.RawURLEncoding.AppendDecode(room[:0], []byte(token[dot+1:]))
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(token[:dot]))
	const ofECDSA = 64 // bytes
	if len(signature) != ofECDSA {
		return rsa.VerifyPKCS1v15(v.rsa, crypto.SHA256, digest[:], signature)
	}
	r, s := new(big.Int).SetBytes(signature[:ofECDSA/2]), new(big.Int).SetBytes(signature[ofECDSA/2:])
	if !ecdsa.Verify(v.ecdsa, digest[:], r, s) {
		return errSignature
	}
	return nil
}

// verified answers like the null webhook if the token's signature is right.
func (v *verifier) verified(w http.ResponseWriter, body []byte, answer func(http.ResponseWriter, []byte)) {
	token, ok := findString(body, `"token":"`)
	if !ok {
		http.Error(w, "no token", http.StatusBadRequest)
		return
	}
	if err := v.verify(string(token)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, body)
}

// issuerDocuments configure the issuer of the tokens, without and with
// expressions.
func issuerDocuments(expressions bool) map[string]string {
	mapping := `    username: {claim: preferred_username, prefix: ""}
    groups: {claim: groups, prefix: "sso:"}
    uid: {claim: sub}
`
	if expressions {
		mapping = `    username: {expression: claims.preferred_username}
    groups: {expression: "claims.?groups.orValue([])"}
    uid: {expression: claims.sub}
    extra:
    - {key: example.com/name, valueExpression: claims.name}
  claimValidationRules:
  - {expression: "claims.email_verified == true", message: the address has to be verified}
  - {expression: "has(claims.azp) && claims.azp == 'kubernetes'", message: the token is for another client}
  userValidationRules:
  - {expression: "!user.username.startsWith('system:')", message: reserved}
  - {expression: "user.groups.exists(g, g == 'kubernetes-users')", message: not a member}
`
	}
	return map[string]string{
		"issuer.yaml": fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://issuer.example, audiences: [kubernetes]}
  claimMappings:
%s---
apiVersion: gatehouse.dev/v1alpha1
kind: AuthenticationConfiguration
jwt: {issuers: [{url: https://issuer.example, keysFile: issuer.jwks}]}
`, mapping),
		"issuer.jwks": issuerKeys,
	}
}
