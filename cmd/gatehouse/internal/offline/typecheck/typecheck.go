// Package typecheck checks CEL expressions of policies against the schemas of the kinds that they match, without a cluster: schemas of
// Kubernetes' own kinds are made of its Go types, those of custom resources of CustomResourceDefinitions.
//
// The API server type-checks a ValidatingAdmissionPolicy in the same way, for its status. This package also knows subresources, lets
// fields be named as in objects ("namespace"), and takes values with several forms (times, bytes, IntOrString) for any type.
package typecheck

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
)

// Type is the type of a value in an object. It is immutable, and may contain itself.
type Type struct {
	// Name is the name of a structure, unique among all types: "core/v1.PodSpec".
	// It is "" for anything else.
	Name string
	// Fields are those of a structure, by their names in objects.
	Fields map[string]Field
	// Elem is the type of a list's elements, or of a map's values if Map is true.
	Elem *Type
	Map  bool
	// plain is the type of anything else.
	plain *types.Type
}

// Field is a field of a structure.
type Field struct {
	Type *Type
	// Optional reports whether an object may lack the field. It is false for a structure that is written even if it is empty.
	Optional bool
}

// FieldNames returns the names of the fields of a structure, sorted.
func (t *Type) FieldNames() []string {
	return slices.Sorted(maps.Keys(t.Fields))
}

func plain(t *types.Type) *Type { return &Type{plain: t} }

// cel returns the type as expressions see it.
func (t *Type) cel() *types.Type {
	switch {
	case t.Name != "":
		return types.NewObjectType(t.Name)
	case t.Elem != nil && t.Map:
		return types.NewMapType(types.StringType, t.Elem.cel())
	case t.Elem != nil:
		return types.NewListType(t.Elem.cel())
	default:
		return t.plain
	}
}

// provider adds structures to another provider of types.
type provider struct {
	types.Provider
	structures, sums map[string]*Type
	// variables are the types of a policy's variables.
	variables map[string]*types.Type
}

// variablesType is the name of the type of "variables".
const variablesType = "gatehouse.variables"

// structure returns a structure by its name, nil for none.
func (p provider) structure(name string) *Type {
	if sum := p.sums[name]; sum != nil {
		return sum
	}
	return p.structures[name]
}

// FindStructType finds a structure by its name.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if name == variablesType || p.structure(name) != nil {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames returns the fields of a structure.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if t := p.structure(name); t != nil {
		return t.FieldNames(), true
	}
	if name == variablesType {
		return slices.Sorted(maps.Keys(p.variables)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType returns the type of a field of a structure.
func (p provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if t := p.structure(name); t != nil {
		f, found := t.Fields[field]
		if !found {
			return nil, false
		}
		return &types.FieldType{Type: f.Type.cel()}, true
	}
	if name == variablesType {
		t, found := p.variables[field]
		return &types.FieldType{Type: t}, found
	}
	return p.Provider.FindStructFieldType(name, field)
}
