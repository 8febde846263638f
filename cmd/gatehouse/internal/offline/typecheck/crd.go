package typecheck

import (
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
)

// deepest bounds the depth of a schema: a value below has any type.
const deepest = 64

// customResources adds the kinds of a CustomResourceDefinition. Invalid parts of it have any type.
func (s *Schemas) customResources(crd *unstructured.Unstructured) {
	request.Versions(crd.Object, func(gvk schema.GroupVersionKind, plural string, version map[string]any) {
		custom, name := customTypes{schemas: s}, gvk.GroupVersion().String()+"."+gvk.Kind
		t := plain(types.DynType)
		schemaOf, _, _ := unstructured.NestedFieldNoCopy(version, "schema", "openAPIV3Schema")
		if root, found := schemaOf.(map[string]any); found {
			t = custom.of(root, name, 0)
		}
		s.add(gvk, plural, custom.asResource(t, name))
	})
}

// customTypes makes types of the schema of a custom resource.
type customTypes struct{ schemas *Schemas }

// asResource returns the type of an object that every object has the metadata of.
func (c customTypes) asResource(t *Type, name string) *Type {
	if t.Name == "" {
		return t
	}
	out := &Type{Name: name, Fields: map[string]Field{}}
	maps.Copy(out.Fields, t.Fields)
	out.Fields["apiVersion"] = Field{Type: plain(types.StringType)}
	out.Fields["kind"] = Field{Type: plain(types.StringType)}
	out.Fields["metadata"] = Field{Type: c.schemas.goTypes.of(reflect.TypeFor[metav1.ObjectMeta]())}
	c.schemas.goTypes.structures[name] = out
	return out
}

// of makes a type of an OpenAPI schema.
func (c customTypes) of(s map[string]any, name string, depth int) *Type {
	if depth > deepest || isTrue(s["x-kubernetes-preserve-unknown-fields"]) || isTrue(s["x-kubernetes-int-or-string"]) {
		return plain(types.DynType)
	}
	if isTrue(s["nullable"]) {
		// A null where CEL expects a number is no match for any function.
		return plain(types.DynType)
	}
	kind, _ := s["type"].(string)
	switch kind {
	case "boolean":
		return plain(types.BoolType)
	case "integer":
		return plain(types.IntType)
	case "number":
		return plain(types.DynType) // A whole number is read as an integer.
	case "string":
		if format, _ := s["format"].(string); slices.Contains([]string{"byte", "date", "date-time", "duration"}, format) {
			return plain(types.DynType)
		}
		return plain(types.StringType)
	case "array":
		if items, ok := s["items"].(map[string]any); ok {
			return &Type{Elem: c.of(items, name+".items", depth+1)}
		}
		return plain(types.DynType)
	case "object":
		return c.object(s, name, depth)
	default:
		return plain(types.DynType)
	}
}

func (c customTypes) object(s map[string]any, name string, depth int) *Type {
	properties, _ := s["properties"].(map[string]any)
	if values, ok := s["additionalProperties"].(map[string]any); ok && len(properties) == 0 {
		return &Type{Elem: c.of(values, name+".values", depth+1), Map: true}
	}
	if len(properties) == 0 || s["additionalProperties"] != nil && s["additionalProperties"] != false {
		return plain(types.DynType)
	}
	required, _ := s["required"].([]any)
	out := &Type{Name: name, Fields: make(map[string]Field, len(properties))}
	for field, p := range properties {
		property, _ := p.(map[string]any)
		_, defaulted := property["default"]
		out.Fields[field] = Field{
			Type:     c.of(property, name+"."+field, depth+1),
			Optional: !defaulted && !slices.Contains(required, any(field)),
		}
	}
	if isTrue(s["x-kubernetes-embedded-resource"]) {
		return c.asResource(out, name)
	}
	c.schemas.goTypes.structures[name] = out
	return out
}

func isTrue(v any) bool {
	b, _ := v.(bool)
	return b
}
