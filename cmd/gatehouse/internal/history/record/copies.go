package record

import (
	"strings"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
)

// originals is the member of a status annotation that holds what of a pod injection has replaced, by field path.
const originals = "originals"

// status passes by the text of a status annotation. A text that is none is redacted whole.
func (w *walk) status(begin int, v rawjson.Value) {
	text, copies, ok := w.statusOf(v)
	switch {
	case !ok:
		w.mark(begin, v)
	case len(copies) > 0:
		w.found.copies = append(w.found.copies, copies...)
		w.replace(begin, rawjson.AppendString(nil, string(text)))
	}
}

// statusOf returns the text of a status annotation in which the originals are redacted as the parts of the pod that they were, and
// what was found. It is false for any other value.
func (r *Redactor) statusOf(v rawjson.Value) (text []byte, copies []Found, ok bool) {
	status, err := rawjson.Parse([]byte(v.Text()))
	if err != nil || status.Kind() != rawjson.Object {
		return nil, nil, false
	}
	isFull := false
	text = appendMembers(nil, status, func(dst []byte, name, v rawjson.Value) []byte {
		if !name.Is(originals) {
			return append(dst, v...)
		}
		return appendMembers(dst, v, func(dst []byte, path, v rawjson.Value) []byte {
			at := r.placeOf(path.Text())
			if at == nil {
				return append(dst, v...)
			}
			w := r.walk(dst, v, at)
			if len(w.found.values)+len(w.found.copies) > 0 {
				copies = append(copies, w.found)
			}
			isFull = isFull || w.isFull
			return w.dst
		})
	})
	if isFull {
		text = []byte(Mark)
	}
	return text, copies, true
}

// placeOf returns the place of a field path of a pod, as status annotations have them, nil if nothing is redacted there.
func (r *Redactor) placeOf(path string) *place {
	at := r.object
	for token := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		switch token = merge.Unescape(token); {
		case at == nil || at.all:
			return at
		case at.each != nil:
			at = at.each
		case at.annotations && r.hides(rawjson.AppendString(nil, token)):
			at = everything
		default:
			at = at.member([]byte(token))
		}
	}
	return at
}
