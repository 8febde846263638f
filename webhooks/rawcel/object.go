package rawcel

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// mapping is what the objects of untyped and typed JSON share.
type mapping struct {
	composite
	// places are the members' indexes by name, nil until they are needed and for few members.
	places map[string]int
	// keys are nil until they are asked for.
	keys []ref.Val
}

// object is a JSON object as a CEL map.
type object struct{ mapping }

var (
	_ traits.Mapper   = (*object)(nil)
	_ traits.Foldable = (*object)(nil)
	_ traits.Zeroer   = (*object)(nil)
	_ fmt.Stringer    = (*object)(nil)
)

// Find returns the member with the name, if there is one. Nothing but a string is a
// name.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	return o.find(string(name))
}

// find returns the member with the name, and false if there is none.
func (o *mapping) find(name string) (ref.Val, bool) {
	i := o.index(name)
	if i < 0 {
		return nil, false
	}
	return o.value(i), true
}

// name returns that of a member, as it is written.
func (o *mapping) name(i int) rawjson.Value { return o.document.part(o.entries()[i].name) }

// value returns the value of a member.
func (o *mapping) value(i int) ref.Val {
	if o.of == nil || o.values != nil && o.values[i] != nil {
		return o.read(i, nil)
	}
	name := o.name(i)
	if bytes.IndexByte(name, '\\') < 0 {
		return o.read(i, o.of.member(name[1:len(name)-1]))
	}
	return o.read(i, o.of.member([]byte(name.Text())))
}

// index returns that of the member with the name, or -1.
func (o *mapping) index(name string) int {
	members := o.entries()
	if len(members) <= few {
		for i := range members {
			if o.document.part(members[i].name).Is(name) {
				return i
			}
		}
		return -1
	}
	if o.places == nil {
		o.places = make(map[string]int, len(members))
		for i := range members {
			o.places[o.name(i).Text()] = i
		}
	}
	if i, found := o.places[name]; found {
		return i
	}
	return -1
}

// names returns the names of the members.
func (o *mapping) names() []ref.Val {
	if o.keys == nil {
		o.keys = make([]ref.Val, o.size())
		for i := range o.keys {
			o.keys[i] = types.String(o.name(i).Text())
		}
	}
	return o.keys
}

func (o *object) Get(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if !found {
		return types.NewErr("no such key: %v", key)
	}
	return value
}

func (o *object) Contains(key ref.Val) ref.Val {
	_, found := o.Find(key)
	return types.Bool(found)
}

func (o *mapping) Size() ref.Val { return types.Int(o.size()) }

func (o *object) IsZeroValue() bool { return o.size() == 0 }

func (o *mapping) Iterator() traits.Iterator {
	names := o.names()
	return &iterator{size: len(names), names: names}
}

func (o *mapping) Fold(f traits.Folder) {
	for i, name := range o.names() {
		if !f.FoldEntry(name, o.value(i)) {
			return
		}
	}
}

func (o *object) Equal(other ref.Val) ref.Val {
	if raw, ok := other.(*object); ok && bytes.Equal(o.text(), raw.text()) {
		return types.True
	}
	return o.equal(other)
}

// equal is Equal without comparing the text first.
func (o *object) equal(other ref.Val) ref.Val {
	mapper, ok := other.(traits.Mapper)
	if !ok || o.Size() != mapper.Size() {
		return types.False
	}
	for i, name := range o.names() {
		theirs, found := mapper.Find(name)
		if !found || equal(o.value(i), theirs) == types.False {
			return types.False
		}
	}
	return types.True
}

func (*mapping) Type() ref.Type { return types.MapType }

// Value returns the decoded object, a map[string]any of the caller's own.
func (o *mapping) Value() any { return o.decode() }

// native returns the object as cel-go's own map.
func (o *mapping) native() ref.Val { return types.DefaultTypeAdapter.NativeToValue(o.decode()) }

func (o *object) ConvertToNative(to reflect.Type) (any, error) {
	if isOneOf(o, to) {
		return o, nil
	}
	return o.native().ConvertToNative(to)
}

func (o *object) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	default:
		return types.NewErr("type conversion error from '%s' to '%s'", types.MapType, to)
	}
}

func (o *mapping) String() string { return fmt.Sprint(o.native()) }

// isOneOf reports whether a value has the type without conversion. An interface without
// methods requests the native form.
func isOneOf(v ref.Val, t reflect.Type) bool {
	return t.NumMethod() > 0 && reflect.TypeOf(v).AssignableTo(t)
}
