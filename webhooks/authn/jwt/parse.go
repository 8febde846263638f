package jwt

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// maxBytes is the maximum length of a token. The API server forwards no longer one.
const maxBytes = 1 << 20

const (
	googleIssuer = "https://accounts.google.com"
	// googleAlias is what Google sometimes writes into the claim iss. As upstream, it stands
	// for the URL of this issuer alone.
	googleAlias = "accounts.google.com"
)

// strict is base64url without padding that also rejects bits behind the last byte, so that
// there is one spelling of a token. It skips line breaks, which Parse rejects.
//
//nolint:gochecknoglobals // constant; building it costs more than using it
var strict = base64.RawURLEncoding.Strict()

// Token is a parsed JWT. Nothing in it is verified. It is immutable and safe for concurrent
// use.
type Token struct {
	algorithm *algorithm
	keyID     string
	issuer    string
	// signed is the part of the token that the signature covers.
	signed, signature []byte
	// claims are the members of the payload, in the order written, each once.
	claims []claim
	// registered are the claims that have a meaning of their own.
	registered registered
	// few is the memory of claims, unless there are many.
	few [20]claim
}

// claim is a member of the payload. Its name is in the form that rawjson.AppendString
// writes, so that names are equal if their bytes are.
type claim struct{ name, value rawjson.Value }

// claim returns the value of the claim with this name, in the form that
// rawjson.AppendString writes. An absent claim is an empty value.
func (t *Token) claim(name []byte) rawjson.Value {
	for i := range t.claims {
		if bytes.Equal(t.claims[i].name, name) {
			return t.claims[i].value
		}
	}
	return nil
}

// Issuer returns the claim iss, "" if there is none. It is not verified, and only selects
// the Authenticator. As upstream, accounts.google.com is https://accounts.google.com.
func (t *Token) Issuer() string { return t.issuer }

// Shaped reports whether the text has the shape of a JWT in compact form: three
// parts between dots, the first of which begins as base64url of an opening brace. It costs
// next to nothing, and checks nothing of what is in the parts.
//
// Upstream also takes a token with space around it or around the JSON of its
// header. A bearer token has no space, and no issuer writes such a header.
func Shaped(token string) bool {
	if len(token) < 2 || token[0] != 'e' || !endsBrace(token[1]) {
		return false
	}
	for range 2 {
		dot := strings.IndexByte(token, '.')
		if dot < 0 {
			return false
		}
		token = token[dot+1:]
	}
	return strings.IndexByte(token, '.') < 0
}

// endsBrace reports whether the character, after an e, can hold the rest of an opening
// brace.
func endsBrace(b byte) bool {
	return b >= 'w' && b <= 'z' || b >= '0' && b <= '9' || b == '-' || b == '_'
}

// Parse parses a token in compact form without verifying it. The error is a *Refusal,
// Malformed or Algorithm.
//
// It is stricter than upstream, so that there are no two readings of one token. It rejects a
// member that occurs twice, or whose name differs only in case from one with a meaning, such
// as Iss, which upstream reads as iss; base64url with line breaks or with stray bits; text
// that is not valid UTF-8; and the headers crit and b64, which change what is signed. It
// ignores the header typ, as upstream does, and keys and certificates in the header.
func Parse(text string) (*Token, error) {
	if !Shaped(text) {
		return nil, refuse(Malformed, "it does not have three parts separated by dots, beginning with a JSON object in base64url")
	}
	if len(text) > maxBytes {
		return nil, refuse(Malformed, fmt.Sprintf("it has %d bytes, at most %d are allowed", len(text), maxBytes))
	}
	// One allocation holds the text and all that is decoded from it.
	buf := make([]byte, len(text)+strict.DecodedLen(len(text)))
	copy(buf, text)
	raw, free := buf[:len(text):len(text)], buf[len(text):]
	if bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0 {
		return nil, refuse(Malformed, "it contains a line break")
	}
	first, last := bytes.IndexByte(raw, '.'), bytes.LastIndexByte(raw, '.')

	t := &Token{signed: raw[:last]}
	header, free, err := decode(free, raw[:first])
	if err != nil {
		return nil, refuse(Malformed, "the header is "+err.Error())
	}
	payload, free, err := decode(free, raw[first+1:last])
	if err != nil {
		return nil, refuse(Malformed, "the payload is "+err.Error())
	}
	t.signature, _, err = decode(free, raw[last+1:])
	if err != nil {
		return nil, refuse(Malformed, "the signature is "+err.Error())
	}
	if r := t.readHeader(header); r != nil {
		return nil, r
	}
	if r := t.readPayload(payload); r != nil {
		return nil, r
	}
	return t, nil
}

// decode decodes base64url to the front of free, and returns what is left of it.
func decode(free, part []byte) (decoded, rest []byte, err error) {
	n, err := strict.Decode(free, part)
	if err != nil {
		return nil, nil, fmt.Errorf("not base64url without padding: %w", err)
	}
	return free[:n:n], free[n:], nil
}

func (t *Token) readHeader(text []byte) *Refusal {
	header, r := object("header", text)
	if r != nil {
		return r
	}
	if name, twice := header.DuplicateKey(); twice {
		return refuse(Malformed, "the header has "+quote(name)+" twice")
	}
	var alg rawjson.Value
	c := header.Cursor()
	for c.Enter(); c.Next(); {
		name := c.PlainName()
		value := c.Skip()
		if r := checkNested("the header", name, value); r != nil {
			return r
		}
		switch string(name) {
		case `"alg"`:
			alg = value
		case `"kid"`:
			if !isStringOrNull(value) {
				return refuse(Malformed, "the header kid is "+value.Kind().String()+", want a string")
			}
			t.keyID = value.Text()
		case `"nonce"`:
			if !isStringOrNull(value) {
				return refuse(Malformed, "the header nonce is "+value.Kind().String()+", want a string")
			}
		case `"crit"`:
			return refuse(Malformed, "the header has crit, but no extension is supported")
		case `"b64"`:
			if !value.IsTrue() {
				return refuse(Malformed, "the header has b64, which changes what is signed")
			}
		default:
			if known, ok := foldsHeader(name); ok {
				return refuse(Malformed, "the header has "+quote(name.Text())+", which differs from "+known+" only in case")
			}
		}
	}
	if !isStringOrNull(alg) {
		return refuse(Malformed, "the header alg is "+alg.Kind().String()+", want a string")
	}
	if t.algorithm = findAlgorithm(alg); t.algorithm == nil {
		return refuse(Algorithm, "it is signed with "+quote(alg.Text())+", want one of "+algorithmNames)
	}
	return nil
}

func (t *Token) readPayload(text []byte) *Refusal {
	payload, r := object("payload", text)
	if r != nil {
		return r
	}
	t.claims = t.few[:0]
	c := payload.Cursor()
	for c.Enter(); c.Next(); {
		name := c.PlainName()
		value := c.Skip()
		t.claims = append(t.claims, claim{name, value})
		if known := t.registered.slot(name); known != nil {
			*known = value
		} else if known, ok := foldsClaim(name); ok {
			return refuse(Malformed, "it has the claim "+quote(name.Text())+", which differs from "+known+" only in case")
		}
	}
	if name, twice := t.duplicate(payload); twice {
		return refuse(Malformed, "it has the claim "+quote(name)+" twice")
	}
	iss := t.registered.iss
	if !isStringOrNull(iss) {
		return refuse(Malformed, "the claim iss is "+iss.Kind().String()+", want a string")
	}
	if t.issuer = iss.Text(); t.issuer == googleAlias {
		t.issuer = googleIssuer
	}
	return nil
}

// duplicate returns a claim that the payload has twice.
func (t *Token) duplicate(payload rawjson.Value) (string, bool) {
	if len(t.claims) > len(t.few) {
		return payload.DuplicateKey()
	}
	// For as many claims as issuers write, comparing pairs is faster than a map.
	for i := range t.claims {
		for j := range i {
			if bytes.Equal(t.claims[i].name, t.claims[j].name) {
				return t.claims[i].name.Text(), true
			}
		}
	}
	return "", false
}

// object parses a part of the token.
func object(what string, text []byte) (rawjson.Value, *Refusal) {
	v, err := rawjson.Parse(text)
	if err != nil {
		return nil, refuse(Malformed, "the "+what+" is "+err.Error())
	}
	if v.Kind() != rawjson.Object {
		return nil, refuse(Malformed, "the "+what+" is "+v.Kind().String()+", want an object")
	}
	return v, nil
}

// checkNested rejects a member whose value has an object, at any depth, that has a member
// twice, or a number that no reader can hold.
func checkNested(what string, name, value rawjson.Value) *Refusal {
	if bytes.IndexByte(value, '{') < 0 {
		return nil
	}
	_, err := value.Decode()
	if twice, ok := errors.AsType[*rawjson.DuplicateKeyError](err); ok {
		return refuse(Malformed, what+" "+quote(name.Text())+" has the member "+quote(twice.Key)+" twice in one object")
	}
	if err != nil {
		return refuse(Malformed, what+" "+quote(name.Text())+": "+boundedError(err))
	}
	return nil
}

// isStringOrNull reports whether encoding/json decodes the value, or its absence, to a
// string: it takes null for "".
func isStringOrNull(v rawjson.Value) bool {
	switch v.Kind() {
	case rawjson.String, rawjson.Null, rawjson.Invalid:
		return true
	case rawjson.Bool, rawjson.Number, rawjson.Array, rawjson.Object:
	}
	return false
}
