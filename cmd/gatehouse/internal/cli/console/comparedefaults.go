package console

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/manifests/crds"
)

// resourceSchemas returns the schemas of Gatehouse's kinds, by kind. They have the defaults that an API server fills in.
var resourceSchemas = sync.OnceValues(func() (map[string]*structuralschema.Structural, error) { //nolint:gochecknoglobals // a constant
	definitions, err := crds.All()
	if err != nil {
		return nil, err
	}
	out := map[string]*structuralschema.Structural{}
	for _, u := range definitions {
		var definition apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &definition); err != nil {
			return nil, fmt.Errorf("%s: %w", u.GetName(), err)
		}
		var props apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", u.GetName(), err)
		}
		if out[definition.Spec.Names.Kind], err = structuralschema.NewStructural(&props); err != nil {
			return nil, fmt.Errorf("%s: %w", u.GetName(), err)
		}
	}
	return out, nil
})

// asInCluster returns a document as a cluster would have it, without what the API server and kubectl add by themselves. So a document of a
// file and the object that was made of it are the same.
func (d document) asInCluster() (document, error) {
	schemas, err := resourceSchemas()
	if err != nil {
		return d, err
	}
	u := unstructured.Unstructured{Object: runtime.DeepCopyJSON(d.Fields)}
	u.SetCreationTimestamp(metav1.Time{})
	annotations := u.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if u.SetAnnotations(annotations); len(annotations) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	if schema := schemas[d.Kind]; schema != nil && d.Group == "gatehouse.dev" {
		defaulting.Default(u.Object, schema)
	}
	d.Fields, d.Text = u.Object, []byte(asYAML(u.Object))
	return d, nil
}
