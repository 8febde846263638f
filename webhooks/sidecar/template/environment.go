// Package template compiles and evaluates what the author of a sidecar profile
// writes: parameters with types, match conditions, and partial objects whose
// texts may hold CEL expressions as ${…}.
//
// Everything is compiled, checked against the type that it must result in, and
// limited in cost when a profile is loaded. An expression can give a text, a
// number, a boolean or nothing: whatever a pod says, it never adds a member, an
// element or another kind of structure to what the author has written.
//
// Parameters are one annotation each. Match conditions do not see them.
//
// # Placeholders
//
// A text that is exactly one placeholder takes the type of its expression: a
// port is "${params.port}". If the result is null, or an optional without a
// value, the member or the list element is left out. In a text that is more than
// one placeholder, results are written as JSON writes them, without quotes, and
// must not be null. $${ stands for ${.
//
// # Variables
//
// Expressions may name pod, with the fields of a core/v1 Pod; namespace, of which
// there are metadata.name, metadata.labels and metadata.annotations, never
// absent; params, with the profile's parameters; and presets, with its presets,
// each a map of texts. Functions are those that the API server gives to the
// expressions of policies.
package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// CompatibilityVersion is the Kubernetes version whose functions expressions may
// use. It is written down, and not taken from the library, so that a new library
// cannot change what an expression means without this line changing.
const CompatibilityVersion = "1.36"

// Environment is what the expressions of all profiles share. It is immutable and
// safe for concurrent use.
type Environment struct {
	// option is nil for none.
	option celbound.Option
	cel    *cel.Env
	// bounds are those of the expressions of all profiles.
	bounds  *celbound.Bounds
	base    types.Provider
	objects objectTypes
	checker *strict.Checker
}

// NewEnvironment builds an environment, which takes some milliseconds. An error
// means that the libraries of this build do not fit each other. The option is for all
// expressions, and may be nil.
func NewEnvironment(option celbound.Option) (*Environment, error) {
	objects := objectTypes{}
	texts := cel.MapType(cel.StringType, cel.StringType)
	objects.declare(namespaceType, map[string]*cel.Type{"metadata": cel.ObjectType(metadataType)})
	objects.declare(metadataType, map[string]*cel.Type{"name": cel.StringType, "labels": texts, "annotations": texts})
	seen := map[string]reflect.Type{namespaceType: nil, metadataType: nil, paramsType: nil, presetsType: nil}
	pod, err := objects.reflected(reflect.TypeFor[corev1.Pod](), seen)
	if err != nil {
		return nil, err
	}
	base := environment.MustBaseEnvSet(version.MustParseMajorMinor(CompatibilityVersion)).StoredExpressionsEnv()
	extended, err := base.Extend(
		cel.CustomTypeProvider(&provider{Provider: base.CELTypeProvider(), shared: objects}),
		cel.Variable("pod", pod),
		cel.Variable(NamespaceVariable, cel.ObjectType(namespaceType)),
	)
	if err != nil {
		return nil, fmt.Errorf("declare the variables of templates: %w", err)
	}
	bounds, err := celbound.New(extended)
	if err != nil {
		return nil, fmt.Errorf("bound the expressions of templates: %w", err)
	}
	return &Environment{option: option, cel: extended, bounds: bounds, base: base.CELTypeProvider(), objects: objects, checker: new(strict.Checker)}, nil
}

// The object types that are not those of a pod.
const (
	namespaceType = "Namespace"
	metadataType  = "NamespaceMetadata"
	paramsType    = "Params"
	presetsType   = "Presets"
)

// objectTypes are the fields of the object types that expressions know, by the
// type's name.
type objectTypes map[string]map[string]*types.FieldType

// reflected declares the CEL type that stands for a Go type as JSON writes it,
// and the object types below it. What decides itself how it is written is dyn.
func (o objectTypes) reflected(t reflect.Type, seen map[string]reflect.Type) (*cel.Type, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[metav1.Duration]():
		return cel.StringType, nil
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return cel.DynType, nil
	}
	switch t.Kind() { //nolint:exhaustive // all others are dyn
	case reflect.String:
		return cel.StringType, nil
	case reflect.Bool:
		return cel.BoolType, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return cel.IntType, nil // as JSON is read
	case reflect.Float32, reflect.Float64:
		return cel.DoubleType, nil
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return cel.StringType, nil // base64 text
		}
		element, err := o.reflected(t.Elem(), seen)
		return cel.ListType(element), err
	case reflect.Map:
		element, err := o.reflected(t.Elem(), seen)
		return cel.MapType(cel.StringType, element), err
	case reflect.Struct:
		return o.object(t, seen)
	default:
		return cel.DynType, nil
	}
}

func (o objectTypes) object(t reflect.Type, seen map[string]reflect.Type) (*cel.Type, error) {
	name := t.Name()
	if first, ok := seen[name]; ok {
		if first != t {
			return cel.DynType, fmt.Errorf("%s and %s cannot both be called %s", first, t, name)
		}
		return cel.ObjectType(name), nil
	}
	seen[name] = t
	fields := map[string]*types.FieldType{}
	o[name] = fields
	for field, below := range strict.Fields(t) {
		declared, err := o.reflected(below, seen)
		if err != nil {
			return cel.DynType, err
		}
		fields[field] = &types.FieldType{Type: declared}
	}
	return cel.ObjectType(name), nil
}

func (o objectTypes) declare(name string, fields map[string]*cel.Type) {
	declared := make(map[string]*types.FieldType, len(fields))
	for field, t := range fields {
		declared[field] = &types.FieldType{Type: t}
	}
	o[name] = declared
}

// provider tells CEL the object types: those of all profiles, and those of one.
type provider struct {
	types.Provider

	shared, own objectTypes

	// missed, which the mutex of the Scope protects, is the last type that had a field asked for not, by the field.
	missed map[string]string
}

func (p *provider) fields(name string) (map[string]*types.FieldType, bool) {
	if fields, ok := p.own[name]; ok {
		return fields, true
	}
	fields, ok := p.shared[name]
	return fields, ok
}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.fields(name); ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ok := p.fields(name); ok {
		return slices.Sorted(maps.Keys(fields)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ok := p.fields(name)
	if !ok {
		return p.Provider.FindStructFieldType(name, field)
	}
	found, ok := fields[field]
	if !ok {
		if p.missed == nil {
			p.missed = map[string]string{}
		}
		p.missed[field] = name
	}
	return found, ok
}

// owner returns the type that had the field not, with its fields.
func (p *provider) owner(field string) (name string, fields []string) {
	name = p.missed[field]
	fields, _ = p.FindStructFieldNames(name)
	return name, fields
}
