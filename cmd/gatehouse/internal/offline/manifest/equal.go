package manifest

import (
	"errors"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// errMangled is the error for a document that was not changed as it should.
var errMangled = errors.New("internal error: the changed document does not say what it should, so it was not written; please report this with the document")

// means reports whether a new text of the document has this value, for kubectl.
func (d *document) means(text []byte, want rawjson.Value) bool {
	changed := document{part: part{json: d.json}, text: text}
	if changed.read(func(rawjson.Value) bool { return true }) != nil {
		return false
	}
	a, errA := changed.value.Decode()
	b, errB := want.Decode()
	return errA == nil && errB == nil && isEqual(a, b)
}

// isEqual reports whether two values are the same, however numbers are written.
func isEqual(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			other, ok := b[name]
			if !ok || !isEqual(value, other) {
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
			if !isEqual(a[i], b[i]) {
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
