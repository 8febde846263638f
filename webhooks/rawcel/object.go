package rawcel

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// mapping is what the objects of untyped and typed JSON share.
type mapping struct {
	composite
	// members are in the order written, and nil until one is asked for.
	members []member
	// places are the members' indexes by name, and nil for few members.
	places map[string]int
	// keys are nil until they are asked for.
	keys []ref.Val
}

// object is a JSON object as a CEL map.
type object struct{ mapping }

type member struct {
	name span
	slot
}

var (
	_ traits.Mapper   = (*object)(nil)
	_ traits.Foldable = (*object)(nil)
	_ traits.Zeroer   = (*object)(nil)
	_ fmt.Stringer    = (*object)(nil)
)

// read finds the members. The mutex is held.
func (o *mapping) read() {
	if o.members != nil {
		return
	}
	d, size := o.document, o.size()
	o.members = make([]member, size)
	at, node := o.at+1, o.node+1
	for i := range o.members {
		m := &o.members[i]
		m.name.start = skipTo(d.text, at)
		m.name.end = textEnd(d.text, m.name.start)
		m.slot, node = d.slot(skipTo(d.text, m.name.end), node)
		at = m.end
	}
	if size > few {
		o.places = make(map[string]int, size)
		for i := range o.members {
			o.places[d.part(o.members[i].name).Text()] = i
		}
	}
}

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
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.read()
	i := o.index(name)
	if i < 0 {
		return nil, false
	}
	return o.member(i), true
}

// member reads a member. The mutex is held, and the members have been read.
func (o *mapping) member(i int) ref.Val {
	m := &o.members[i]
	var of *Type
	if o.of != nil && m.read == nil {
		if name := o.document.part(m.name); bytes.IndexByte(name, '\\') < 0 {
			of = o.of.member(name[1 : len(name)-1])
		} else {
			of = o.of.member([]byte(name.Text()))
		}
	}
	return o.document.value(&m.slot, of)
}

// index returns that of the member with the name, or -1. The mutex is held, and the
// members have been read.
func (o *mapping) index(name string) int {
	if o.places != nil {
		i, found := o.places[name]
		if !found {
			return -1
		}
		return i
	}
	return slices.IndexFunc(o.members, func(m member) bool { return o.document.part(m.name).Is(name) })
}

// names returns the names of the members.
func (o *mapping) names() []ref.Val {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.keys == nil {
		o.read()
		o.keys = make([]ref.Val, len(o.members))
		for i := range o.keys {
			o.keys[i] = types.String(o.document.part(o.members[i].name).Text())
		}
	}
	return o.keys
}

// value returns the value of a member. The members have been read.
func (o *mapping) value(i int) ref.Val {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.member(i)
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
	return &iterator{size: len(names), at: func(i int) ref.Val { return names[i] }}
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
