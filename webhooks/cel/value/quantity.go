package value

import (
	"fmt"
	"strings"
)

// ErrHugeQuantity is the error of reading a quantity of a text that IsHugeQuantity.
var ErrHugeQuantity = fmt.Errorf("a quantity must not have more than %d digits, or an exponent of more than %d", mostDigits, mostExponentDigits)

const (
	// mostDigits is the maximum number of digits in front of the suffix of a quantity. To
	// read a million of them takes seconds.
	mostDigits = 100
	// mostExponentDigits is the maximum number of digits of its exponent. To compare
	// 1e9999999 takes minutes.
	mostExponentDigits = 2
)

// IsHugeQuantity reports whether a text, if it is a quantity, is one that takes longer to
// read or to compare than its cost says: neither the cost limit nor the context
// ends that. The grammar is that of
// k8s.io/apimachinery/pkg/api/resource.ParseQuantity.
func IsHugeQuantity(text string) bool {
	if text != "" && (text[0] == '+' || text[0] == '-') {
		text = text[1:]
	}
	suffix := strings.TrimLeft(text, "0123456789.")
	if len(text)-len(suffix) > mostDigits {
		return true
	}
	if suffix == "" || suffix[0] != 'e' && suffix[0] != 'E' {
		return false
	}
	exponent := strings.TrimLeft(suffix[1:], "+-")
	return len(exponent) > mostExponentDigits && strings.Trim(exponent, "0123456789") == ""
}
