package merge

import (
	"strconv"
	"strings"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// A field path leads to a value in a pod whatever others have inserted in front of
// it: a JSON pointer whose tokens for elements of lists are keys,
// "/spec/containers/name=app/env/name=POD_IP". Several keys are joined with &,
// and an element that stands for itself is its own JSON text behind a lone =.
// Besides ~ and /, & is written with an escape, ~2.

// Key returns the token of a field path for an element of a list.
func (r *Rule) Key(element rawjson.Value) string {
	if r.IsSet {
		return "=" + escapeKey(string(element))
	}
	var b strings.Builder
	for i, key := range r.mapKeys {
		if i > 0 {
			b.WriteByte('&')
		}
		name, absent, _ := strings.Cut(key, "=")
		b.WriteString(name + "=")
		b.WriteString(escapeKey(KeyText(element, name, absent)))
	}
	return b.String()
}

// KeyText returns the text of a member that is a key, or the other text if it is absent.
func KeyText(element rawjson.Value, name, absent string) string {
	switch value := element.Get(name); value.Kind() {
	case rawjson.String:
		return value.Text()
	case rawjson.Invalid, rawjson.Null:
		return absent
	default:
		return string(value)
	}
}

// NameKey returns the token of a field path for the element with a name.
func NameKey(name string) string { return "name=" + escapeKey(name) }

func escapeKey(text string) string {
	if !strings.ContainsAny(text, "~/&") {
		return text
	}
	return keyEscapes.Replace(text)
}

// Unescape returns what a token of a field path stands for.
func Unescape(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	return unescapes.Replace(token)
}

// Path is where a merge is: the JSON pointer for the patch, the field path by which
// it is found again when indexes have changed, and the path for people.
type Path struct{ Pointer, FieldPath, Display string }

// Member returns the path of a member.
func (p Path) Member(name string) Path {
	token := Escape(name)
	path := name
	if strings.ContainsAny(name, "./[] ") {
		path = "[" + name + "]"
	} else if p.Display != "" {
		path = "." + name
	}
	return Path{p.Pointer + "/" + token, p.FieldPath + "/" + token, p.Display + path}
}

// Element returns the path of an element, by its index and its key.
func (p Path) Element(index int, key string) Path {
	n := strconv.Itoa(index)
	return Path{p.Pointer + "/" + n, p.FieldPath + "/" + key, p.Display + "[" + n + "]"}
}
