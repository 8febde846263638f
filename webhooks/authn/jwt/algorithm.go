package jwt

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// algorithm is one of the signing algorithms that are taken: upstream's nine. The
// zero algorithm is none.
type algorithm byte

const (
	rs256 algorithm = iota + 1
	rs384
	rs512
	ps256
	ps384
	ps512
	es256
	es384
	es512
)

const algorithms = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512"

// minModulusBits is the size from which RSA keys are taken.
const minModulusBits = 2048

// algorithmOf is the algorithm with this name, a String, and zero if there is
// none.
func algorithmOf(name rawjson.Value) algorithm {
	if bytes.IndexByte(name, '\\') >= 0 {
		name = rawjson.AppendString(nil, name.Text())
	}
	switch string(name) {
	case `"RS256"`:
		return rs256
	case `"RS384"`:
		return rs384
	case `"RS512"`:
		return rs512
	case `"PS256"`:
		return ps256
	case `"PS384"`:
		return ps384
	case `"PS512"`:
		return ps512
	case `"ES256"`:
		return es256
	case `"ES384"`:
		return es384
	case `"ES512"`:
		return es512
	}
	return 0
}

func (a algorithm) String() string {
	const width = len("RS256")
	if a == 0 || a > es512 {
		return "none"
	}
	i := int(a-1) * (width + len(", "))
	return algorithms[i : i+width]
}

func (a algorithm) hash() crypto.Hash {
	switch a {
	case rs256, ps256, es256:
		return crypto.SHA256
	case rs384, ps384, es384:
		return crypto.SHA384
	case rs512, ps512, es512:
		return crypto.SHA512
	default:
		return 0
	}
}

// fits tells whether the key is one for the algorithm: of its type and size, and
// not declared for another.
func (a algorithm) fits(key Key) bool {
	if key.Algorithm != "" && key.Algorithm != a.String() {
		return false
	}
	switch public := key.Public.(type) {
	case *rsa.PublicKey:
		return a >= rs256 && a <= ps512 && public != nil && public.N != nil && public.N.BitLen() >= minModulusBits
	case *ecdsa.PublicKey:
		if public == nil || public.Curve == nil {
			return false
		}
		switch a {
		case es256:
			return public.Curve == elliptic.P256()
		case es384:
			return public.Curve == elliptic.P384()
		case es512:
			return public.Curve == elliptic.P521()
		case rs256, rs384, rs512, ps256, ps384, ps512:
		}
	}
	return false
}

// digest is the hash of a text.
type digest struct {
	sum  [sha512.Size]byte
	size int
}

func (a algorithm) digest(text []byte) digest {
	var d digest
	switch a {
	case rs256, ps256, es256:
		sum := sha256.Sum256(text)
		d.size = copy(d.sum[:], sum[:])
	case rs384, ps384, es384:
		sum := sha512.Sum384(text)
		d.size = copy(d.sum[:], sum[:])
	case rs512, ps512, es512:
		sum := sha512.Sum512(text)
		d.size = copy(d.sum[:], sum[:])
	}
	return d
}

// verifies tells whether the signature is the key's over the text with this
// digest. The key fits the algorithm.
func (a algorithm) verifies(key Key, d *digest, signature []byte) bool {
	sum := d.sum[:d.size]
	switch public := key.Public.(type) {
	case *rsa.PublicKey:
		if a >= ps256 {
			// As upstream, a salt of any length is taken.
			return rsa.VerifyPSS(public, a.hash(), sum, signature, nil) == nil
		}
		return rsa.VerifyPKCS1v15(public, a.hash(), sum, signature) == nil
	case *ecdsa.PublicKey:
		width := (public.Params().BitSize + 7) / 8
		if len(signature) != 2*width {
			return false
		}
		var room [maxDER]byte
		return ecdsa.VerifyASN1(public, sum, appendDER(room[:0], signature[:width], signature[width:]))
	}
	return false
}

// maxDER is the size of the largest DER signature: two numbers of 66 bytes, none
// of which has its highest bit set, in a sequence.
const maxDER = 3 + 2*(2+66)

// appendDER appends the DER form of a signature. A JWT has r and s in a fixed
// width instead.
func appendDER(dst, r, s []byte) []byte {
	r, s = minimal(r), minimal(s)
	size := integerSize(r) + integerSize(s)
	dst = append(dst, 0x30)
	if size >= 0x80 {
		dst = append(dst, 0x81)
	}
	dst = append(dst, byte(size)) // #nosec G115 -- less than maxDER
	return appendInteger(appendInteger(dst, r), s)
}

// minimal is the number without leading zeros.
func minimal(number []byte) []byte {
	for len(number) > 1 && number[0] == 0 {
		number = number[1:]
	}
	return number
}

func integerSize(number []byte) int { return 2 + int(number[0]>>7) + len(number) }

func appendInteger(dst, number []byte) []byte {
	dst = append(dst, 0x02, byte(int(number[0]>>7)+len(number))) // #nosec G115 -- at most 67
	if number[0]&0x80 != 0 {
		dst = append(dst, 0)
	}
	return append(dst, number...)
}
