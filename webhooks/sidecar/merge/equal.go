package merge

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

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

func findElement(list rawjson.Value, r *Rule, value rawjson.Value) (int, rawjson.Value) {
	plain := r.IsSet && r.clean == nil
	meaning := ""
	if !plain {
		meaning = r.meaning(value)
	}
	for i, element := range list.Elements() {
		if plain && Equal(element, value) || !plain && r.meaning(element) == meaning {
			return i, element
		}
	}
	return -1, nil
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

// elementFinder finds elements of a list by the meaning of their keys. Where many are looked for among
// many, it looks at each once.
type elementFinder struct {
	list rawjson.Value
	rule *Rule
	at   map[string]indexedElement // nil if there are few
}

type indexedElement struct {
	index   int
	element rawjson.Value
}

func newElementFinder(list rawjson.Value, r *Rule, wanted rawjson.Value) elementFinder {
	const few = 16
	f := elementFinder{list: list, rule: r}
	if r.IsSet || wanted.Len() <= few || list.Len() <= few {
		return f
	}
	f.at = make(map[string]indexedElement)
	for i, element := range list.Elements() {
		key := r.meaning(element)
		if _, twice := f.at[key]; !twice {
			f.at[key] = indexedElement{i, element}
		}
	}
	return f
}

// find returns the first element with the key of another one, or -1.
func (f *elementFinder) find(value rawjson.Value) (int, rawjson.Value) {
	if f.at != nil {
		if k, there := f.at[f.rule.meaning(value)]; there {
			return k.index, k.element
		}
		return -1, nil
	}
	return findElement(f.list, f.rule, value)
}

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
