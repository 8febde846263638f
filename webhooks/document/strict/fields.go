package strict

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Fields returns the JSON fields of a struct by their names, with those of the
// structs embedded in it, by the rules of encoding/json. A type that is no
// struct has none.
func Fields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				for key, below := range Fields(embedded) {
					// The outer field wins over the embedded one.
					if _, taken := fields[key]; !taken {
						fields[key] = below
					}
				}
				continue
			}
		}
		if name == "-" || !field.IsExported() {
			continue
		}
		if name == "" {
			name = field.Name
		}
		fields[name] = field.Type
	}
	return fields
}

// fields caches the results of Fields.
type fields struct {
	byType sync.Map // of reflect.Type to map[string]reflect.Type
}

func (f *fields) of(t reflect.Type) map[string]reflect.Type {
	if known, ok := f.byType.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	found := Fields(t)
	f.byType.Store(t, found)
	return found
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// MemberType returns the type of a member of a value of type t, and nil where it is
// not known: for an unknown field, for a type with its own UnmarshalJSON, and for a nil type.
func (c *Checker) MemberType(t reflect.Type, name string) reflect.Type {
	switch t = structure(t); {
	case t == nil:
		return nil
	case t.Kind() == reflect.Struct:
		return c.fields.of(t)[name]
	case t.Kind() == reflect.Map:
		return t.Elem()
	default:
		return nil
	}
}

// ElementType returns the type of the elements of a list of type t, and nil where it
// is not known.
func (*Checker) ElementType(t reflect.Type) reflect.Type {
	t = structure(t)
	if t == nil || t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
		return nil
	}
	return t.Elem()
}

// structure returns the type that t points to, and nil for one with its own UnmarshalJSON.
func structure(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	return t
}
