package value

import (
	"bytes"
	"errors"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/json"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// What follows does what the values of k8s.io/apiserver/pkg/cel/common do, see
// SchemalessTypedToVal there, call by call.

// typedObject is a JSON object that the API server has as a Go struct or map.
type typedObject struct {
	mapping
	decoded decoded
}

// typedList is a JSON array that the API server has as a Go slice.
type typedList struct {
	sequence
	decoded decoded
}

var (
	_ traits.Mapper   = (*typedObject)(nil)
	_ traits.Foldable = (*typedObject)(nil)
	_ traits.Lister   = (*typedList)(nil)
	_ traits.Foldable = (*typedList)(nil)
)

func (o *typedObject) isStruct() bool { return o.of.kind == structType }

// Find returns the member with the name. A key that is not a string is an error,
// and counts as found in a struct.
func (o *typedObject) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.ValOrErr(key, "unsupported map key type: %T", key), o.isStruct()
	}
	return o.find(string(name))
}

func (o *typedObject) Get(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if found || value != nil {
		return value
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

func (o *typedObject) Contains(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if value != nil && types.IsError(value) {
		return value
	}
	return types.Bool(found)
}

// Equal reports whether other is equal. What is no map cannot be compared.
func (o *typedObject) Equal(other ref.Val) ref.Val {
	typed, ok := other.(*typedObject)
	if ok && typed.of == o.of && bytes.Equal(o.text(), typed.text()) {
		return types.True
	}
	if ok && o.isStruct() && typed.isStruct() {
		return o.sameStruct(typed)
	}
	mapper, ok := other.(traits.Mapper)
	switch {
	case !ok:
		return types.MaybeNoSuchOverloadErr(other)
	case o.Size() != mapper.Size():
		return types.False
	}
	for i, name := range o.names() {
		theirs, found := mapper.Find(name)
		if !found {
			return types.False
		}
		if equal := o.value(i).Equal(theirs); equal != types.True {
			if o.isStruct() {
				return equal // which may be an error
			}
			return types.False
		}
	}
	return types.True
}

// sameStruct reports whether two structs are equal in Kubernetes' sense. Of
// structs that have a field that is unknown here each field must be equal: what is
// unknown may differ.
func (o *typedObject) sameStruct(other *typedObject) ref.Val {
	if o.of.of != other.of.of {
		return types.False
	}
	mine, theirs := o.decoded.get(&o.composite), other.decoded.get(&other.composite)
	if err := errors.Join(mine.huge, theirs.huge); err != nil {
		return types.WrapErr(err)
	}
	if mine.exact && theirs.exact {
		return types.Bool(equality.Semantic.DeepEqual(mine.value.Interface(), theirs.value.Interface()))
	}
	if o.Size() != other.Size() {
		return types.False
	}
	for i, name := range o.names() {
		if member, found := other.Find(name); !found || types.Equal(o.value(i), member) != types.True {
			return types.False
		}
	}
	return types.True
}

func (o *typedObject) ConvertToNative(to reflect.Type) (any, error) {
	if isOneOf(o, to) {
		return o, nil
	}
	return o.mapping.native().ConvertToNative(to)
}

func (o *typedObject) ConvertToType(to ref.Type) ref.Val {
	if to == types.MapType {
		return o
	}
	return (&object{}).ConvertToType(to)
}

func (l *typedList) Get(index ref.Val) ref.Val {
	i, ok := index.(types.Int)
	switch {
	case !ok:
		return types.ValOrErr(index, "unsupported index type: %T", index)
	case i < 0 || i >= types.Int(l.size()):
		return types.NewErr("index out of bounds: %d", i)
	default:
		return l.element(int(i))
	}
}

func (l *typedList) Contains(value ref.Val) ref.Val {
	for i := range l.size() {
		if l.element(i).Equal(value) == types.True {
			return types.True
		}
	}
	return types.False
}

// Add returns the list with another behind it, which is a list of cel-go's own.
func (l *typedList) Add(other ref.Val) ref.Val {
	lister, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if typed, ok := other.(*typedList); ok {
		lister = typed.copied()
	}
	return l.copied().Add(lister)
}

// Equal reports whether other is a list of equal elements. What is no list cannot
// be compared.
func (l *typedList) Equal(other ref.Val) ref.Val {
	if typed, ok := other.(*typedList); ok && typed.of == l.of && bytes.Equal(l.text(), typed.text()) {
		return types.True
	}
	lister, ok := other.(traits.Lister)
	switch {
	case !ok:
		return types.MaybeNoSuchOverloadErr(other)
	case l.Size() != lister.Size():
		return types.False
	}
	for i := range l.size() {
		if l.element(i).Equal(lister.Get(types.Int(i))) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative converts to the API server's own slice whatever the type of the
// slice that is asked for, and otherwise as cel-go's own list does.
func (l *typedList) ConvertToNative(to reflect.Type) (any, error) {
	if isOneOf(l, to) {
		return l, nil
	}
	if to.Kind() == reflect.Slice {
		if native := l.decoded.get(&l.composite); native.exact {
			return native.value.Interface(), nil
		}
	}
	return l.sequence.native().ConvertToNative(to)
}

func (l *typedList) ConvertToType(to ref.Type) ref.Val {
	if to == types.ListType {
		return l
	}
	return (&list{}).ConvertToType(to)
}

// decoded is the Go value that the API server has, nil until it is asked for.
type decoded struct{ *goValue }

type goValue struct {
	value reflect.Value
	// exact is false if the text does not fit the type, or says what the type has
	// no field for, as the API server of a later version may.
	exact bool
	// huge is the error of a text with a quantity that takes too long to read.
	huge error
}

// get returns the Go value of an object or list, which is decoded once.
func (d *decoded) get(c *composite) *goValue {
	if d.goValue == nil {
		d.goValue = c.decodeTyped()
	}
	return d.goValue
}

func (c *composite) decodeTyped() *goValue {
	text := c.text()
	if err := c.of.checkQuantities(text); err != nil {
		return &goValue{huge: err}
	}
	into := reflect.New(c.of.of)
	unknown, err := json.UnmarshalStrict(text, into.Interface())
	return &goValue{value: into.Elem(), exact: err == nil && len(unknown) == 0}
}

// checkQuantities returns an error if a quantity takes long to read or compare.
func (t *Type) checkQuantities(text rawjson.Value) error {
	if t == nil || !t.quantities {
		return nil
	}
	switch {
	case t.kind == quantityType:
		quantity := string(text)
		if text.Kind() == rawjson.String {
			quantity = text.Text()
		}
		if IsHugeQuantity(quantity) {
			return ErrHugeQuantity
		}
	case text.Kind() == rawjson.Object:
		for name, value := range text.Members() {
			if err := t.member([]byte(name.Text())).checkQuantities(value); err != nil {
				return err
			}
		}
	case text.Kind() == rawjson.Array && t.kind == listType:
		for _, value := range text.Elements() {
			if err := t.element.checkQuantities(value); err != nil {
				return err
			}
		}
	}
	return nil
}
