package manifest

import (
	"errors"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// errMangled is the error for a document that was not changed as it should.
var errMangled = errors.New("internal error: the changed document does not say what it should, so it was not written; please report this with the document")

// means reports whether a new text of the document has this value, for kubectl.
func (d *document) means(text []byte, want rawjson.Value) bool {
	changed := document{part: part{json: d.json}, text: text}
	if changed.read(func(rawjson.Value) bool { return true }, NewExpansion(len(text))) != nil {
		return false
	}
	return sameValue(changed.value, want)
}
