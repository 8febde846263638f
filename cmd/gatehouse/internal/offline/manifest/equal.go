package manifest

import (
	"errors"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// errMangled says that a document did not become what it should.
var errMangled = errors.New("internal error: the changed document does not say what it should, so it was not written; please report this with the document")

// says reports whether a text that is to take the place of the document says what
// is wanted, to kubectl.
func (d *document) says(text []byte, want rawjson.Value) bool {
	changed := document{part: part{json: d.json}, text: text}
	// Every document that is changed matters.
	if changed.read(func(rawjson.Value) bool { return true }) != nil {
		return false
	}
	a, errA := changed.value.Decode()
	b, errB := want.Decode()
	return errA == nil && errB == nil && equal(a, b)
}

// equal reports whether two values are the same. A number is, however written.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			other, ok := b[name]
			if !ok || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if i, ok := b.(int64); ok {
			return a == float64(i)
		}
	}
	return a == b
}
