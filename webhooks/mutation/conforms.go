package mutation

import (
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
)

// check reports whether a value of a Go type has the form that a schema asks for. It may say no for one that has. Nil is yes
// for all values of the type.
type check func(reflect.Value) bool

func never(reflect.Value) bool { return false }

// checks are those of the kinds that were met so far, by kind.
var checks sync.Map //nolint:gochecknoglobals // they are made once, for all policies

// conforms reports whether it is known that an object of a Go type has the form that the schema of its kind asks for. The schemas
// are made of the Go types, so that few parts of an object have to be looked at; merging with validation looks at all of them.
// Of a partial object, that is true of the parts that are not there, too.
func conforms(object runtime.Object, isPartial bool) bool {
	kind := object.GetObjectKind().GroupVersionKind()
	known, ok := checks.Load(kind)
	if !ok {
		known, _ = checks.LoadOrStore(kind, compileChecks(kind, reflect.TypeOf(object).Elem()))
	}
	k, _ := known.(kindChecks)
	return k.isKnown && (!isPartial || k.metadataAlone) && passes(k.fields, reflect.ValueOf(object).Elem())
}

// kindChecks are the checks of a kind.
type kindChecks struct {
	fields []fieldCheck
	// metadataAlone is true if nothing but the metadata needs one, provided that no managed fields are outside of it.
	metadataAlone, isKnown bool
}

func compileChecks(kind schema.GroupVersionKind, of reflect.Type) (out kindChecks) {
	stub := &unstructured.Unstructured{}
	stub.SetGroupVersionKind(kind)
	typed, err := builtin.TypeConverter().ObjectToTyped(stub)
	if err != nil {
		return out
	}
	atom, _ := typed.Schema().Resolve(typed.TypeRef())
	c := checkCompiler{typed.Schema(), false}
	out.fields, out.isKnown = c.fields(of, atom, []reflect.Type{of}), true
	c.ignoreManaged = true
	out.metadataAlone = !slices.ContainsFunc(c.fields(of, atom, []reflect.Type{of}), func(f fieldCheck) bool { return f.JsonName != "metadata" })
	return out
}

// checkCompiler compiles the checks of a kind, without those of managed fields if they are ignored.
type checkCompiler struct {
	*smdschema.Schema
	ignoreManaged bool
}

// form compiles the check of a type. The outer types are those that it is in: one that is in itself is not known.
func (c *checkCompiler) form(of reflect.Type, ref smdschema.TypeRef, outer []reflect.Type) check {
	atom, ok := c.Resolve(ref)
	isScalar := func(forms ...smdschema.Scalar) check {
		if atom.Scalar != nil && slices.Contains(append(forms, smdschema.Untyped), *atom.Scalar) {
			return nil
		}
		return never
	}
	switch {
	case !ok || slices.Contains(outer, of):
		return never
	case atom.Scalar != nil && atom.List != nil && atom.Map != nil:
		return nil // anything
	case of == reflect.TypeFor[metav1.Time]() || of == reflect.TypeFor[metav1.MicroTime]():
		return isScalar(smdschema.String)
	case of == reflect.TypeFor[metav1.FieldsV1]() && c.ignoreManaged:
		return nil
	case of == reflect.TypeFor[metav1.FieldsV1]():
		return func(v reflect.Value) bool {
			fields, _ := reflect.TypeAssert[metav1.FieldsV1](v)
			raw := fields.GetRawBytes()
			return atom.Map != nil && (len(raw) == 0 || raw[0] == '{')
		}
	case of.Kind() != reflect.Pointer && value.TypeReflectEntryOf(of).CanConvertToUnstructured():
		return isScalar() // quantities, numbers or strings
	}
	outer = append(slices.Clip(outer), of)
	switch of.Kind() { //nolint:exhaustive // objects have no others
	case reflect.Pointer:
		if inner := c.form(of.Elem(), ref, outer); inner != nil {
			return func(v reflect.Value) bool { return v.IsNil() || inner(v.Elem()) }
		}
		return nil
	case reflect.Bool:
		return isScalar(smdschema.Boolean)
	case reflect.String:
		return isScalar(smdschema.String)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return isScalar(smdschema.Numeric)
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return isScalar(smdschema.String)
		}
		if atom.List == nil {
			return never
		}
		return all(c.keys(of.Elem(), atom.List), c.form(of.Elem(), atom.List.ElementType, outer))
	case reflect.Map:
		if atom.Map == nil {
			return never
		}
		inner := c.form(of.Elem(), atom.Map.ElementType, outer)
		if inner == nil {
			return nil
		}
		return func(v reflect.Value) bool {
			for it := v.MapRange(); it.Next(); {
				if !inner(it.Value()) {
					return false
				}
			}
			return true
		}
	case reflect.Struct:
		if list := c.fields(of, atom, outer); list != nil {
			return func(v reflect.Value) bool { return passes(list, v) }
		}
		return nil
	default:
		return never
	}
}

// fieldCheck is the check of a field of a struct.
type fieldCheck struct {
	*value.FieldCacheEntry
	check
}

// passes reports whether a struct passes the checks of its fields.
func passes(list []fieldCheck, v reflect.Value) bool {
	for _, f := range list {
		if field := f.GetFrom(v); !f.CanOmit(field) && !f.check(field) {
			return false
		}
	}
	return true
}

// fields compiles the checks of the fields of a struct that need one.
func (c *checkCompiler) fields(of reflect.Type, atom smdschema.Atom, outer []reflect.Type) (out []fieldCheck) {
	zero := reflect.New(of).Elem()
	for _, entry := range value.TypeReflectEntryOf(of).OrderedFields() {
		if atom.Map == nil {
			return []fieldCheck{{entry, never}}
		}
		ref := atom.Map.ElementType
		if declared, ok := atom.FindField(entry.JsonName); ok {
			ref = declared.Type
		}
		if inner := c.form(entry.GetFrom(zero).Type(), ref, outer); inner != nil {
			out = append(out, fieldCheck{entry, inner})
		}
	}
	return out
}

// keys compiles the check that each element of a list has one of the keys of the schema, and nil if no list can be without.
func (c *checkCompiler) keys(of reflect.Type, list *smdschema.List) check {
	if list.ElementRelationship != smdschema.Associative || len(list.Keys) == 0 && slices.Contains([]reflect.Kind{reflect.String, reflect.Int32, reflect.Int64}, of.Kind()) {
		return nil
	}
	atom, ok := c.Resolve(list.ElementType)
	if !ok || atom.Map == nil || of.Kind() != reflect.Struct {
		return never
	}
	zero, entries := reflect.New(of).Elem(), value.TypeReflectEntryOf(of).Fields()
	var keys []*value.FieldCacheEntry
	for _, name := range list.Keys {
		entry := entries[name]
		if declared, ok := atom.FindField(name); entry == nil || !ok {
			return never
		} else if declared.Default != nil || !entry.CanOmit(entry.GetFrom(zero)) {
			return nil
		}
		keys = append(keys, entry)
	}
	return func(v reflect.Value) bool {
		return slices.ContainsFunc(keys, func(key *value.FieldCacheEntry) bool { return !key.CanOmit(key.GetFrom(v)) })
	}
}

// all returns the check that all elements of a list pass two checks.
func all(first, second check) check {
	if first == nil && second == nil {
		return nil
	}
	return func(v reflect.Value) bool {
		for i := range v.Len() {
			if first != nil && !first(v.Index(i)) || second != nil && !second(v.Index(i)) {
				return false
			}
		}
		return true
	}
}
