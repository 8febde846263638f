package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// matchConditions evaluates the match conditions of a policy. It returns the name of one that is not met, or an error.
func (r *decider) matchConditions(i *invocation, v *version) (condition string, err error) {
	conditions := i.policy.conditions
	if len(conditions) == 0 {
		return "", nil
	}
	v.evaluating(true)
	r.input.Reset(&source{decider: r, version: v, resource: r.Requested, matching: true}, i.param.Value(), nil)
	phase := r.input.Phase(celconfig.RuntimeCELCostBudgetMatchConditions)
	defer func() { r.spent += r.input.Spent }()
	var errs []error
	failed := ""
	for k := range conditions {
		value, _, err := evaluate(r.context, phase, conditions[k].Program)
		var failure *expression.EvaluationError
		switch {
		case err != nil && !errors.As(err, &failure):
			return conditions[k].Name, err
		case err != nil:
			errs, failed = append(errs, asUpstream(failure)), conditions[k].Name
		case value == types.False && condition == "":
			condition = conditions[k].Name
		}
	}
	if condition != "" || len(errs) == 0 {
		return condition, nil
	}
	return failed, utilerrors.NewAggregate(errs)
}

// evaluate evaluates an expression. A panic is its error.
func evaluate(ctx context.Context, phase *expression.Phase, program *expression.Program) (value ref.Val, cost int64, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = &expression.EvaluationError{Expression: program.Text(), Cause: fmt.Errorf("internal error: %v", panicked)}
		}
	}()
	return phase.Eval(ctx, program)
}

// asUpstream returns the error that upstream makes of an expression that fails.
func asUpstream(failure *expression.EvaluationError) error {
	return &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: failure.Error()}
}

// maxOperations is how many operations a JSON patch may have, as one that a client sends.
const maxOperations = 10_000

// patched returns the object as a mutation changes it. It follows upstream's
// k8s.io/apiserver/pkg/admission/plugin/policy/mutating.(*dispatcher).dispatchOne.
func (r *decider) patched(i *invocation, v *version, m *mutationProgram) (out runtime.Object, cost int64, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			out, err = nil, fmt.Errorf("internal error: %v", panicked)
		}
	}()
	converter := r.converter(v.VersionedKind)
	if converter == nil {
		if err := r.set.lookups.Schemas.Err(v.VersionedKind); err != nil {
			return nil, 0, fmt.Errorf("no schema for %s: %w", v.VersionedKind, err)
		}
		return nil, 0, apierrors.NewServiceUnavailable(fmt.Sprintf("Resource kind %s not found. There can be a delay between when "+
			"CustomResourceDefinitions are created and when they are available.", v.VersionedKind))
	}
	v.evaluating(false)
	r.input.Reset(&source{decider: r, version: v, resource: i.resource}, i.param.Value(), i.policy.variables)
	phase := r.input.Phase(celconfig.RuntimeCELCostBudget)
	result := result{}
	result.value, cost, result.end = evaluate(r.context, phase, m.Program)
	r.spent += r.input.Spent
	if failure := (*expression.EvaluationError)(nil); errors.As(result.end, &failure) {
		result.failure, result.end = asUpstream(failure), nil
	}
	patcher := patch.NewApplyConfigurationPatcher(&result)
	if m.kind == admissionregistrationv1.PatchTypeJSONPatch {
		patcher = patch.NewJSONPatcher(&result)
		if err := r.checkOperations(result.value, v.object()); err != nil {
			return nil, cost, err
		}
	}
	o := &interfaces{ObjectInterfaces: admission.NewObjectInterfacesFromScheme(scheme()), schemas: r.set.lookups.Schemas}
	isTyped := scheme().Recognizes(v.VersionedKind)
	part, isPart := fieldsOf(result.value)
	if isPart = isPart && isTyped; !isPart || !part.areMetadata() {
		r.complete()
	}
	if m.kind == admissionregistrationv1.PatchTypeApplyConfiguration && isPart && !conforms(v.object(), r.isPartial) {
		r.complete()
		isPart = conforms(v.object(), false)
	}
	before := v.object()
	if isPart {
		before = part.of(before)
	}
	attributes := v.VersionedAttributes
	attributes.VersionedObject.Set(before)
	out, err = patcher.Patch(r.context, patch.Request{
		MatchedResource: i.resource, VersionedAttributes: &attributes, ObjectInterfaces: o, TypeConverter: converter,
	}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, cost, err
	}
	if custom, ok := out.(*unstructured.Unstructured); ok && !isTyped {
		out = custom.DeepCopy() // it shares memory with the object before
	} else {
		if out, err = o.GetObjectConvertor().ConvertToVersion(out, v.VersionedKind.GroupVersion()); err != nil {
			return nil, cost, err
		}
		if reflect.TypeOf(out) != reflect.TypeOf(before) {
			return nil, cost, apierrors.NewInternalError(fmt.Errorf("failed to convert object: the policy makes a %T of a %T", out, before))
		}
		if isPart {
			changed := reflect.ValueOf(out).Elem()
			if r.isPartial {
				out = metadataOf(v.object()) // it is not filled in, and may share memory
			} else {
				out = v.object().DeepCopyObject()
			}
			part.copyTo(reflect.ValueOf(out).Elem(), changed)
		}
		out.GetObjectKind().SetGroupVersionKind(v.VersionedKind)
	}
	if r.isPartial {
		const perByte = 50
		if binary, ok := out.(interface{ Size() int }); ok && perByte*binary.Size()+len(r.Object.Raw) < r.set.maxObject {
			return out, cost, nil
		}
		r.complete()
		out = r.completed(out)
	}
	o.Default(out)
	return out, cost, r.checkSize(out)
}

// checkSize returns an error if an object is too large.
func (r *decider) checkSize(object runtime.Object) error {
	most := max(r.set.maxObject, len(r.Object.Raw))
	// JSON takes less than this of a byte of protobuf, which is quick to measure: the names of fields are in it.
	const perByte = 50
	if binary, ok := object.(interface{ Size() int }); ok && binary.Size() < most/perByte {
		return nil
	}
	text, err := json.Marshal(object)
	if err == nil && len(text) > most {
		err = fmt.Errorf("the object would have %d bytes, allowed are %d", len(text), most)
	}
	return err
}

// checkOperations returns an error if a JSON patch has too many operations, or could make the object larger than it may be
// by copying: each copy can double it.
func (r *decider) checkOperations(value ref.Val, object runtime.Object) error {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil
	}
	if n, ok := list.Size().(types.Int); ok && n > maxOperations {
		return fmt.Errorf("the patch has %d operations, allowed are %d", n, maxOperations)
	}
	size := 0
	for it := list.Iterator(); it.HasNext() == types.True; {
		operation, ok := it.Next().(*mutation.JSONPatchVal)
		if !ok || operation.Op != "copy" {
			continue
		}
		if size == 0 {
			text, err := json.Marshal(object)
			if err != nil {
				return err
			}
			size = len(text)
		}
		if size *= 2; size > 16*r.set.maxObject {
			return errors.New("the patch copies too often: each copy can double the object")
		}
	}
	return nil
}

// result is what an expression came to, as upstream's patchers ask for it.
type result struct {
	value        ref.Val
	failure, end error
}

var _ plugincel.MutatingEvaluator = (*result)(nil)

func (e *result) ForInput(
	context.Context, *admission.VersionedAttributes, *admissionv1.AdmissionRequest, plugincel.OptionalVariableBindings, *corev1.Namespace, int64,
) (plugincel.EvaluationResult, int64, error) {
	return plugincel.EvaluationResult{EvalResult: e.value, Error: e.failure}, 0, e.end
}

func (*result) CompilationErrors() []error { return nil }

// source gives expressions their values.
type source struct {
	decider  *decider
	version  *version
	resource schema.GroupVersionResource
	// matching is true for match conditions, which see no namespace.
	matching bool
}

var _ expression.Source = (*source)(nil)

// valueOf returns the value of an object.
func valueOf(object *admission.LazyObject, as form, seen *ref.Val, complete func() runtime.Object) ref.Val {
	if o := object.Object(); as == asJSON && o != nil && isStruct(reflect.TypeOf(o).Elem()) {
		if *seen == nil {
			*seen = &jsonView{object: o, complete: complete, self: reflect.ValueOf(o).Elem()}
		}
		return *seen
	}
	if complete != nil {
		complete()
	}
	object.UseSchemalessTypeRef = as == asTyped //nolint:staticcheck // upstream decides by it
	value, err := object.CELValue()
	switch {
	case err != nil:
		return types.WrapErr(err)
	case value == nil:
		return types.NullValue
	default:
		return value
	}
}

func (s *source) ObjectValue() ref.Val {
	var complete func() runtime.Object
	if s.decider.isPartial {
		complete = func() runtime.Object {
			s.decider.complete()
			return s.decider.current.object()
		}
	}
	return valueOf(&s.version.VersionedObject, s.version.form, &s.version.seen, complete)
}

func (s *source) OldObjectValue() ref.Val {
	if err := s.decider.readOld(s.version); err != nil {
		return types.WrapErr(err)
	}
	return valueOf(&s.version.VersionedOldObject, s.version.oldForm, &s.version.oldSeen, nil)
}

func (s *source) RequestValue() ref.Val {
	return common.SchemalessTypedToVal(plugincel.CreateAdmissionRequest(s.decider.Attributes(),
		metav1.GroupVersionResource(s.resource), metav1.GroupVersionKind(s.version.VersionedKind)))
}

func (s *source) NamespaceValue() ref.Val {
	if s.matching {
		return types.NullValue
	}
	namespace, _ := s.decider.NamespaceObject()
	return common.SchemalessTypedToVal(namespace)
}

func (s *source) AuthorizerValue() ref.Val {
	if asked := s.decider.authorizer(); asked != nil {
		return library.NewAuthorizerVal(s.decider.Attributes().GetUserInfo(), asked)
	}
	return nil
}

func (s *source) ResourceAuthorizerValue() ref.Val {
	if asked := s.decider.authorizer(); asked != nil {
		return library.NewResourceAuthorizerVal(s.decider.Attributes().GetUserInfo(), asked, s.decider.Attributes())
	}
	return nil
}

// authorizer returns the authorizer of the set, whose answers are cached for the review,
// and nil if there is none.
func (r *decider) authorizer() authorizer.UnconditionalAuthorizer {
	if r.caching == nil && r.set.lookups.Authorizer != nil {
		r.caching = expression.CachingAuthorizer(r.context, r.set.lookups.Authorizer)
	}
	return r.caching
}
