package template

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// object is a value of one of the object types that are not in a pod: what its
// fields hold is found out when they are asked for.
type object struct {
	name string
	in   *Input
}

// field returns the value of a field: nil for one that there is not, and an error for
// one whose value is not known.
func (o *object) field(name string) ref.Val {
	switch o.name {
	case paramsType:
		return o.in.parameter(name)
	case presetsType:
		return o.in.preset(name)
	case namespaceType:
		if name == "metadata" {
			return &o.in.variables.metadata
		}
		return nil
	case metadataType:
		return o.in.namespaceMetadata(name)
	default:
		return nil
	}
}

var _ interface {
	traits.Indexer
	traits.FieldTester
} = (*object)(nil)

// Get implements traits.Indexer.
func (o *object) Get(index ref.Val) ref.Val {
	name, ok := index.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(index)
	}
	if v := o.field(string(name)); v != nil {
		return v
	}
	return types.NewErr("no such field: %s", string(name))
}

// IsSet implements traits.FieldTester.
func (o *object) IsSet(field ref.Val) ref.Val {
	name, ok := field.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(field)
	}
	v := o.field(string(name))
	if types.IsError(v) {
		return v
	}
	return types.Bool(v != nil)
}

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("a %s is no %s", o.name, t)
}

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	if t == types.TypeType {
		return types.NewObjectType(o.name)
	}
	return types.NewErr("a %s is no %s", o.name, t.TypeName())
}

// Equal implements ref.Val. There is one of each.
func (o *object) Equal(other ref.Val) ref.Val {
	same, ok := other.(*object)
	return types.Bool(ok && same.name == o.name)
}

// Type implements ref.Val.
func (o *object) Type() ref.Type {
	return types.NewObjectType(o.name, traits.IndexerType|traits.FieldTesterType)
}

// Value implements ref.Val.
func (o *object) Value() any { return o }
