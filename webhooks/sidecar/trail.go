package sidecar

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// A trail leads to a value in a pod whatever others have inserted in front of
// it: a JSON pointer whose tokens for elements of lists are keys,
// "/spec/containers/name=app/env/name=POD_IP". Several keys are joined with &,
// and an element that stands for itself is its own JSON text behind a lone =.
// Besides ~ and /, & is written with an escape, ~2.

// key is the token of a trail for an element of a list.
func (r *rule) key(element rawjson.Value) string {
	if r.united {
		return "=" + escapeKey(string(element))
	}
	var b strings.Builder
	for i, key := range r.keys {
		if i > 0 {
			b.WriteByte('&')
		}
		name, absent, _ := strings.Cut(key, "=")
		b.WriteString(name + "=")
		switch value := element.Get(name); value.Kind() {
		case rawjson.String:
			b.WriteString(escapeKey(value.Text()))
		case rawjson.Invalid, rawjson.Null:
			b.WriteString(absent)
		case rawjson.Bool, rawjson.Number, rawjson.Array, rawjson.Object:
			b.WriteString(escapeKey(string(value)))
		}
	}
	return b.String()
}

func named(name string) string { return "name=" + escapeKey(name) }

func escapeKey(text string) string {
	if !strings.ContainsAny(text, "~/&") {
		return text
	}
	return strings.NewReplacer("~", "~0", "/", "~1", "&", "~2").Replace(text)
}

func unescape(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	return strings.NewReplacer("~1", "/", "~2", "&", "~0", "~").Replace(token)
}

// hits tells whether the token of a trail means this element.
func hits(token string, element rawjson.Value) bool {
	if text, ok := strings.CutPrefix(token, "="); ok {
		want, err := rawjson.Parse([]byte(unescape(text)))
		return err == nil && equal(want, element)
	}
	for pair := range strings.SplitSeq(token, "&") {
		name, want, ok := strings.Cut(pair, "=")
		if !ok {
			return false
		}
		want = unescape(want)
		switch value := element.Get(name); value.Kind() {
		case rawjson.String:
			if !value.Is(want) {
				return false
			}
		case rawjson.Invalid, rawjson.Null:
			if want != absentKey(name) {
				return false
			}
		case rawjson.Bool, rawjson.Number, rawjson.Array, rawjson.Object:
			if string(value) != want {
				return false
			}
		}
	}
	return true
}

// absentKey is what the API server puts in where a key is absent.
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

// exists tells whether there is something at the end of the trail.
func exists(v rawjson.Value, trail string) bool {
	for trail != "" {
		token, rest, _ := strings.Cut(trail[1:], "/")
		if rest != "" {
			rest = "/" + rest
		}
		switch v.Kind() {
		case rawjson.Object:
			v = v.Get(unescape(token))
		case rawjson.Array:
			var next rawjson.Value
			for _, element := range v.Elements() {
				if hits(token, element) {
					next = element
					break
				}
			}
			v = next
		case rawjson.Invalid, rawjson.Null, rawjson.Bool, rawjson.Number, rawjson.String:
			return false
		}
		trail = rest
	}
	return v != nil
}

// undo is a tree of trails: what is to be taken out of a pod, and what is to be
// put back.
type undo struct {
	remove bool
	// created says that what stands here was made for what was put into it: it
	// goes when nothing is left in it.
	created bool
	// original is what is put back, if something was made when nothing is left in
	// it.
	original json.RawMessage
	below    []branch
	// done says that what is to be done here was possible.
	done bool
}

type branch struct {
	// token is as in the trail, and name without its escapes.
	token, name string
	*undo
}

func (u *undo) at(trail string) *undo {
	for token := range strings.SplitSeq(strings.TrimPrefix(trail, "/"), "/") {
		i := slices.IndexFunc(u.below, func(b branch) bool { return b.token == token })
		if i < 0 {
			i = len(u.below)
			u.below = append(u.below, branch{token, unescape(token), new(undo)})
		}
		u = u.below[i].undo
	}
	return u
}

// operations are those of a JSON patch. Nil takes none.
type operations struct{ all []jsonpatch.Operation }

func (o *operations) note(operation, path string, value any) {
	if o != nil {
		o.all = append(o.all, jsonpatch.Operation{Operation: operation, Path: path, Value: value})
	}
}

// below is the path of what is inside, and empty for nobody.
func (o *operations) below(path, token string) string {
	if o == nil {
		return ""
	}
	return path + "/" + token
}

// revert writes the value without what is to be taken out, and notes the
// operations that do the same. It returns false if nothing is left that anybody
// else has put there.
func (u *undo) revert(dst []byte, v rawjson.Value, path string, o *operations) ([]byte, bool) {
	u.done = true
	if u.original != nil && !u.created {
		o.note("replace", path, u.original)
		return append(dst, u.original...), true
	}
	if u.remove {
		return dst, false
	}
	start, left := len(dst), 0
	inside := o
	if o != nil {
		inside = new(operations)
	}
	switch v.Kind() {
	case rawjson.Object:
		dst, left = u.revertObject(dst, v, path, inside)
	case rawjson.Array:
		dst, left = u.revertArray(dst, v, path, inside)
	case rawjson.Invalid, rawjson.Null, rawjson.Bool, rawjson.Number, rawjson.String:
		return append(dst, v...), true
	}
	switch {
	case left > 0 || !u.created:
		if o != nil {
			o.all = append(o.all, inside.all...)
		}
		return dst, true
	case u.original == nil:
		return dst[:start], false
	default:
		o.note("replace", path, u.original)
		return append(dst[:start], u.original...), true
	}
}

func (u *undo) revertObject(dst []byte, v rawjson.Value, path string, o *operations) ([]byte, int) {
	dst = append(dst, '{')
	left := 0
	for name, value := range v.Members() {
		at := len(dst)
		if left > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		i := slices.IndexFunc(u.below, func(b branch) bool { return name.Is(b.name) })
		if i < 0 {
			dst = append(dst, value...)
			left++
			continue
		}
		below, keep := o.below(path, escape(u.below[i].name)), false
		if dst, keep = u.below[i].revert(dst, value, below, o); keep {
			left++
			continue
		}
		dst = dst[:at]
		o.note("remove", below, nil)
	}
	return append(dst, '}'), left
}

// revertArray notes its operations from the last element to the first, so that
// the indexes of those to come still hold.
func (u *undo) revertArray(dst []byte, v rawjson.Value, path string, o *operations) ([]byte, int) {
	var each []operations
	dst = append(dst, '[')
	left := 0
	for index, value := range v.Elements() {
		at := len(dst)
		if left > 0 {
			dst = append(dst, ',')
		}
		i := slices.IndexFunc(u.below, func(b branch) bool { return !b.done && hits(b.token, value) })
		if i < 0 {
			dst = append(dst, value...)
			left++
			continue
		}
		var one *operations
		if o != nil {
			one = new(operations)
		}
		below, keep := o.below(path, strconv.Itoa(index)), false
		if dst, keep = u.below[i].revert(dst, value, below, one); keep {
			left++
		} else {
			dst = dst[:at]
			one.note("remove", below, nil)
		}
		if one != nil {
			each = append(each, *one)
		}
	}
	for _, one := range slices.Backward(each) {
		o.all = append(o.all, one.all...)
	}
	return append(dst, ']'), left
}
