package merge

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Between two calls the API server decodes a pod and encodes it again. What
// says nothing does not come back: a member that is null, and one that is
// false, zero or empty where its type leaves those out. Quantities come back in
// their shortest form. Whatever a profile adds is brought to the form in which
// it comes back, or the second call would not find it.

// Canonicalize returns a value of a type in the form in which the API server writes it.
// The order of members stays. What the type does not know stays too, and what
// means something though it is empty: emptyDir: {} and runAsNonRoot: false.
func Canonicalize(v rawjson.Value, t reflect.Type) rawjson.Value {
	return appendCanonical(make([]byte, 0, len(v)), v, t)
}

func appendCanonical(dst []byte, v rawjson.Value, t reflect.Type) []byte {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch kind := v.Kind(); {
	case t == reflect.TypeFor[resource.Quantity]():
		if q, ok := ReadQuantity(v); ok {
			return rawjson.AppendString(dst, q.String())
		}
	case kind != rawjson.Object && kind != rawjson.Array, reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
	case t.Kind() == reflect.Struct && kind == rawjson.Object:
		return appendStruct(dst, v, t)
	case t.Kind() == reflect.Map && kind == rawjson.Object:
		return appendMap(dst, v, t)
	case t.Kind() == reflect.Slice && kind == rawjson.Array:
		dst = append(dst, '[')
		for i, element := range v.Elements() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if element.Kind() == rawjson.Null {
				element = zeroJSON(t.Elem())
			}
			dst = appendCanonical(dst, element, t.Elem())
		}
		return append(dst, ']')
	}
	return append(dst, v...)
}

func appendStruct(dst []byte, v rawjson.Value, t reflect.Type) []byte {
	dst = append(dst, '{')
	begin := len(dst)
	member := func(name, value rawjson.Value, f *canonicalField) {
		start := len(dst)
		if start > begin {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		at := len(dst)
		if dst = appendCanonical(dst, value, f.of); f.empty(dst[at:]) {
			dst = dst[:start]
		}
	}
	fields := fieldsOf(t)
	for name, value := range v.Members() {
		switch f, known := fields[name.Text()]; {
		case !known:
			member(name, value, &canonicalField{of: reflect.TypeFor[any]()})
		case value.Kind() != rawjson.Null:
			member(name, value, &f)
		}
	}
	for name, f := range fields {
		if !f.always {
			continue
		}
		if own := v.Get(name); own == nil || own.Kind() == rawjson.Null {
			member(rawjson.AppendString(nil, name), rawjson.Value("{}"), &f)
		}
	}
	return append(dst, '}')
}

func appendMap(dst []byte, v rawjson.Value, t reflect.Type) []byte {
	dst = append(dst, '{')
	begin := len(dst)
	for name, value := range v.Members() {
		if value.Kind() == rawjson.Null {
			continue // As everywhere in a template, it says nothing.
		}
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		if q, ok := ReadQuantity(value); ok && t == reflect.TypeFor[corev1.ResourceList]() {
			// k8s.io/kubernetes/pkg/apis/core/v1, SetDefaults_ResourceList.
			q.RoundUp(resource.Milli)
			dst = rawjson.AppendString(dst, q.String())
			continue
		}
		dst = appendCanonical(dst, value, t.Elem())
	}
	return append(dst, '}')
}

func zeroJSON(t reflect.Type) rawjson.Value {
	text, err := json.Marshal(reflect.Zero(t).Interface())
	if err != nil {
		return rawjson.Value("null")
	}
	return text
}

type canonicalField struct {
	of        reflect.Type
	omitempty bool
	// always says that an object is written though nothing is said of it.
	always bool
}

// empty reports whether a value is left out. What is behind a pointer is left out
// only if it is not there.
func (f *canonicalField) empty(text []byte) bool {
	if !f.omitempty {
		return false
	}
	switch f.of.Kind() { //nolint:exhaustive // of all others nothing is left out
	case reflect.Bool:
		return string(text) == "false"
	case reflect.String:
		return string(text) == `""`
	case reflect.Slice:
		return string(text) == "[]"
	case reflect.Map:
		return string(text) == "{}"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return string(text) == "0" || string(text) == "-0"
	default:
		return false
	}
}

var canonicalFields sync.Map //nolint:gochecknoglobals // of reflect.Type to what fieldsOf says, which never changes

// fieldsOf returns the fields of a struct by their names in JSON.
func fieldsOf(t reflect.Type) map[string]canonicalField {
	if known, ok := canonicalFields.Load(t); ok {
		return known.(map[string]canonicalField)
	}
	fields := make(map[string]canonicalField)
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue // A struct whose fields are those of the outer one, or no field.
		}
		field := canonicalField{of: f.Type, omitempty: strings.Contains(options, "omitempty")}
		field.always = f.Type.Kind() == reflect.Struct && !field.omitempty && !reflect.PointerTo(f.Type).Implements(reflect.TypeFor[json.Unmarshaler]())
		fields[name] = field
	}
	canonicalFields.Store(t, fields)
	return fields
}
