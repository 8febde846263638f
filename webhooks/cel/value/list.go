package value

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// sequence is what the arrays of untyped and typed JSON share.
type sequence struct {
	composite
	// whole is cel-go's own list of the elements, nil until it is asked for.
	whole traits.Lister
}

// list is a JSON array as a CEL list.
type list struct{ sequence }

var (
	_ traits.Lister   = (*list)(nil)
	_ traits.Foldable = (*list)(nil)
	_ traits.Zeroer   = (*list)(nil)
	_ fmt.Stringer    = (*list)(nil)
)

// element returns an element. The index is in range.
func (l *sequence) element(i int) ref.Val {
	p := &l.parts()[i]
	if l.of == nil {
		return l.read(p, nil)
	}
	return l.read(p, l.of.element)
}

func (l *list) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil {
		return types.ValOrErr(index, "%v", err)
	}
	if size := l.size(); i < 0 || i >= size {
		return types.NewErr("index '%d' out of range in list size '%d'", i, size)
	}
	return l.element(i)
}

func (l *list) Contains(value ref.Val) ref.Val {
	for i := range l.size() {
		if value.Equal(l.element(i)) == types.True {
			return types.True
		}
	}
	return types.False
}

func (l *sequence) Size() ref.Val { return types.Int(l.size()) }

func (l *list) IsZeroValue() bool { return l.size() == 0 }

func (l *sequence) Iterator() traits.Iterator {
	return &iterator{size: l.size(), elements: l}
}

func (l *sequence) Fold(f traits.Folder) {
	for i := range l.size() {
		if !f.FoldEntry(types.Int(i), l.element(i)) {
			return
		}
	}
}

func (l *list) Add(other ref.Val) ref.Val {
	lister, ok := other.(traits.Lister)
	switch {
	case !ok:
		return types.MaybeNoSuchOverloadErr(other)
	case l.size() == 0:
		return other
	case lister.Size() == types.IntZero:
		return l
	default:
		return l.copied().Add(other)
	}
}

// copied returns cel-go's own list of the elements, which can be the first part of a
// longer one. It is kept, so that adding to a list repeatedly costs as little as with
// cel-go's own.
func (l *sequence) copied() traits.Lister {
	if l.whole == nil {
		elements := make([]ref.Val, l.size())
		for i := range elements {
			elements[i] = l.element(i)
		}
		l.whole = types.NewRefValList(types.DefaultTypeAdapter, elements)
	}
	return l.whole
}

func (l *list) Equal(other ref.Val) ref.Val {
	if raw, ok := other.(*list); ok && bytes.Equal(l.text(), raw.text()) {
		return types.True
	}
	return l.equal(other)
}

// equal is Equal without comparing the text first.
func (l *list) equal(other ref.Val) ref.Val {
	lister, ok := other.(traits.Lister)
	if !ok || l.Size() != lister.Size() {
		return types.False
	}
	for i := range l.size() {
		if equal(l.element(i), lister.Get(types.Int(i))) == types.False {
			return types.False
		}
	}
	return types.True
}

func (*sequence) Type() ref.Type { return types.ListType }

// Value returns the decoded array, an []any of the caller's own.
func (l *sequence) Value() any { return l.decode() }

// native returns the array as cel-go's own list.
func (l *sequence) native() ref.Val { return types.DefaultTypeAdapter.NativeToValue(l.decode()) }

func (l *list) ConvertToNative(to reflect.Type) (any, error) {
	if isOneOf(l, to) {
		return l, nil
	}
	return l.native().ConvertToNative(to)
}

func (l *list) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	default:
		return types.NewErr("type conversion error from '%s' to '%s'", types.ListType, to)
	}
}

func (l *sequence) String() string { return fmt.Sprint(l.native()) }
