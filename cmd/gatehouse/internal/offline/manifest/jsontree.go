package manifest

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// locateJSON returns the tree of the JSON text that value was parsed from.
func locateJSON(text []byte, value rawjson.Value) (*node, error) {
	start, ok := rawjson.Offset(text, value)
	if !ok {
		return nil, errReencode
	}
	n := &node{kind: value.Kind(), at: &place{start: start, content: start, end: start + len(value)}}
	var err error
	enter := func(e *entry, v rawjson.Value) {
		if err == nil {
			e.value, err = locateJSON(text, v)
			n.entries = append(n.entries, e)
		}
	}
	switch n.kind {
	case rawjson.Object:
		for name, v := range value.Members() {
			e := &entry{name: name.Text()}
			if e.from, ok = rawjson.Offset(text, name); !ok {
				return nil, errReencode
			}
			enter(e, v)
		}
	case rawjson.Array:
		for _, v := range value.Elements() {
			e := &entry{}
			if e.from, ok = rawjson.Offset(text, v); !ok {
				return nil, errReencode
			}
			enter(e, v)
		}
	default:
		n.text = value
	}
	n.at.entries = slices.Clone(n.entries)
	return n, err
}

// findDuplicate returns a key that an object in a JSON value has twice, and the offset of that object.
func findDuplicate(value rawjson.Value) (key string, at int, twice bool) {
	var visit func(rawjson.Value)
	visit = func(v rawjson.Value) {
		if twice {
			return
		}
		if key, twice = v.DuplicateKey(); twice {
			at, _ = rawjson.Offset(value, v)
			return
		}
		for _, member := range v.Members() {
			visit(member)
		}
		for _, element := range v.Elements() {
			visit(element)
		}
	}
	visit(value)
	return key, at, twice
}
