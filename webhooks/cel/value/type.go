package value

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Type is a Go type of which the API server gives expressions a value. A nil Type
// is any JSON.
//
// The API server decodes the objects of its own kinds into Go types, and shows
// expressions these: k8s.io/apiserver/pkg/cel/common.SchemalessTypedToVal. Their
// structs, maps and lists differ from the maps and lists of cel-go in the
// operators, not in what is in them. See Typed.
type Type struct {
	of   reflect.Type
	kind typeKind
	// fields are the types of a struct's fields by JSON name. Fields of which any
	// JSON will do are nil.
	fields map[string]*Type
	// element is the type of what a list or map holds.
	element *Type
	// quantities is true if there are quantities inside.
	quantities bool
}

type typeKind uint8

const (
	structType typeKind = iota
	mapType
	listType
	// floatType is a number that is a double even if it is written as an integer.
	floatType
	quantityType
)

// TypeOf returns the Type of a Go type, and nil if its values behave as any JSON
// does.
func TypeOf(of reflect.Type) *Type {
	all := typeSet{}
	out := all.typeOf(of)
	all.markQuantities()
	return out
}

// typeSet has those that are under construction or done: types may be recursive.
type typeSet map[reflect.Type]*Type

func (all typeSet) typeOf(of reflect.Type) *Type {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if known, ok := all[of]; ok {
		return known
	}
	out := &Type{of: of}
	if of == reflect.TypeFor[resource.Quantity]() {
		out.kind, out.quantities = quantityType, true
		all[of] = out
		return out
	}
	marshaler := reflect.TypeFor[json.Marshaler]()
	if of.Implements(marshaler) || reflect.PointerTo(of).Implements(marshaler) {
		return nil // the API server decodes what it writes
	}
	switch of.Kind() { //nolint:exhaustive // any other is a scalar
	case reflect.Float32, reflect.Float64:
		out.kind = floatType
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return nil // base64
		}
		out.kind = listType
		all[of] = out
		out.element = all.typeOf(of.Elem())
	case reflect.Map:
		out.kind = mapType
		all[of] = out
		out.element = all.typeOf(of.Elem())
	case reflect.Struct:
		out.fields = make(map[string]*Type, of.NumField())
		all[of] = out
		all.addFields(out.fields, of)
	default:
		return nil
	}
	return out
}

// addFields adds the fields of a struct, and of those that are inlined in it.
func (all typeSet) addFields(to map[string]*Type, of reflect.Type) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || field.PkgPath != "" && !field.Anonymous:
		case field.Anonymous && name == "":
			inlined := field.Type
			if inlined.Kind() == reflect.Pointer {
				inlined = inlined.Elem()
			}
			if inlined.Kind() == reflect.Struct {
				all.addFields(to, inlined)
			}
		default:
			if name == "" {
				name = field.Name
			}
			if t := all.typeOf(field.Type); t != nil {
				to[name] = t
			}
		}
	}
}

// markQuantities marks the types that have quantities inside.
func (all typeSet) markQuantities() {
	for changed := true; changed; {
		changed = false
		for _, t := range all {
			if t.quantities {
				continue
			}
			t.quantities = t.element != nil && t.element.quantities
			for _, field := range t.fields {
				t.quantities = t.quantities || field.quantities
			}
			changed = changed || t.quantities
		}
	}
}

// member returns the type of a member of an object of the type.
func (t *Type) member(name []byte) *Type {
	switch {
	case t == nil:
		return nil
	case t.kind == structType:
		return t.fields[string(name)]
	default:
		return t.element
	}
}

// Types gives out Types by name, each made when it is first asked for. It is safe
// for concurrent use.
type Types[K comparable] map[K]func() *Type

// Add adds a Go type.
func (t Types[K]) Add(name K, of reflect.Type) {
	t[name] = sync.OnceValue(func() *Type { return TypeOf(of) })
}

// Get returns the Type of that name, and nil if there is none.
func (t Types[K]) Get(name K) *Type {
	if get, ok := t[name]; ok {
		return get()
	}
	return nil
}
