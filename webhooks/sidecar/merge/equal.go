package merge

import (
	"encoding/json"
	"reflect"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
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

// findElement looks for the element with a key.
func findElement(list rawjson.Value, r *Rule, key string, value rawjson.Value) (int, rawjson.Value) {
	for i, element := range list.Elements() {
		if r.IsSet && Equal(element, value) || !r.IsSet && r.Key(element) == key {
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
	case rawjson.Null, rawjson.Invalid:
		return "nothing"
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
