package merge

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// ReadQuantity reads a quantity, which may be a string or a number. It returns false for
// one that is longer than any real one: comparing quantities with a huge exponent takes
// minutes.
func ReadQuantity(v rawjson.Value) (resource.Quantity, bool) {
	const longest = 24
	text := v.Text()
	if v.Kind() == rawjson.Number {
		text = string(v)
	}
	if len(text) > longest || hasHugeExponent(text) {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

// hasHugeExponent reports whether a number has an exponent of more than two digits.
func hasHugeExponent(text string) bool {
	i := strings.IndexAny(text, "eE")
	return i >= 0 && len(strings.TrimLeft(text[i+1:], "+-")) > 2
}
