package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// customResource is the schema of a version of a custom resource.
type customResource struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	// rules are those of x-kubernetes-validations, nil if there are none.
	rules *cel.Validator
}

// define adds the kinds of a CustomResourceDefinition.
func (s *Schemas) define(object *unstructured.Unstructured) error {
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &v1); err != nil {
		return err
	}
	for i := range v1.Spec.Versions {
		version := &v1.Spec.Versions[i]
		if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
			return fmt.Errorf("spec.versions[%d].schema.openAPIV3Schema: required", i)
		}
		var props apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &props, nil); err != nil {
			return err
		}
		structural, err := structuralschema.NewStructural(&props)
		if err == nil {
			err = errors.Join(structuralschema.ValidateStructural(field.NewPath("spec", "versions").Index(i).Child("schema"), structural).ToAggregate())
		}
		if err != nil {
			return err
		}
		values, _, err := validation.NewSchemaValidator(&props)
		if err != nil {
			return err
		}
		gvk := schema.GroupVersionKind{Group: v1.Spec.Group, Version: version.Name, Kind: v1.Spec.Names.Kind}
		s.custom[gvk] = &customResource{structural, values, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	}
	return nil
}

// check does what the API server does with an object at its creation: find unknown
// fields, fill in defaults, validate.
func (c *customResource) check(ctx context.Context, object map[string]any) diagnostic.List {
	object = runtime.DeepCopyJSON(object)
	var found diagnostic.List
	for _, path := range pruning.PruneWithOptions(object, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: "unknown field"})
	}
	defaulting.Default(object, c.structural)
	errs := validation.ValidateCustomResource(nil, object, c.values)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, object)...)
	if c.rules != nil && len(errs) == 0 {
		broken, _ := c.rules.Validate(ctx, nil, c.structural, object, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
	}
	for _, err := range errs {
		path := strings.TrimPrefix(err.Field, "<nil>")
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: strings.TrimPrefix(path, "."), Message: lowerFirst(err.ErrorBody())})
	}
	return found
}

// lowerFirst returns a message as messages of Gatehouse begin.
func lowerFirst(message string) string { return strings.ToLower(message[:1]) + message[1:] }
