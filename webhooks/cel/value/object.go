package value

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// mapping is what the objects of untyped and typed JSON share.
type mapping struct {
	composite
	// places are the members' indexes by name. They are nil until they are needed: few members without escapes in their names do without.
	places map[string]int
	// keys are nil until they are asked for.
	keys []ref.Val
}

// fewMembers is up to how many members comparing the name of each beats a map of them.
const fewMembers = 48

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

// Member returns the member with the name of a value that Value or Typed made of an object, as Find does, and whether it is
// there. isObject is false for any other value.
func Member(of any, name string) (member ref.Val, found, isObject bool) {
	o := mappingOf(of)
	if o == nil {
		return nil, false, false
	}
	member, found = o.find(name)
	return member, found, true
}

// Strings returns the members of a value that Value or Typed made of an object. isObject is false for any other value, and
// areStrings is false if a member is not a string.
func Strings(of any) (members map[string]string, areStrings, isObject bool) {
	o := mappingOf(of)
	if o == nil {
		return nil, false, false
	}
	parts := o.parts()
	members = make(map[string]string, len(parts))
	for i := range parts {
		value := o.document.Part(o.document.Nodes[parts[i].number].Span)
		if value.Kind() != rawjson.String {
			return nil, false, true
		}
		members[o.name(&parts[i]).Text()] = value.Text()
	}
	return members, true, true
}

// mappingOf returns the mapping of a value that Value or Typed made of an object, and nil for any other.
func mappingOf(of any) *mapping {
	switch o := of.(type) {
	case *typedObject:
		return &o.mapping
	case *object:
		return &o.mapping
	default:
		return nil
	}
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
func (o *mapping) name(p *part) rawjson.Value {
	return o.document.Part(o.document.Nodes[p.number].Name)
}

// value returns the value of a member.
func (o *mapping) value(i int) ref.Val {
	p := &o.parts()[i]
	if o.of == nil || p.value != nil {
		return o.read(p, nil)
	}
	name := o.name(p)
	if !o.document.Nodes[o.number].Escaped {
		return o.read(p, o.of.member(name[1:len(name)-1]))
	}
	return o.read(p, o.of.member([]byte(name.Text())))
}

// index returns that of the member with the name, or -1.
func (o *mapping) index(name string) int {
	members, d := o.parts(), o.document
	if len(members) <= fewMembers && !d.Nodes[o.number].Escaped {
		for i := range members {
			if at := d.Nodes[members[i].number].Name; string(d.Text[at.Start+1:at.End-1]) == name {
				return i
			}
		}
		return -1
	}
	if o.places == nil {
		o.places = make(map[string]int, len(members))
		for i := range members {
			o.places[o.name(&members[i]).Text()] = i
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
		members := o.parts()
		o.keys = make([]ref.Val, len(members))
		for i := range members {
			o.keys[i] = types.String(o.name(&members[i]).Text())
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
