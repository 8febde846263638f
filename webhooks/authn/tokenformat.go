package authn

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"strings"
)

// An access token reads
//
//	gatehouse_<id>_<secret><check>
//
// The prefix lets a token be dispatched by its shape and lets secret scanners
// find one that leaked. The id is the name of an AccessToken, a DNS-1123 label,
// and so holds no underscore. The secret is 200 random bits. The check is the
// CRC-32 (IEEE) of everything before it, as four bytes, most significant first,
// in base32: it distinguishes a mistyped or truncated token from an unknown one
// without a look-up. The whole text is lower case, and there is one text for each id and
// secret.
const (
	tokenPrefix = "gatehouse_"
	alphabet    = "abcdefghijklmnopqrstuvwxyz234567"

	randomBytes = 25
	// secretChars is 25 bytes of 8 bits in characters of 5 bits.
	secretChars = randomBytes * 8 / 5
	// checkChars is 32 bits in characters of 5 bits, rounded up.
	checkChars = 7
	// maxIDChars is the length of a DNS-1123 label.
	maxIDChars = 63
	// maxTokenChars is 10 + 63 + 1 + 40 + 7 = 121.
	maxTokenChars = len(tokenPrefix) + maxIDChars + 1 + secretChars + checkChars
)

var (
	errForeign   = errors.New("not an access token: it does not begin with gatehouse_")
	errMalformed = errors.New("not a complete access token: the form is gatehouse_<id>_<secret> as it was issued")
	errCheck     = errors.New("the checksum of the access token does not match: a character was changed or lost")
)

// NewToken returns the access token of the id with a secret made of the random bytes, and
// its SHA-256 in lower-case hexadecimal, which is stored in an AccessToken. The id must be
// a DNS-1123 label, as Compile requires of an AccessToken's name.
func NewToken(id string, random [25]byte) (text, sha256Hex string) {
	secret := base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(random[:])
	body := tokenPrefix + id + "_" + secret
	check := checkOf(body)
	text = body + string(check[:])
	sum := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(sum[:])
}

// ParseToken returns the id in an access token, whether or not the token is known or
// valid. The error never holds any of the token.
func ParseToken(text string) (id string, err error) {
	if !isAccessToken(text) {
		return "", errForeign
	}
	if len(text) > maxTokenChars {
		return "", errMalformed
	}
	id, rest, found := strings.Cut(text[len(tokenPrefix):], "_")
	if !found || !isLabel(id) || len(rest) != secretChars+checkChars {
		return "", errMalformed
	}
	for i := range len(rest) {
		if c := rest[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return "", errMalformed
		}
	}
	body := text[:len(text)-checkChars]
	if check := checkOf(body); text[len(body):] != string(check[:]) {
		return "", errCheck
	}
	return id, nil
}

// isAccessToken reports by its shape whether a token is for this backend.
func isAccessToken(token string) bool { return strings.HasPrefix(token, tokenPrefix) }

// checkOf returns the check of the token before it.
func checkOf(body string) [checkChars]byte {
	// crc32.ChecksumIEEE takes bytes and would need a copy of the text in the
	// heap; over so short a text the plain loop costs less.
	crc := ^uint32(0)
	for i := range len(body) {
		crc = crc32.IEEETable[byte(crc)^body[i]] ^ crc>>8 //nolint:gosec // the low byte is what the algorithm takes
	}
	// Seven characters hold 35 bits; base32 fills up with zeros at the end.
	bits := uint64(^crc) << (checkChars*5 - 32)
	var check [checkChars]byte
	for i := range check {
		check[i] = alphabet[bits>>((checkChars-1-i)*5)&31]
	}
	return check
}

// isLabel reports whether s is a DNS-1123 label, as apimachinery's
// validation.IsDNS1123Label does, without a regular expression.
func isLabel(s string) bool {
	if s == "" || len(s) > maxIDChars || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
