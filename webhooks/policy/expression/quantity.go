package expression

import (
	"bytes"
	"errors"
)

// errHugeQuantity is the failure of an expression that makes quantities.
var errHugeQuantity = errors.New("the request has a quantity with an exponent of more than two digits")

// IsHugeQuantity tells whether a text may hold a quantity with an exponent of
// three digits or more, such as 1e9999999. Comparing one takes minutes, which
// neither the cost limit nor the context ends. It looks for a digit or a dot, an
// e, and three digits, so that it may take other texts for one.
func IsHugeQuantity(text []byte) bool {
	const digits = 3
	for at := 0; ; {
		next := bytes.IndexAny(text[at:], "eE")
		if next < 0 {
			return false
		}
		at += next + 1
		if at < 2 || !isDigit(text[at-2]) && text[at-2] != '.' {
			continue
		}
		rest := text[at:]
		if len(rest) > 0 && (rest[0] == '+' || rest[0] == '-') {
			rest = rest[1:]
		}
		n := 0
		for n < len(rest) && n < digits && isDigit(rest[n]) {
			n++
		}
		// Behind the digits stands the end of the text, or of the JSON string: in
		// a hash, which has letters, there is no quantity.
		for n == digits && len(rest) > n && isDigit(rest[n]) {
			rest = rest[1:]
		}
		if n == digits && (len(rest) == n || rest[n] == '"') {
			return true
		}
	}
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }
