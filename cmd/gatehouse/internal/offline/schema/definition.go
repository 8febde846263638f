package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkDefinition does what the API server does with a CustomResourceDefinition at its creation: fill in defaults and validate, the
// rules of its schemas and their costs included.
func checkDefinition(ctx context.Context, object map[string]any) (field.ErrorList, error) {
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &v1); err != nil {
		return nil, err
	}
	v1.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&v1)
	var definition apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &definition, nil); err != nil {
		return nil, err
	}
	errs := validation.ValidateCustomResourceDefinition(ctx, &definition)
	for _, err := range errs {
		// Where all versions have one schema, the internal type has it once.
		if rest, hoisted := strings.CutPrefix(err.Field, "spec.validation."); hoisted {
			err.Field = "spec.versions[0].schema." + rest
		}
	}
	return errs, nil
}

// DefinitionError returns why the API server rejects a CustomResourceDefinition, on one line.
func DefinitionError(ctx context.Context, object map[string]any) error {
	errs, err := checkDefinition(ctx, object)
	if err == nil && len(errs) > 0 {
		err = errors.New(diagnosticsOf(errs)[0].String())
	}
	if err != nil {
		return fmt.Errorf("the API server refuses its definition: %w", err)
	}
	return nil
}
