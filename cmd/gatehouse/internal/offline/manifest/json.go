package manifest

import (
	"bytes"
	"encoding/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// editedJSON returns a JSON text with another value, indented as the first line in it is, or on one line.
func editedJSON(text []byte, old, want rawjson.Value, newline string) []byte {
	edited := appendOrdered(nil, old, want)
	inside := text[1:]
	first := inside[:len(inside)-len(bytes.TrimLeft(inside, " \t\r\n"))]
	at := bytes.LastIndexByte(first, '\n')
	if at < 0 {
		return edited
	}
	var b bytes.Buffer
	if err := json.Indent(&b, edited, "", string(first[at+1:])); err != nil {
		return edited
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte(newline))
}

// appendOrdered appends a value with the members of objects in the order of an old one, and what is equal as it was written.
func appendOrdered(dst []byte, old, want rawjson.Value) []byte {
	begin := len(dst)
	switch {
	case sameValue(old, want):
		return append(dst, old...)
	case want.Kind() == rawjson.Object && want.Len() > 0:
		wanted := make(map[string]rawjson.Value, want.Len())
		for name, value := range want.Members() {
			wanted[name.Text()] = value
		}
		member := func(name, from rawjson.Value) {
			if to, ok := wanted[name.Text()]; ok {
				dst = append(append(append(dst, ','), name...), ':')
				dst = appendOrdered(dst, from, to)
				delete(wanted, name.Text())
			}
		}
		for name, value := range old.Members() {
			member(name, value)
		}
		for name := range want.Members() {
			member(name, nil)
		}
		dst[begin] = '{'
		return append(dst, '}')
	case want.Kind() == rawjson.Array && want.Len() > 0:
		before, after := elementsOf(old), elementsOf(want)
		for i, at := range places(before, after) {
			var from rawjson.Value
			if at >= 0 {
				from = before[at]
			}
			dst = appendOrdered(append(dst, ','), from, after[i])
		}
		dst[begin] = '['
		return append(dst, ']')
	default:
		return append(dst, want...)
	}
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
