// Package strict compares documents with the Go types into which they are decoded, and reports unknown fields and values
// of a wrong type.
package strict

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// UnknownField is the message about a field that the type does not have.
const UnknownField = "unknown field"

// Quantity describes a resource.Quantity in messages.
const Quantity = "a quantity such as 100m or 64Mi"

// Checker compares documents with the Go types that they are decoded into, and
// reports every field that the type does not have and every value of another
// kind than the field's. A JSON decoder would stop at the first such value and
// does not know which name was meant.
//
// It only improves error messages: the decoder decides what a document means. The zero
// Checker is ready for use. It caches the fields of types and is safe for concurrent use.
type Checker struct {
	fields fields
}

// Options configure a comparison.
type Options struct {
	// Secret keeps the document's values out of the messages.
	Secret bool
	// SecretAt reports whether the value at a path stays out of the messages. It may be nil.
	SecretAt func(path string) bool
	// Placeholder reports whether a string stands for a value that is known later. It may
	// replace any value but a mapping or a list. It may be nil.
	Placeholder func(text string) bool
	// NotNull reports whether a member of a struct must be neither null nor an empty list, which both are its absence, because that allows
	// more than any value. A template whose value is missing writes one of them. It may be nil.
	NotNull func(of reflect.Type, member string) bool
}

// check is one comparison.
type check struct {
	*Checker
	Options
	root  reflect.Type
	found diagnostic.List
}

// Compare returns the problems of a value as a root. The value is in the
// types that a JSON decoder of Kubernetes gives: map[string]any, []any, string,
// int64, float64, bool and nil. Path is the value's own, and in front of those
// in the diagnostics, which have neither Source nor Object and come in the order of
// the members' names.
func (c *Checker) Compare(root reflect.Type, value any, path string, options Options) diagnostic.List {
	k := check{Checker: c, Options: options, root: root}
	k.value(root, value, path)
	return k.found
}

func (c *check) report(field, message, hint string) {
	c.found = append(c.found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: field, Message: message, Hint: hint})
}

func (c *check) value(t reflect.Type, value any, path string) {
	if value == nil {
		return // null leaves the field as it is, whatever its type
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if text, ok := value.(string); ok && c.Placeholder != nil && isScalar(t) && c.Placeholder(text) {
		return
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		c.unmarshaler(t, value, path)
		return
	}
	switch t.Kind() { //nolint:exhaustive // an interface takes everything, and no API type has a field of another kind
	case reflect.Struct:
		if object, ok := value.(map[string]any); ok {
			c.members(t, object, path)
			return
		}
		c.mismatch(path, value, "a mapping")
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			c.mismatch(path, value, "a mapping")
			return
		}
		for _, key := range sortedKeys(object) {
			c.value(t.Elem(), object[key], Member(path, key))
		}
	case reflect.Slice, reflect.Array:
		c.elements(t, value, path)
	case reflect.String:
		if _, ok := value.(string); !ok {
			c.mismatch(path, value, "a string")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			c.mismatch(path, value, "true or false")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.integer(t, value, path)
	case reflect.Float32, reflect.Float64:
		switch value.(type) {
		case int64, float64:
		default:
			c.mismatch(path, value, "a number")
		}
	}
}

func (c *check) elements(t reflect.Type, value any, path string) {
	if t.Elem().Kind() == reflect.Uint8 {
		text, ok := value.(string)
		if !ok {
			c.mismatch(path, value, "base64 text")
		} else if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			c.unreadable(path, value, "base64 text")
		}
		return
	}
	list, ok := value.([]any)
	if !ok {
		c.mismatch(path, value, "a list")
		return
	}
	for i, element := range list {
		c.value(t.Elem(), element, Element(path, i))
	}
}

func (c *check) integer(t reflect.Type, value any, path string) {
	n, ok := value.(int64)
	if f, isFloat := value.(float64); isFloat && f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		n, ok = int64(f), true // written as 80.0, which means 80
	}
	if !ok {
		c.mismatch(path, value, "an integer")
		return
	}
	zero := reflect.Zero(t)
	if zero.CanInt() && zero.OverflowInt(n) || zero.CanUint() && (n < 0 || zero.OverflowUint(uint64(n))) { // #nosec G115 -- not negative here
		c.unreadable(path, value, fmt.Sprintf("a %d-bit integer", t.Bits()))
	}
}

// unmarshaler checks a value by the UnmarshalJSON of its type.
func (c *check) unmarshaler(t reflect.Type, value any, path string) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	name := strings.ToLower(t.Name())
	switch {
	case t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.MicroTime]():
		c.unreadable(path, value, "a time such as 2026-12-31T23:59:59Z")
	case t == reflect.TypeFor[metav1.Duration]():
		c.unreadable(path, value, "a duration such as 90s or 24h")
	case t == reflect.TypeFor[resource.Quantity]() && isText(value):
		c.report(path, c.quote(path, value)+" is invalid: must be "+Quantity, "")
	case t == reflect.TypeFor[resource.Quantity]():
		c.mismatch(path, value, Quantity)
	case c.isSecret(path):
		c.unreadable(path, value, "a "+name)
	default:
		c.unreadable(path, value, fmt.Sprintf("a %s: %v", name, err))
	}
}

func isText(value any) bool {
	_, ok := value.(string)
	return ok
}

// mismatch reports a value where another kind of value is expected.
func (c *check) mismatch(path string, value any, want string) {
	var kind, hint string
	subject := c.quote(path, value) + " "
	switch value.(type) {
	case map[string]any:
		kind, subject = "a mapping", ""
	case []any:
		kind, subject = "a list", ""
	case string:
		kind = "a string"
	case bool:
		kind = "a boolean"
	default:
		kind = "a number"
	}
	switch {
	case want == "a string" && subject != "":
		hint = "put it in quotes"
		if kind == "a boolean" {
			hint += ": YAML reads yes, no, on, off, y and n as booleans"
		}
	case kind == "a string" && !c.isSecret(path) && IsWithoutQuotes(value, want):
		hint = QuotesHint
	}
	c.report(path, fmt.Sprintf("%sis %s, expected %s", subject, kind, want), hint)
}

// QuotesHint is the hint for a value that would be right without quotes.
const QuotesHint = "remove the quotes"

// IsWithoutQuotes reports whether a text would be what is expected, "an integer", "a number" or "true or false", without its quotes.
func IsWithoutQuotes(value any, want string) bool {
	text, _ := value.(string)
	var err error
	switch want {
	case "an integer":
		_, err = strconv.ParseInt(text, 10, 64)
	case "a number":
		_, err = strconv.ParseFloat(text, 64)
	default:
		return want == "true or false" && (text == "true" || text == "false")
	}
	return err == nil
}

// unreadable reports an invalid value of the right kind.
func (c *check) unreadable(path string, value any, want string) {
	c.report(path, fmt.Sprintf("%s is not %s", c.quote(path, value), want), "")
}

// isSecret reports whether the value at a path must not be shown.
func (c *check) isSecret(path string) bool { return c.Secret || c.SecretAt != nil && c.SecretAt(path) }

// quote returns the value at a path in quotes, shortened if it is long.
func (c *check) quote(path string, value any) string {
	if c.isSecret(path) {
		return "the value"
	}
	text, ok := value.(string)
	if !ok {
		raw, err := json.Marshal(value)
		if err != nil {
			return "the value"
		}
		text = string(raw)
	}
	const most = 60
	return strconv.Quote(Cut(text, most))
}

// isScalar reports whether a value of the type can be something else than a
// mapping or a list.
func isScalar(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return true // UnmarshalJSON checks it
	}
	switch t.Kind() { //nolint:exhaustive // all others are scalars
	case reflect.Struct, reflect.Map, reflect.Array:
		return false
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8 // base64 text
	default:
		return true
	}
}

// members compares an object with a struct.
func (c *check) members(t reflect.Type, object map[string]any, path string) {
	fields := c.fields.of(t)
	for _, key := range sortedKeys(object) {
		field, known := fields[key]
		if known && c.NotNull != nil && c.NotNull(t, key) {
			list, isList := object[key].([]any)
			if isEmpty := isList && len(list) == 0; isEmpty || object[key] == nil {
				what := "null"
				if isEmpty {
					what = "an empty list"
				}
				c.report(Member(path, key), "is "+what+", which narrows nothing", "leave the field out if that is meant")
				continue
			}
		}
		if known {
			c.value(field, object[key], Member(path, key))
			continue
		}
		c.report(Member(path, key), UnknownField, c.hint(key, fields))
	}
}

// hint returns a suggestion for an unknown field.
func (c *check) hint(key string, fields map[string]reflect.Type) string {
	names := sortedKeys(fields)
	if hint := diagnostic.DidYouMean(key, names...); hint != "" {
		return hint
	}
	words := spaced(key)
	longer := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.Contains(spaced(name), words) })
	if len(longer) == 1 {
		return fmt.Sprintf("did you mean %q?", longer[0])
	}
	// A field of the same name in the root itself says nothing about this place.
	if places := c.places(key); len(places) == 1 && places[0] != Member("", key) {
		return fmt.Sprintf("did you mean %q?", places[0])
	}
	shorter := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.Contains(words, spaced(name)) })
	if len(shorter) == 1 {
		return fmt.Sprintf("did you mean %q?", shorter[0])
	}
	const most = 12
	if len(names) > most {
		return "the allowed fields are " + strings.Join(names[:most], ", ") + ", …"
	}
	return "the allowed fields are " + strings.Join(names, ", ")
}

// spaced returns a name in lower case with a space around each of its words, so that
// name is found in secretName, and not in hostnames.
func spaced(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i == 0 || unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	b.WriteByte(' ')
	return b.String()
}

// places returns the paths, without indexes, of the fields called name that are
// nearest to the root of the document.
func (c *check) places(name string) []string {
	type place struct {
		t    reflect.Type
		path string
	}
	// Deeper than this everything is somewhere in a pod.
	const deepest = 5
	level := []place{{c.root, ""}}
	for range deepest {
		var found []string
		var next []place
		for _, p := range level {
			fields := c.fields.of(p.t)
			for _, key := range sortedKeys(fields) {
				if p.path == "" && key == "metadata" {
					continue
				}
				path := Member(p.path, key)
				if key == name {
					found = append(found, path)
				}
				below := fields[key]
				for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
					below = below.Elem()
				}
				if below.Kind() == reflect.Struct {
					next = append(next, place{below, path})
				}
			}
		}
		if len(found) > 0 {
			return found
		}
		level = next
	}
	return nil
}
