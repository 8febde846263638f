package status

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
)

const (
	wholeElement = "="
	separator    = "\x00" // stands in no name, and in no value that is a key
)

// mostKeySorts is how many sorts of keys the elements of one list are looked up by. No list has
// more than one, unless an attacker has written the status.
const mostKeySorts = 16

// elementKey is what the token of a field path says about an element of a list: the
// members that are looked at, and what they must be.
type elementKey struct {
	// names are those of the members; itself stands for the element as a whole.
	names, want string
}

// parseElementKey reads the token of a field path. One that means no element has no names.
func parseElementKey(token string) elementKey {
	if text, ok := strings.CutPrefix(token, wholeElement); ok {
		value, err := rawjson.Parse([]byte(merge.Unescape(text)))
		if err != nil {
			return elementKey{}
		}
		return elementKey{wholeElement, merge.Canonical(value)}
	}
	var names, want []string
	for pair := range strings.SplitSeq(token, "&") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return elementKey{}
		}
		names, want = append(names, name), append(want, merge.Unescape(value))
	}
	return elementKey{strings.Join(names, separator), strings.Join(want, separator)}
}

// valueIn returns what the members are in an element.
func (m *elementKey) valueIn(element rawjson.Value) string {
	switch {
	case m.names == wholeElement:
		return merge.Canonical(element)
	case !strings.Contains(m.names, separator):
		return merge.KeyText(element, m.names, absentKey(m.names))
	}
	var all []string
	for name := range strings.SplitSeq(m.names, separator) {
		all = append(all, merge.KeyText(element, name, absentKey(name)))
	}
	return strings.Join(all, separator)
}

// absentKey returns what the API server puts in where a key is absent.
func absentKey(name string) string {
	switch name {
	case "protocol":
		return "TCP"
	case "whenUnsatisfiable":
		return "DoNotSchedule"
	default:
		return ""
	}
}

// Undo is a tree of field paths: what Revert removes from a pod, and what it restores.
type Undo struct {
	remove bool
	// created says that what stands here was made for what was put into it: it
	// goes when nothing is left in it.
	created bool
	// original is what is put back, if something was made when nothing is left in
	// it.
	original json.RawMessage
	below    []branch
	index    map[string]int // of below, by token
	// done says that what is to be done here was possible.
	done bool
}

type branch struct {
	// token is as in the field path; name is that of a member, and element what is
	// said about an element.
	token, name string
	element     elementKey
	*Undo
}

func (u *Undo) at(fieldPath string) *Undo {
	for token := range strings.SplitSeq(strings.TrimPrefix(fieldPath, "/"), "/") {
		i, ok := u.index[token]
		if !ok {
			if u.index == nil {
				u.index = make(map[string]int)
			}
			i = len(u.below)
			u.below = append(u.below, branch{token, merge.Unescape(token), parseElementKey(token), new(Undo)})
			u.index[token] = i
		}
		u = u.below[i].Undo
	}
	return u
}

// Found reports whether there was something at the end of a field path of this tree when
// it was reverted.
func (u *Undo) Found(fieldPath string) bool {
	for token := range strings.SplitSeq(strings.TrimPrefix(fieldPath, "/"), "/") {
		i, ok := u.index[token]
		if !ok {
			return u.remove && u.done
		}
		u = u.below[i].Undo
	}
	return u.done
}

// member returns the index of the branch of a member of an object, or -1.
func (u *Undo) member(name rawjson.Value) int {
	if i, ok := u.index[merge.Escape(name.Text())]; ok {
		return i
	}
	return -1
}

// elements finds the branches of a list's elements. A branch is about the first
// element that it means.
func (u *Undo) elements() func(element rawjson.Value) int {
	byNames := make(map[string]map[string]int)
	for i := range u.below {
		m := &u.below[i].element
		if m.names == "" {
			continue
		}
		if byNames[m.names] == nil {
			if len(byNames) == mostKeySorts {
				continue
			}
			byNames[m.names] = make(map[string]int)
		}
		byNames[m.names][m.want] = i
	}
	sorts := slices.Sorted(maps.Keys(byNames))
	return func(element rawjson.Value) int {
		for _, names := range sorts {
			if i, ok := byNames[names][(&elementKey{names: names}).valueIn(element)]; ok && !u.below[i].done {
				return i
			}
		}
		return -1
	}
}

// Revert writes the value without what is to be taken out, and returns the operations of a JSON
// patch that do the same. It returns false if nothing is left that anybody else has put there.
func (u *Undo) Revert(dst []byte, v rawjson.Value, path string) (out []byte, operations []jsonpatch.Operation, keep bool) {
	u.done = true
	switch {
	case u.original != nil && !u.created:
		return append(dst, u.original...), u.restored(path), true
	case u.remove:
		return dst, nil, false
	}
	start, left := len(dst), 0
	switch v.Kind() {
	case rawjson.Object:
		dst, operations, left = u.revertObject(dst, v, path)
	case rawjson.Array:
		dst, operations, left = u.revertArray(dst, v, path)
	case rawjson.Invalid, rawjson.Null, rawjson.Bool, rawjson.Number, rawjson.String:
		return append(dst, v...), nil, true
	}
	switch {
	case left > 0 || !u.created:
		return dst, operations, true
	case u.original == nil:
		return dst[:start], nil, false
	default:
		return append(dst[:start], u.original...), u.restored(path), true
	}
}

func (u *Undo) restored(path string) []jsonpatch.Operation {
	return []jsonpatch.Operation{{Operation: "replace", Path: path, Value: u.original}}
}

// revertBelow reverts what is at a path inside.
func (u *Undo) revertBelow(dst []byte, v rawjson.Value, path string) (out []byte, operations []jsonpatch.Operation, keep bool) {
	out, operations, keep = u.Revert(dst, v, path)
	if !keep {
		operations = []jsonpatch.Operation{{Operation: "remove", Path: path}}
	}
	return out, operations, keep
}

func (u *Undo) revertObject(dst []byte, v rawjson.Value, path string) ([]byte, []jsonpatch.Operation, int) {
	dst = append(dst, '{')
	var all []jsonpatch.Operation
	left := 0
	for name, value := range v.Members() {
		at := len(dst)
		if left > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		i := u.member(name)
		if i < 0 {
			dst = append(dst, value...)
			left++
			continue
		}
		out, operations, keep := u.below[i].revertBelow(dst, value, path+"/"+merge.Escape(u.below[i].name))
		all = append(all, operations...)
		if keep {
			left++
		} else {
			out = out[:at]
		}
		dst = out
	}
	return append(dst, '}'), all, left
}

// revertArray returns its operations from the last element to the first, so that
// the indexes of those to come still hold.
func (u *Undo) revertArray(dst []byte, v rawjson.Value, path string) ([]byte, []jsonpatch.Operation, int) {
	var each [][]jsonpatch.Operation
	dst = append(dst, '[')
	left := 0
	branch := u.elements()
	for index, value := range v.Elements() {
		at := len(dst)
		if left > 0 {
			dst = append(dst, ',')
		}
		i := branch(value)
		if i < 0 {
			dst = append(dst, value...)
			left++
			continue
		}
		out, operations, keep := u.below[i].revertBelow(dst, value, path+"/"+strconv.Itoa(index))
		each = append(each, operations)
		if keep {
			left++
		} else {
			out = out[:at]
		}
		dst = out
	}
	slices.Reverse(each)
	return append(dst, ']'), slices.Concat(each...), left
}

// NotFound returns the field paths at whose end nothing was found.
func (u *Undo) NotFound(fieldPath string, all []string) []string {
	if !u.done && (u.remove || u.original != nil) {
		return append(all, fieldPath)
	}
	for i := range u.below {
		all = u.below[i].NotFound(fieldPath+"/"+u.below[i].token, all)
	}
	return all
}
