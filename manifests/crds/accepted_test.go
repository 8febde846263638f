package crds_test

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestDefinitionsAreValid validates the definitions as the API server does: their CEL rules compile and cost less than the API
// server allows.
func TestDefinitionsAreValid(t *testing.T) {
	t.Parallel()
	for _, definition := range all(t) {
		var external apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(definition.Object, &external); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&external)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
		external.Status.StoredVersions = []string{external.Spec.Versions[0].Name}
		var internal apiextensions.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&external, &internal, nil); err != nil {
			t.Fatal(err)
		}
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), &internal) {
			t.Errorf("%s: %v", definition.GetName(), err)
		}
	}
}
