package mutation

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// fields names fields of an object of a Go type, by their names in JSON. Encoding, decoding and merging an object do to each
// field what they do whatever the others are, so that the parts that a mutation names are enough for it: they are a small object.
type fields struct {
	// all is true for a field with everything below it.
	all   bool
	below map[string]*fields
}

// add adds the field at a path.
func (f *fields) add(path ...string) {
	for _, name := range path {
		if f.below == nil {
			f.below = map[string]*fields{}
		}
		if f.below[name] == nil {
			f.below[name] = &fields{}
		}
		f = f.below[name]
	}
	f.all = true
}

// addTree adds the fields of an apply configuration.
func (f *fields) addTree(configuration map[string]any) {
	f.all = len(configuration) == 0
	for name, value := range configuration {
		f.add(name)
		if deeper, ok := value.(map[string]any); ok {
			f.below[name].addTree(deeper)
			f.below[name].all = len(deeper) == 0
		}
	}
}

// fieldsOf returns the fields that a mutation names by its result, and false if it can change or read others.
func fieldsOf(result ref.Val) (*fields, bool) {
	out := &fields{}
	switch result := result.(type) {
	case *dynamic.ObjectVal:
		configuration, ok := result.Value().(map[string]any)
		out.addTree(configuration)
		out.all = false
		return out, ok
	case traits.Lister:
		for it := result.Iterator(); it.HasNext() == types.True; {
			operation, ok := it.Next().(*mutation.JSONPatchVal)
			if !ok {
				return nil, false
			}
			for _, pointer := range [...]string{operation.Path, operation.From} {
				path := strings.Split(pointer, "/")
				if pointer == "" && operation.Path != "" {
					continue
				}
				if len(path) < 2 || path[0] != "" || path[1] == "kind" || path[1] == "apiVersion" {
					return nil, false
				}
				out.add(path[1:]...)
			}
		}
		return out, true
	default:
		return nil, false
	}
}

// areMetadata reports whether all of the fields are in the metadata.
func (f *fields) areMetadata() bool {
	return !f.all && len(f.below) == 0 || len(f.below) == 1 && f.below["metadata"] != nil
}

// isStruct reports whether values of a type are structs that JSON has as objects with their fields.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !value.TypeReflectEntryOf(t).CanConvertToUnstructured()
}

// copyTo copies the fields from a struct to another one. Structs on the way that are pointers are made if they are nil.
func (f *fields) copyTo(to, from reflect.Value) {
	entries := value.TypeReflectEntryOf(to.Type()).Fields()
	for name, below := range f.below {
		entry, known := entries[name]
		if !known {
			continue
		}
		a, b := entry.GetFrom(to), entry.GetFrom(from)
		isPointer := a.Kind() == reflect.Pointer && isStruct(a.Type().Elem())
		switch {
		case below.all || isPointer && b.IsNil() || !isPointer && !isStruct(a.Type()):
			a.Set(b)
		case isPointer:
			if a.IsNil() {
				a.Set(reflect.New(a.Type().Elem()))
			}
			below.copyTo(a.Elem(), b.Elem())
		default:
			below.copyTo(a, b)
		}
	}
}

// of returns an object that has these fields of another one, and shares their memory.
func (f *fields) of(object runtime.Object) runtime.Object {
	out, _ := reflect.TypeAssert[runtime.Object](reflect.New(reflect.TypeOf(object).Elem()))
	f.copyTo(reflect.ValueOf(out).Elem(), reflect.ValueOf(object).Elem())
	out.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	return out
}

// metadataOf returns an object that has the metadata of another one, and shares its memory.
func metadataOf(object runtime.Object) runtime.Object {
	metadata := &fields{}
	metadata.add("metadata")
	return metadata.of(object)
}

// tree returns the fields of an object as JSON decodes them, possibly with others that are empty.
func (f *fields) tree(object runtime.Object) (map[string]any, error) {
	out, entries := map[string]any{}, value.TypeReflectEntryOf(reflect.TypeOf(object).Elem()).Fields()
	for name, below := range f.below {
		field := entries[name].GetFrom(reflect.ValueOf(object).Elem())
		if below.all || !isStruct(field.Type()) || entries[name].CanOmit(field) {
			return tree(f.of(object))
		}
		part := reflect.New(field.Type())
		below.copyTo(part.Elem(), field)
		converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part.Interface())
		if err != nil {
			return nil, err
		}
		out[name] = converted
	}
	return out, nil
}

// differing returns the fields in which two objects of a Go type may differ, nil if there are none.
func differing(a, b runtime.Object) *fields {
	out := &fields{}
	out.addDiffering(nil, reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
	if out.below == nil {
		return nil
	}
	return out
}

func (f *fields) addDiffering(path []string, a, b reflect.Value) {
	for _, entry := range value.TypeReflectEntryOf(a.Type()).OrderedFields() {
		x, y := entry.GetFrom(a), entry.GetFrom(b)
		switch kind := x.Kind(); {
		case kind == reflect.String && x.String() == y.String(), kind == reflect.Pointer && x.IsNil() && y.IsNil(),
			(kind == reflect.Slice || kind == reflect.Map) && x.IsNil() && y.IsNil():
			// This is most of them.
		case isStruct(x.Type()):
			f.addDiffering(append(path, entry.JsonName), x, y)
		case !reflect.DeepEqual(x.Interface(), y.Interface()):
			f.add(append(path, entry.JsonName)...)
		}
	}
}

// read returns the fields of an object in JSON. Where it has no object that the fields are in, the whole field becomes one of them.
func (f *fields) read(object rawjson.Value) (map[string]any, error) {
	out := map[string]any{}
	for name, below := range f.below {
		member := object.Get(name)
		below.all = below.all || member.Kind() != rawjson.Object
		var err error
		switch {
		case len(member) == 0:
			continue
		case below.all:
			var decoded any
			err = utiljson.Unmarshal(member, &decoded)
			out[name] = decoded
		default:
			out[name], err = below.read(member)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// write returns an object in JSON with other values for the fields that were read of it, nil for all.
func write(object rawjson.Value, read *fields, values map[string]any) ([]byte, error) {
	if read == nil {
		return json.Marshal(values)
	}
	const growth = 256
	return read.write(make([]byte, 0, len(object)+growth), object, values)
}

func (f *fields) write(out []byte, object rawjson.Value, values map[string]any) ([]byte, error) {
	out = append(out, '{')
	separate := func() {
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
	}
	put := func(name string, value any) error {
		text, err := json.Marshal(value)
		separate()
		out = append(append(rawjson.AppendString(out, name), ':'), text...)
		return err
	}
	for written, member := range object.Members() {
		name := written.Text()
		below := f.below[name]
		value, stays := values[name]
		var err error
		switch {
		case below == nil:
			separate()
			out = append(append(append(out, written...), ':'), member...)
		case below.all && stays:
			err = put(name, value)
		case !below.all:
			separate()
			deeper, _ := value.(map[string]any)
			out, err = below.write(append(append(out, written...), ':'), member, deeper)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.below)) {
		if value, is := values[name]; is && len(object.Get(name)) == 0 {
			if err := put(name, value); err != nil {
				return nil, err
			}
		}
	}
	return append(out, '}'), nil
}

// jsonView is a struct of an object as expressions see its JSON. A field is converted when an expression selects it, and
// everything for whatever else an expression does with it.
type jsonView struct {
	object runtime.Object
	// complete returns the whole object, of which only the metadata is known. It is nil for one that is whole.
	complete func() runtime.Object
	path     []string
	self     reflect.Value
	known    map[string]ref.Val
	all      traits.Mapper
}

var _ traits.Mapper = (*jsonView)(nil)

// convert returns what is at a path of the object, which may be nothing.
func convert(object runtime.Object, path []string) (value any, is bool, err error) {
	part := &fields{}
	part.add(path...)
	if len(path) > 0 {
		object = part.of(object)
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	value = tree
	for _, name := range path {
		parent, _ := value.(map[string]any)
		value, is = parent[name]
	}
	return value, is, err
}

func (v *jsonView) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if name != "metadata" {
		v.readAll()
	}
	entry := value.TypeReflectEntryOf(v.self.Type()).Fields()[string(name)]
	switch found := v.known[string(name)]; {
	case !ok || v.all != nil:
		return v.whole().Find(key)
	case entry == nil:
		return nil, false
	case found != nil:
		return found, true
	}
	path := append(slices.Clip(v.path), string(name))
	var out ref.Val
	if field := entry.GetFrom(v.self); isStruct(field.Type()) && !entry.CanOmit(field) {
		out = &jsonView{object: v.object, path: path, self: field}
	} else {
		value, is, err := convert(v.object, path)
		switch {
		case err != nil:
			return types.WrapErr(err), true
		case !is:
			return nil, false
		}
		out = types.DefaultTypeAdapter.NativeToValue(value)
	}
	if v.known == nil {
		v.known = map[string]ref.Val{}
	}
	v.known[string(name)] = out
	return out, true
}

func (v *jsonView) readAll() {
	if v.complete != nil {
		v.object = v.complete()
		v.complete, v.self = nil, reflect.ValueOf(v.object).Elem()
	}
}

func (v *jsonView) whole() traits.Mapper {
	if v.readAll(); v.all == nil {
		converted, _, err := convert(v.object, v.path)
		tree, ok := converted.(map[string]any)
		if err != nil || !ok {
			panic(fmt.Sprintf("no object at %v: %v", v.path, err)) // it is the error of the expression
		}
		v.all = types.NewStringInterfaceMap(types.DefaultTypeAdapter, tree)
	}
	return v.all
}

func (v *jsonView) Get(key ref.Val) ref.Val {
	out, found := v.Find(key)
	if !found {
		return types.ValOrErr(out, "no such key: %v", key)
	}
	return out
}

func (v *jsonView) Contains(key ref.Val) ref.Val {
	_, found := v.Find(key)
	return types.Bool(found)
}

func (v *jsonView) ConvertToNative(to reflect.Type) (any, error) {
	return v.whole().ConvertToNative(to)
}
func (v *jsonView) ConvertToType(to ref.Type) ref.Val { return v.whole().ConvertToType(to) }
func (v *jsonView) Equal(other ref.Val) ref.Val       { return v.whole().Equal(other) }
func (v *jsonView) IsZeroValue() bool                 { return v.Size() == types.IntZero }
func (v *jsonView) Iterator() traits.Iterator         { return v.whole().Iterator() }
func (v *jsonView) Size() ref.Val                     { return v.whole().Size() }
func (v *jsonView) String() string                    { return fmt.Sprint(v.whole()) }
func (*jsonView) Type() ref.Type                      { return types.MapType }
func (v *jsonView) Value() any                        { return v.whole().Value() }
