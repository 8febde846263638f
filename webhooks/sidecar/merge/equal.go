package merge

import (
	"encoding/json"
	"net/netip"
	"path"
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Equal compares two values as the API server does: the order of members and the
// way in which a number or text is written make no difference.
func Equal(a, b rawjson.Value) bool {
	if string(a) == string(b) {
		return true
	}
	if a.Kind() != b.Kind() {
		return false
	}
	x, errX := a.Decode()
	y, errY := b.Decode()
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// CleanPath returns the one way in which a path of a container or node is written. For the kernel "/logs/" and "/./logs" are the
// directory "/logs"; the API server compares their texts.
func CleanPath(text string) string {
	if text == "" {
		return ""
	}
	return path.Clean(text)
}

// CleanAddress returns the one way in which an IP address is written. What is none stays as it is.
func CleanAddress(text string) string {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.Unmap().String()
	}
	return text
}

// Describe returns a value for a message. Only strings, numbers and booleans are shown: an
// object may hold secrets.
func Describe(v rawjson.Value) string {
	const most = 64
	switch v.Kind() {
	case rawjson.String:
		return strconv.Quote(strict.Cut(v.Text(), most))
	case rawjson.Number, rawjson.Bool:
		return strict.Cut(string(v), most)
	case rawjson.Array:
		return "another list"
	case rawjson.Object:
		return "another value"
	default:
		return "nothing"
	}
}

// Canonical returns the same text for all values that are Equal. A value that cannot be
// decoded equals only itself.
func Canonical(v rawjson.Value) string {
	tree, err := v.Decode()
	if err != nil {
		return string(v)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return string(v)
	}
	return string(text)
}

// elementIndex finds elements of a list by their meaning.
type elementIndex map[string]indexedElement

type indexedElement struct {
	index   int
	element rawjson.Value
}

// newElementIndex returns an index of the first element of each meaning.
func newElementIndex(list rawjson.Value, r *Rule) elementIndex {
	x := make(elementIndex, list.Len())
	for i, element := range list.Elements() {
		key := r.meaning(element)
		if _, twice := x[key]; !twice {
			x[key] = indexedElement{i, element}
		}
	}
	return x
}

// ReadQuantity reads a quantity, which may be a string or a number. It returns false for
// one that takes minutes to compare.
func ReadQuantity(v rawjson.Value) (resource.Quantity, bool) {
	text := v.Text()
	if v.Kind() == rawjson.Number {
		text = string(v)
	}
	if celvalue.IsHugeQuantity(text) {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

// HasHugeQuantity reports whether something in a value, if it is a quantity, takes minutes to compare.
func HasHugeQuantity(v rawjson.Value) bool {
	switch v.Kind() {
	case rawjson.String:
		return celvalue.IsHugeQuantity(v.Text())
	case rawjson.Number:
		return celvalue.IsHugeQuantity(string(v))
	case rawjson.Object:
		for _, value := range v.Members() {
			if HasHugeQuantity(value) {
				return true
			}
		}
	case rawjson.Array:
		for _, element := range v.Elements() {
			if HasHugeQuantity(element) {
				return true
			}
		}
	case rawjson.Invalid, rawjson.Null, rawjson.Bool:
	}
	return false
}
