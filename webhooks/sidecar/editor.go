package sidecar

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// editor changes the text of a pod: every change is both an operation of a JSON
// patch and a splice of the text, made from one position that was seen in the
// text. So the patch is known to apply, and what comes of it is known, without
// applying it.
//
// Operations are carried out one after the other, splices all at once. Changes
// must therefore come in an order in which no insertion into a list comes before
// a change inside an element of the same list, and no two may touch one value.
type editor struct {
	text       []byte
	operations []jsonpatch.Operation
	splices    []splice
}

// splice replaces a part of the text.
type splice struct {
	at, remove int
	insert     []byte
	// name is that of the member whose value is inserted.
	name string
	// member says that there is a name, which may be empty.
	member bool
	// next says that what is inserted stands in front of another element.
	next bool
	// last says that what is inserted follows all that is in its list or
	// object; filled, that there is something.
	last, filled bool
}

// errForeign says that a value does not stand in the text that is edited. It
// cannot happen, and must not be a mangled pod if it does.
var errForeign = errors.New("a change does not stand in the pod's text")

func (e *editor) operate(operation, path string, value any) {
	e.operations = append(e.operations, jsonpatch.Operation{Operation: operation, Path: path, Value: value})
}

// replace puts a value in the place of another, or of null: to JSON Patch a
// member that is null is there, but not every reader of a patch agrees.
func (e *editor) replace(path string, old rawjson.Value, value any) error {
	at, ok := rawjson.Offset(e.text, old)
	if !ok {
		return errForeign
	}
	operation := "replace"
	if old.Kind() == rawjson.Null {
		operation = "add"
	}
	e.operate(operation, path, value)
	raw, _ := value.(json.RawMessage)
	e.splices = append(e.splices, splice{at: at, remove: len(old), insert: raw})
	return nil
}

// add adds a member to an object that does not have it.
func (e *editor) add(path string, object rawjson.Value, name string, value any) error {
	e.operate("add", path, value)
	raw, _ := value.(json.RawMessage)
	return e.end(object, splice{insert: raw, name: name, member: true})
}

// end splices something in behind all that is in an object or list.
func (e *editor) end(in rawjson.Value, s splice) error {
	at, ok := rawjson.Offset(e.text, in)
	if !ok {
		return errForeign
	}
	s.at, s.last, s.filled = at+len(in)-1, true, len(bytes.TrimSpace(in[1:len(in)-1])) > 0
	e.splices = append(e.splices, s)
	return nil
}

// push adds an element to the end of a list, whose path ends in /-.
func (e *editor) push(path string, in rawjson.Value, value any) error {
	e.operate("add", path, value)
	raw, _ := value.(json.RawMessage)
	return e.end(in, splice{insert: raw})
}

// insert adds an element to a list in front of the element before, which the
// patch finds at index by then.
func (e *editor) insert(path string, index int, before rawjson.Value, value any) error {
	at, ok := rawjson.Offset(e.text, before)
	if !ok {
		return errForeign
	}
	e.operate("add", path+"/"+strconv.Itoa(index), value)
	raw, _ := value.(json.RawMessage)
	e.splices = append(e.splices, splice{at: at, insert: raw, next: true})
	return nil
}

// result is the text with all changes made.
func (e *editor) result() []byte {
	if len(e.splices) == 0 {
		return e.text
	}
	size := len(e.text)
	for i := range e.splices {
		size += len(e.splices[i].insert) + len(e.splices[i].name) + len(`,"":`)
	}
	slices.SortStableFunc(e.splices, func(a, b splice) int {
		// What is put in front of a value comes before what takes its place.
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.remove, b.remove))
	})
	out := make([]byte, 0, size)
	from := 0
	for i := range e.splices {
		s := &e.splices[i]
		out = append(out, e.text[from:s.at]...)
		if s.last && (s.filled || i > 0 && e.splices[i-1].at == s.at && e.splices[i-1].last) {
			out = append(out, ',')
		}
		if s.member {
			out = append(rawjson.AppendString(out, s.name), ':')
		}
		out = append(out, s.insert...)
		if s.next {
			out = append(out, ',')
		}
		from = s.at + s.remove
	}
	return append(out, e.text[from:]...)
}

//nolint:gochecknoglobals // tables that nobody changes, and that take long to make
var (
	pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
	trailEscapes   = strings.NewReplacer("~", "~0", "/", "~1", "&", "~2")
	unescapes      = strings.NewReplacer("~1", "/", "~2", "&", "~0", "~")
)

// escape writes a name as a token of a JSON pointer (RFC 6901).
func escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return pointerEscapes.Replace(name)
}

// with is a text in which an object has a member of this value, as JSON.
func with(text, object rawjson.Value, name, value string) (rawjson.Value, error) {
	e := editor{text: text}
	var err error
	if own := object.Get(name); own == nil {
		err = e.add("", object, name, json.RawMessage(value))
	} else {
		err = e.replace("", own, json.RawMessage(value))
	}
	return e.result(), err
}

// without is an object without some of its members.
func without(object rawjson.Value, names ...string) rawjson.Value {
	dst := []byte{'{'}
	for nameText, value := range object.Members() {
		if slices.Contains(names, nameText.Text()) {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, nameText...), ':'), value...)
	}
	return append(dst, '}')
}
