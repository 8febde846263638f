package mutation

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
)

// CustomKinds are the schemas of CustomResourceDefinitions. A schema is compiled when it is first needed.
type CustomKinds struct {
	kinds map[schema.GroupVersionKind]func() (*customKind, error)
}

var _ Schemas = (*CustomKinds)(nil)

// NewCustomKinds returns the schemas of the definitions, which it keeps.
func NewCustomKinds(definitions []*unstructured.Unstructured) *CustomKinds {
	out := &CustomKinds{kinds: map[schema.GroupVersionKind]func() (*customKind, error){}}
	for _, definition := range definitions {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		for _, version := range versions {
			fields, _ := version.(map[string]any)
			if name, _ := fields["name"].(string); name != "" {
				gvk := schema.GroupVersionKind{Group: group, Version: name, Kind: kind}
				out.kinds[gvk] = sync.OnceValues(func() (*customKind, error) { return compileKind(gvk, fields) })
			}
		}
	}
	return out
}

// Has reports whether a kind is defined.
func (c *CustomKinds) Has(kind schema.GroupVersionKind) bool { return c.kinds[kind] != nil }

// Err returns why the schema of a kind cannot be used, and nil for a kind that is not defined.
func (c *CustomKinds) Err(kind schema.GroupVersionKind) error {
	_, err := c.kind(kind)
	return err
}

func (c *CustomKinds) kind(kind schema.GroupVersionKind) (*customKind, error) {
	compiled := c.kinds[kind]
	if compiled == nil {
		return nil, nil //nolint:nilnil // it is not defined
	}
	return compiled()
}

// TypeConverter returns what merges objects of a kind by its schema, and nil if no schema is known.
func (c *CustomKinds) TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	if known, err := c.kind(kind); err == nil && known != nil {
		return known
	}
	return nil
}

// Default fills in the defaults that an object's schema has, in place.
func (c *CustomKinds) Default(object *unstructured.Unstructured) {
	if known, err := c.kind(object.GroupVersionKind()); err == nil && known != nil {
		defaulting.Default(object.Object, known.structural)
	}
}

// customKind is the schema of a version of a custom resource.
type customKind struct {
	gvk        schema.GroupVersionKind
	structural *structuralschema.Structural
	merged     typed.ParseableType
}

// compileKind compiles a version of a definition.
func compileKind(gvk schema.GroupVersionKind, version map[string]any) (*customKind, error) {
	var v1 apiextensionsv1.CustomResourceDefinitionVersion
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(version, &v1); err != nil {
		return nil, err
	}
	if v1.Schema == nil || v1.Schema.OpenAPIV3Schema == nil {
		return nil, errors.New("its definition has no schema.openAPIV3Schema")
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1.Schema.OpenAPIV3Schema, &props, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&props)
	if err != nil {
		return nil, err
	}
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, err
	}
	const name = "custom"
	object := structural.ToKubeOpenAPI()
	addObjectFields(object)
	addEmbeddedFields(object)
	types, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{name: object}, false)
	if err != nil {
		return nil, err
	}
	shared, err := metadataTypes()
	if err != nil {
		return nil, err
	}
	types.Types = append(types.Types, shared...)
	return &customKind{gvk, structural, (&typed.Parser{Schema: smdschema.Schema{Types: types.Types}}).Type(name)}, nil
}

// metadataType is the name of the type of metadata.
const metadataType = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// addObjectFields adds the fields that every object has, as the API server publishes them.
func addObjectFields(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", *spec.RefSchema("#/components/schemas/" + metadataType))
}

// addEmbeddedFields is addObjectFields for resources inside.
func addEmbeddedFields(s *spec.Schema) {
	if s == nil {
		return
	}
	for name := range s.Properties {
		property := s.Properties[name]
		addEmbeddedFields(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		addEmbeddedFields(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		addEmbeddedFields(s.AdditionalProperties.Schema)
	}
	if embedded, ok := s.Extensions.GetBool("x-kubernetes-embedded-resource"); ok && embedded {
		addObjectFields(s)
	}
}

// metadataTypes returns the types of metadata: those that Kubernetes' own kinds have.
func metadataTypes() ([]smdschema.TypeDef, error) {
	stub := &unstructured.Unstructured{}
	stub.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	value, err := builtin.TypeConverter().ObjectToTyped(stub)
	if err != nil {
		return nil, err
	}
	var out []smdschema.TypeDef
	for _, t := range value.Schema().Types {
		if strings.HasPrefix(t.Name, "io.k8s.apimachinery.pkg.apis.meta.v1.") {
			out = append(out, t)
		}
	}
	return out, nil
}

// ObjectToTyped returns an object with its schema.
func (k *customKind) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	custom, ok := object.(*unstructured.Unstructured)
	if !ok || custom.GroupVersionKind() != k.gvk {
		return nil, fmt.Errorf("no corresponding type for %v", object.GetObjectKind().GroupVersionKind())
	}
	return k.merged.FromUnstructured(custom.Object, options...)
}

// TypedToObject returns the object of a value.
func (*customKind) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	object, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("failed to convert value to unstructured for type %T", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: object}, nil
}
