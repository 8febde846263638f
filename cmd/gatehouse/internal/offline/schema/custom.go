package schema

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// customResource is the schema of a version of a custom resource.
type customResource struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	// rules are those of x-kubernetes-validations, nil if there are none.
	rules *cel.Validator
	// hasStatus reports whether status is written by the subresource alone.
	hasStatus bool
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
	if err := defaulting.PruneDefaults(structural); err != nil {
		return nil, err
	}
	values, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return nil, err
	}
	hasStatus := v1.Subresources != nil && v1.Subresources.Status != nil
	return &customResource{structural, values, cel.NewValidator(structural, true, celconfig.PerCallLimit), hasStatus}, nil
}

// prepare does what the API server does with an object when it decodes it: fill in defaults, remove unknown fields and nulls of fields
// that are not nullable, decode the metadata of resources inside. It returns the paths of the unknown fields, and whether something
// of a resource inside has another type than it must have; then the object is not all prepared.
func (c *customResource) prepare(object map[string]any) (unknown []string, malformed bool) {
	defaulting.Default(object, c.structural)
	unknown = pruning.PruneWithOptions(object, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(object, c.structural)
	err, inMetadata := objectmeta.CoerceWithOptions(nil, object, c.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return unknown, true // which one is found depends on the order of a map: validation finds all
	}
	return append(unknown, inMetadata...), false
}

// resetStatus does what the API server does with the status of an object in a request that is not about the subresource: it stays as
// it was in old, which is nil at the creation.
func (c *customResource) resetStatus(object, old map[string]any) {
	if !c.hasStatus {
		return
	}
	delete(object, "status")
	if before, had := old["status"]; had {
		object["status"] = before
	}
}

// check does what the API server does with an object at its creation, or at an update of old: prepare and validate. An update tolerates
// what is wrong with fields that it does not change. wrongType reports whether a value has another type than its field.
func (c *customResource) check(ctx context.Context, object, old map[string]any) (found diagnostic.List, wrongType bool) {
	object = runtime.DeepCopyJSON(object)
	unknown, wrongType := c.prepare(object)
	for _, path := range unknown {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: strict.UnknownField})
	}
	var before any // an interface: a nil map would be an object
	var valueOptions []validation.ValidationOption
	var ruleOptions []cel.Option
	if old != nil {
		old = runtime.DeepCopyJSON(old)
		c.prepare(old)
	}
	c.resetStatus(object, old)
	if old != nil {
		correlated := common.NewCorrelatedObject(object, old, &model.Structural{Structural: c.structural})
		before, valueOptions, ruleOptions = old, append(valueOptions, validation.WithRatcheting(correlated)), append(ruleOptions, cel.WithRatcheting(correlated))
	}
	errs := validation.ValidateCustomResourceUpdate(nil, object, before, c.values, valueOptions...)
	errs = append(errs, objectmeta.Validate(ctx, nil, object, c.structural, false)...)
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, c.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, object)...)
	}
	if c.rules != nil && len(errs) == 0 {
		broken, _ := c.rules.Validate(ctx, nil, c.structural, object, before, celconfig.RuntimeCELCostBudget, ruleOptions...)
		errs = append(errs, broken...)
	}
	for _, err := range errs {
		wrongType = wrongType || err.Type == field.ErrorTypeTypeInvalid
	}
	wrong := diagnosticsOf(errs)
	for i := range wrong {
		for _, of := range []struct{ schema, want string }{{"integer", "an integer"}, {"number", "a number"}, {"boolean", "true or false"}} {
			_, _, value := find(object, strict.Steps(wrong[i].Field))
			if strings.Contains(wrong[i].Message, "must be of type "+of.schema+":") && !IsSecret(wrong[i].Field) && strict.IsWithoutQuotes(value, of.want) {
				wrong[i].Hint = strict.QuotesHint
			}
		}
	}
	return append(found, wrong...), wrongType
}

// diagnosticsOf returns errors of the API server's validation as diagnostics.
func diagnosticsOf(errs field.ErrorList) diagnostic.List {
	var found diagnostic.List
	for _, err := range errs {
		path := strings.TrimPrefix(strings.TrimPrefix(err.Field, "<nil>"), ".")
		switch err.BadValue.(type) {
		case nil, string, bool, int, int64, float64:
		default:
			err.BadValue = field.OmitValueType{} // it is long, and in the object
		}
		if IsSecret(path) {
			err.BadValue = field.OmitValueType{}
		}
		message, _, _ := strings.Cut(err.ErrorBody(), "\n") // behind it is a part of the value
		if d := (diagnostic.Diagnostic{Severity: diagnostic.Error, Field: path, Message: lowerFirst(message)}); !slices.Contains(found, d) {
			found = append(found, d)
		}
	}
	return found
}

// lowerFirst returns a message as messages of Gatehouse begin.
func lowerFirst(message string) string { return strings.ToLower(message[:1]) + message[1:] }
