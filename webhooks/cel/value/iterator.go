package value

import (
	"errors"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// iterator iterates over the elements of a list, or over the names of an object, which have been read. It belongs
// to one goroutine. It is a value only because traits.Iterator requires one: no expression can use it.
type iterator struct {
	next, size int
	elements   *sequence
	names      []ref.Val
}

var _ traits.Iterator = (*iterator)(nil)

func (it *iterator) HasNext() ref.Val { return types.Bool(it.next < it.size) }

func (it *iterator) Next() ref.Val {
	if it.next == it.size {
		return nil
	}
	it.next++
	if it.elements != nil {
		return it.elements.element(it.next - 1)
	}
	return it.names[it.next-1]
}

func (*iterator) ConvertToNative(reflect.Type) (any, error) {
	return nil, errors.New("an iterator has no native form")
}

func (*iterator) ConvertToType(ref.Type) ref.Val { return types.NoSuchOverloadErr() }

func (*iterator) Equal(ref.Val) ref.Val { return types.NoSuchOverloadErr() }

func (*iterator) Type() ref.Type { return types.IteratorType }

func (*iterator) Value() any { return nil }
