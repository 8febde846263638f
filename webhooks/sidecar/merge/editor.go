package merge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Editor changes the text of a pod: every change is both an operation of a JSON
// patch and a splice of the text, made from one position that was seen in the
// text. So the patch is known to apply, and what comes of it is known, without
// applying it.
//
// Operations are carried out one after the other, splices all at once. Changes
// must therefore come in an order in which no insertion into a list comes before
// a change inside an element of the same list, and no two may touch one value.
type Editor struct {
	Text       []byte
	Operations []jsonpatch.Operation
	Splices    []Splice
}

// Splice replaces a part of the text.
type Splice struct {
	at, remove int
	Insert     []byte
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

// errNotInText is returned for a value that is not part of the text that is edited. It
// cannot happen, and must not corrupt a pod if it does.
var errNotInText = errors.New("internal error: a changed value is not a part of the pod")

func (e *Editor) operate(operation, path string, value any) {
	e.Operations = append(e.Operations, jsonpatch.Operation{Operation: operation, Path: path, Value: value})
}

// Replace puts a value in the place of another, or of null: to JSON Patch a
// member that is null is there, but not every reader of a patch agrees.
func (e *Editor) Replace(path string, old rawjson.Value, value any) error {
	at, ok := rawjson.Offset(e.Text, old)
	if !ok {
		return errNotInText
	}
	operation := "replace"
	if old.Kind() == rawjson.Null {
		operation = "add"
	}
	e.operate(operation, path, value)
	raw, _ := value.(json.RawMessage)
	e.Splices = append(e.Splices, Splice{at: at, remove: len(old), Insert: raw})
	return nil
}

// Add adds a member to an object that does not have it.
func (e *Editor) Add(path string, object rawjson.Value, name string, value any) error {
	e.operate("add", path, value)
	raw, _ := value.(json.RawMessage)
	return e.end(object, Splice{Insert: raw, name: name, member: true})
}

// end splices something in behind all that is in an object or list.
func (e *Editor) end(in rawjson.Value, s Splice) error {
	at, ok := rawjson.Offset(e.Text, in)
	if !ok {
		return errNotInText
	}
	s.at, s.last, s.filled = at+len(in)-1, true, len(bytes.TrimSpace(in[1:len(in)-1])) > 0
	e.Splices = append(e.Splices, s)
	return nil
}

// Push adds an element to the end of a list, whose path ends in /-.
func (e *Editor) Push(path string, in rawjson.Value, value any) error {
	e.operate("add", path, value)
	raw, _ := value.(json.RawMessage)
	return e.end(in, Splice{Insert: raw})
}

// Insert adds an element to a list in front of the element before, which the
// patch finds at index by then.
func (e *Editor) Insert(path string, index int, before rawjson.Value, value any) error {
	at, ok := rawjson.Offset(e.Text, before)
	if !ok {
		return errNotInText
	}
	e.operate("add", path+"/"+strconv.Itoa(index), value)
	raw, _ := value.(json.RawMessage)
	e.Splices = append(e.Splices, Splice{at: at, Insert: raw, next: true})
	return nil
}

// Result returns the text with all changes made.
func (e *Editor) Result() []byte {
	if len(e.Splices) == 0 {
		return e.Text
	}
	size := len(e.Text)
	for i := range e.Splices {
		size += len(e.Splices[i].Insert) + len(e.Splices[i].name) + len(`,"":`)
	}
	slices.SortStableFunc(e.Splices, func(a, b Splice) int {
		// What is put in front of a value comes before what takes its place.
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.remove, b.remove))
	})
	out := make([]byte, 0, size)
	from := 0
	for i := range e.Splices {
		s := &e.Splices[i]
		out = append(out, e.Text[from:s.at]...)
		if s.last && (s.filled || i > 0 && e.Splices[i-1].at == s.at && e.Splices[i-1].last) {
			out = append(out, ',')
		}
		if s.member {
			out = append(rawjson.AppendString(out, s.name), ':')
		}
		out = append(out, s.Insert...)
		if s.next {
			out = append(out, ',')
		}
		from = s.at + s.remove
	}
	return append(out, e.Text[from:]...)
}

// MayHave reports whether the result may have a member of this name, written without escapes.
func (e *Editor) MayHave(name string) bool {
	return bytes.Contains(e.Text, []byte(name)) || slices.ContainsFunc(e.Splices, func(s Splice) bool {
		return s.name == name || bytes.Contains(s.Insert, []byte(name))
	})
}

//nolint:gochecknoglobals // tables that nobody changes, and that take long to make
var (
	pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
	keyEscapes     = strings.NewReplacer("~", "~0", "/", "~1", "&", "~2")
	unescapes      = strings.NewReplacer("~1", "/", "~2", "&", "~0", "~")
)

// Escape writes a name as a token of a JSON pointer (RFC 6901).
func Escape(name string) string {
	if !strings.ContainsAny(name, "~/") {
		return name
	}
	return pointerEscapes.Replace(name)
}

// SetMember returns a text in which an object has a member of this value, as JSON.
func SetMember(text, object rawjson.Value, name, value string) (rawjson.Value, error) {
	e := Editor{Text: text}
	var err error
	if own := object.Get(name); own == nil {
		err = e.Add("", object, name, json.RawMessage(value))
	} else {
		err = e.Replace("", own, json.RawMessage(value))
	}
	return e.Result(), err
}

// RemoveMembers returns an object without some of its members.
func RemoveMembers(object rawjson.Value, names ...string) rawjson.Value {
	return filterMembers(object, func(name string, _ rawjson.Value) bool { return !slices.Contains(names, name) })
}

// filterMembers returns the members of an object that are kept.
func filterMembers(object rawjson.Value, keep func(name string, value rawjson.Value) bool) rawjson.Value {
	dst := []byte{'{'}
	for name, value := range object.Members() {
		if !keep(name.Text(), value) {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, name...), ':'), value...)
	}
	return append(dst, '}')
}

// FilterElements returns the elements of a list that are kept.
func FilterElements(list rawjson.Value, keep func(index int, element rawjson.Value) bool) rawjson.Value {
	dst := []byte{'['}
	for i, element := range list.Elements() {
		if !keep(i, element) {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, element...)
	}
	return append(dst, ']')
}
