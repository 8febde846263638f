package schema

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// customResource is the schema of a version of a custom resource.
type customResource struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	// rules are those of x-kubernetes-validations, nil if there are none.
	rules *cel.Validator
}

// compile returns the schema of a version of a CustomResourceDefinition.
func compile(version map[string]any) (*customResource, error) {
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
	if err := structuralschema.ValidateStructural(field.NewPath("schema"), structural).ToAggregate(); err != nil {
		return nil, err
	}
	values, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return nil, err
	}
	return &customResource{structural, values, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// check does what the API server does with an object at its creation: find unknown
// fields, fill in defaults, validate. wrongType reports whether a value has another type than its field.
func (c *customResource) check(ctx context.Context, object map[string]any) (found diagnostic.List, wrongType bool) {
	object = runtime.DeepCopyJSON(object)
	for _, path := range pruning.PruneWithOptions(object, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: strict.UnknownField})
	}
	defaulting.Default(object, c.structural)
	errs := validation.ValidateCustomResource(nil, object, c.values)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, object)...)
	if c.rules != nil && len(errs) == 0 {
		broken, _ := c.rules.Validate(ctx, nil, c.structural, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
	}
	for _, err := range errs {
		path := strings.TrimPrefix(strings.TrimPrefix(err.Field, "<nil>"), ".")
		wrongType = wrongType || err.Type == field.ErrorTypeTypeInvalid
		if IsSecret(path) {
			err.BadValue = field.OmitValueType{}
		}
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: lowerFirst(err.ErrorBody())})
	}
	return found, wrongType
}

// lowerFirst returns a message as messages of Gatehouse begin.
func lowerFirst(message string) string { return strings.ToLower(message[:1]) + message[1:] }
