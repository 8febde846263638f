package mutation_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	upstreammatching "k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/defaults"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// documents are policies, bindings, and the objects that they read, in YAML.
func documents(t testing.TB, text string) mutation.Spec {
	t.Helper()
	var spec mutation.Spec
	all := objects{}
	for i, document := range strings.Split(text, "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		var head metav1.TypeMeta
		must(t, yaml.Unmarshal([]byte(document), &head))
		source := fmt.Sprintf("p.yaml#%d", i+1)
		switch head.Kind {
		case "MutatingAdmissionPolicy":
			p := mutation.Policy{Source: source}
			must(t, yaml.UnmarshalStrict([]byte(document), &p.MutatingAdmissionPolicy))
			spec.Policies = append(spec.Policies, p)
		case "MutatingAdmissionPolicyBinding":
			b := mutation.Binding{Source: source}
			must(t, yaml.UnmarshalStrict([]byte(document), &b.MutatingAdmissionPolicyBinding))
			spec.Bindings = append(spec.Bindings, b)
		default:
			object := &unstructured.Unstructured{}
			must(t, yaml.Unmarshal([]byte(document), &object.Object))
			all = append(all, object)
		}
	}
	spec.Objects, spec.Authorizer, spec.Schemas = all, theAuthorizer{}, customKinds()
	return spec
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// objects are the namespaces and params of a test.
type objects []*unstructured.Unstructured

func (o objects) Namespace(name string) (*corev1.Namespace, bool) {
	found, _ := o.Get(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "", name)
	out := &corev1.Namespace{}
	return out, found != nil && runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, out) == nil
}

func (objects) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	return kind.Kind != "Namespace", nil
}

func (o objects) Get(kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	list, _ := o.List(kind, namespace, labels.Everything())
	for _, object := range list {
		if object.GetName() == name {
			return object, nil
		}
	}
	return nil, nil
}

func (o objects) List(kind schema.GroupVersionKind, namespace string, selector labels.Selector) (out []*unstructured.Unstructured, _ error) {
	for _, object := range o {
		if object.GroupVersionKind() == kind && object.GetNamespace() == namespace && selector.Matches(labels.Set(object.GetLabels())) {
			out = append(out, object)
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// theAuthorizer allows what is about secrets.
type theAuthorizer struct{}

func (theAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetResource() == "secrets" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// widgets is the definition of a custom resource.
const widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 3}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, weight: {type: integer, default: 1}, tags: {type: array, items: {type: string}}}}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              fixed: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: string}}
              any: {type: object, x-kubernetes-preserve-unknown-fields: true}
              port: {x-kubernetes-int-or-string: true}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
`

func customKinds() *mutation.CustomKinds {
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(widgets), &definition.Object); err != nil {
		panic(err)
	}
	return mutation.NewCustomKinds([]*unstructured.Unstructured{definition})
}

// upstreamWidgets merges custom resources by what the API server publishes of their definition.
func upstreamWidgets() managedfields.TypeConverter {
	var definition apiextensionsv1.CustomResourceDefinition
	err := yaml.Unmarshal([]byte(widgets), &definition)
	if err != nil {
		panic(err)
	}
	document, err := builder.BuildOpenAPIV3(&definition, "v1", builder.Options{})
	if err != nil {
		panic(err)
	}
	converter, err := managedfields.NewTypeConverter(document.Components.Schemas, false)
	if err != nil {
		panic(err)
	}
	return converter
}

// request returns the request for an object in YAML.
func request(t testing.TB, object, old string, change func(*admission.Request)) admission.Request {
	t.Helper()
	read := func(text string) (raw []byte, u unstructured.Unstructured) {
		if text == "" {
			return nil, u
		}
		raw, err := yaml.YAMLToJSON([]byte(text))
		must(t, err)
		must(t, json.Unmarshal(raw, &u.Object))
		object := decode(t, raw, u.GroupVersionKind())
		fill(object) // as the API server does before
		raw, err = json.Marshal(object)
		must(t, err)
		return raw, u
	}
	raw, u := read(object)
	kind := u.GroupVersionKind()
	resource := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
	out := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(kind), Resource: metav1.GroupVersionResource(resource), Name: u.GetName(), Namespace: u.GetNamespace(),
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}, DryRun: new(false),
	}}
	out.UserInfo.Username, out.UserInfo.Groups = "alice", []string{"dev"}
	if old != "" {
		out.OldObject.Raw, _ = read(old)
		out.Operation = admissionv1.Update
	}
	if change != nil {
		change(&out)
	}
	return out
}

// outcome is an answer in the terms that upstream and we share.
type outcome struct {
	Code    int32               `json:"code,omitempty"`
	Reason  metav1.StatusReason `json:"reason,omitempty"`
	Message string              `json:"message,omitempty"`
	Causes  []string            `json:"causes,omitempty"`
	Object  any                 `json:"object,omitempty"`
}

// undeclared are the fields that a schema has not. structured-merge-diff ends at the first of an object, and has an object's fields in
// the order of a Go map.
var undeclared = regexp.MustCompile(`(?s)(failed to convert patch object to typed object: ).*field not declared in schema`)

// missingParams is what we say besides upstream's text: which params do not exist.
var missingParams = regexp.MustCompile("(`Deny` parameterNotFoundAction): there is no [^\\n]*? \\(hint: create it\\)")

func refused(status metav1.Status) outcome {
	told := func(message string) string {
		message = missingParams.ReplaceAllString(message, "$1")
		return undeclared.ReplaceAllString(message, "${1}field not declared in schema")
	}
	out := outcome{Code: status.Code, Reason: status.Reason, Message: told(status.Message)}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			out.Causes = append(out.Causes, told(cause.Message))
		}
	}
	return out
}

// ours returns our answer, after checking that the patch gives the object.
func ours(t testing.TB, d *mutation.Decision, in admission.Request) outcome {
	t.Helper()
	must(t, d.Err)
	if d.Refusal != nil {
		return refused(*d.Refusal)
	}
	object := in.Object.Raw
	if d.Object != nil {
		operations, err := json.Marshal(d.Patch)
		must(t, err)
		decoded, err := jsonpatch.DecodePatch(operations)
		must(t, err)
		patched, err := decoded.Apply(object)
		if err != nil || !jsonpatch.Equal(patched, d.Object) {
			t.Fatalf("the patch %s of %s gives %s, not %s (%v)", operations, object, patched, d.Object, err)
		}
		object = d.Object
	}
	return outcome{Object: asTree(t, decode(t, object, schema.GroupVersionKind(in.Kind)))}
}

// decode reads an object as the API server has it.
func decode(t testing.TB, raw []byte, kind schema.GroupVersionKind) runtime.Object {
	t.Helper()
	object, err := scheme.Scheme.New(kind)
	if err != nil {
		object = &unstructured.Unstructured{}
	}
	must(t, json.Unmarshal(raw, object))
	object.GetObjectKind().SetGroupVersionKind(kind)
	return object
}

// fill fills in the defaults of an object.
func fill(object runtime.Object) {
	if custom, ok := object.(*unstructured.Unstructured); ok {
		customKinds().Default(custom)
		return
	}
	defaults.Default(object)
}

// asTree returns an object with its defaults as JSON decodes it.
func asTree(t testing.TB, object runtime.Object) any {
	t.Helper()
	fill(object)
	text, err := json.Marshal(object)
	must(t, err)
	var out any
	must(t, json.Unmarshal(text, &out))
	return out
}

// upstream is the API server's own machinery over the same documents, with policies in the order of their names.
type upstream struct {
	dispatcher generic.Dispatcher[mutating.PolicyHook]
	hooks      []mutating.PolicyHook
}

// converters has the schemas of the API server from its OpenAPI documents, as far as client-go has recent ones.
var converters = sync.OnceValue(func() patch.TypeConverterManager {
	documented := patch.NewTypeConverterManager(nil, openapitest.NewEmbeddedFileClient())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	documented.Run(ctx) // reads the list of documents once
	return manager{documented, applyconfigurations.NewTypeConverter(scheme.Scheme), upstreamWidgets()}
})

type manager struct {
	patch.TypeConverterManager
	others, custom managedfields.TypeConverter
}

func (m manager) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	switch {
	case slices.Contains([]string{"v1", "apps/v1"}, kind.GroupVersion().String()):
		return m.TypeConverterManager.GetTypeConverter(kind)
	case scheme.Scheme.IsVersionRegistered(kind.GroupVersion()):
		return m.others
	case kind.Kind == "Widget":
		return m.custom
	default:
		return nil
	}
}

func newUpstream(t testing.TB, spec mutation.Spec) *upstream {
	t.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	params := map[schema.GroupVersionKind]cache.Indexer{}
	paramsOf := func(kind schema.GroupVersionKind) cache.Indexer {
		if params[kind] == nil {
			params[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		}
		return params[kind]
	}
	for _, object := range spec.Objects.(objects) {
		typed, err := scheme.Scheme.New(object.GroupVersionKind())
		must(t, err)
		must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed))
		typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as informers have it
		must(t, paramsOf(object.GroupVersionKind()).Add(typed))
		if object.GetKind() == "Namespace" {
			must(t, namespaces.Add(typed))
		}
	}
	out := &upstream{dispatcher: mutating.NewDispatcher(theAuthorizer{}, upstreammatching.NewMatcher(corelisters.NewNamespaceLister(namespaces), nil), converters())}
	for i := range spec.Policies {
		p := spec.Policies[i].DeepCopy()
		defaults.Default(p)
		hook := mutating.PolicyHook{Policy: p, Evaluator: compileUpstream(p)}
		for k := range spec.Bindings {
			if b := spec.Bindings[k].DeepCopy(); b.Spec.PolicyName == p.Name {
				defaults.Default(b)
				hook.Bindings = append(hook.Bindings, b)
			}
		}
		slices.SortFunc(hook.Bindings, func(a, b *mutating.PolicyBinding) int { return strings.Compare(a.Name, b.Name) })
		if kind := p.Spec.ParamKind; kind != nil {
			gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
			hook.ParamInformer = informer{lister: sorted{GenericLister: cache.NewGenericLister(paramsOf(gvk), schema.GroupResource{Resource: "params"})}}
			hook.ParamScope = meta.RESTScopeNamespace
		}
		if len(hook.Bindings) > 0 {
			out.hooks = append(out.hooks, hook)
		}
	}
	slices.SortFunc(out.hooks, func(a, b mutating.PolicyHook) int { return strings.Compare(a.Policy.Name, b.Policy.Name) })
	return out
}

// informer is an informer of which only the store is there.
type informer struct {
	cache.SharedIndexInformer
	lister cache.GenericLister
}

func (i informer) Informer() cache.SharedIndexInformer { return i }
func (i informer) Lister() cache.GenericLister         { return i.lister }
func (i informer) HasSynced() bool                     { return true }

// sorted lists by name: upstream lists params as the store's map has them.
type sorted struct {
	cache.GenericLister
	namespaced cache.GenericNamespaceLister
}

func (s sorted) ByNamespace(name string) cache.GenericNamespaceLister {
	return sorted{namespaced: s.GenericLister.ByNamespace(name)}
}

func (s sorted) List(selector labels.Selector) ([]runtime.Object, error) {
	out, err := s.namespaced.List(selector)
	slices.SortFunc(out, func(a, b runtime.Object) int {
		return cmp.Compare(a.(metav1.Object).GetName(), b.(metav1.Object).GetName())
	})
	return out, err
}

func (s sorted) Get(name string) (runtime.Object, error) { return s.namespaced.Get(name) }

// compileUpstream is upstream's compilePolicy, which is not exported.
func compileUpstream(p *mutating.Policy) mutating.PolicyEvaluator {
	declared := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		panic(err)
	}
	for _, v := range p.Spec.Variables {
		compiler.CompileAndStoreVariable(&mutating.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.StoredExpressions)
	}
	out := mutating.PolicyEvaluator{CompositedCompiler: compiler}
	var conditions []plugincel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	if len(conditions) > 0 {
		out.Matcher = matchconditions.NewMatcher(compiler.CompileCondition(conditions, declared, environment.StoredExpressions), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	declared.HasPatchTypes = true
	for _, m := range p.Spec.Mutations {
		if m.PatchType == admissionregistrationv1.PatchTypeJSONPatch {
			out.Mutators = append(out.Mutators, patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, declared, environment.StoredExpressions)))
		} else {
			out.Mutators = append(out.Mutators, patch.NewApplyConfigurationPatcher(compiler.CompileMutatingEvaluator(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}, declared, environment.StoredExpressions)))
		}
	}
	return out
}

// interfaces are what the API server tells its plug-ins about its objects.
type interfaces struct {
	apiserveradmission.ObjectInterfaces
}

func (i interfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return i }
func (i interfaces) GetObjectConvertor() runtime.ObjectConvertor { return convertor{scheme.Scheme} }
func (interfaces) Default(object runtime.Object)                 { fill(object) }

func (interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return runtime.NewEquivalentResourceRegistry()
}

// convertor has one version of each kind.
type convertor struct{ runtime.ObjectConvertor }

func (convertor) Convert(in, out, _ any) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if custom, ok := out.(*unstructured.Unstructured); ok {
		return custom.UnmarshalJSON(text)
	}
	fresh, err := scheme.Scheme.New(in.(runtime.Object).GetObjectKind().GroupVersionKind())
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, fresh); err != nil {
		return err
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(fresh).Elem())
	return nil
}

// dispatch asks the API server's own dispatcher, a second time if it asks for that.
func (u *upstream) dispatch(t testing.TB, in admission.Request) (out outcome) {
	t.Helper()
	defer func() {
		if recover() != nil {
			out = outcome{Message: panicked} // of a library for JSON patches
		}
	}()
	var object, old runtime.Object
	kind := schema.GroupVersionKind(in.Kind)
	if len(in.Object.Raw) > 0 {
		object = decode(t, in.Object.Raw, kind)
	}
	if len(in.OldObject.Raw) > 0 {
		old = decode(t, in.OldObject.Raw, kind)
	}
	attributes := apiserveradmission.NewAttributesRecord(object, old, kind, in.Namespace, in.Name, schema.GroupVersionResource(in.Resource), in.SubResource,
		apiserveradmission.Operation(in.Operation), nil, *in.DryRun, &user.DefaultInfo{Name: in.UserInfo.Username, Groups: in.UserInfo.Groups})
	o := interfaces{apiserveradmission.NewObjectInterfacesFromScheme(scheme.Scheme)}
	err := u.dispatcher.Dispatch(t.Context(), attributes, o, u.hooks)
	if again := attributes.GetReinvocationContext(); err == nil && again.ShouldReinvoke() {
		again.SetIsReinvoke()
		err = u.dispatcher.Dispatch(t.Context(), attributes, o, u.hooks)
	}
	if err != nil {
		var status *apierrors.StatusError
		if !errors.As(err, &status) {
			t.Fatalf("upstream: %v", err)
		}
		return refused(status.ErrStatus)
	}
	return outcome{Object: asTree(t, object)}
}

// difference returns how our answer to a request differs from upstream's, and "" if it does not.
func difference(t testing.TB, spec mutation.Spec, requests ...admission.Request) string {
	t.Helper()
	set, err := mutation.Compile(spec)
	must(t, err)
	u := newUpstream(t, spec)
	for _, in := range requests {
		var got, want outcome
		// What messages say can depend on the order of a map's members, which Go has at random.
		for range 12 {
			d := set.Decide(t.Context(), mutation.Input{Request: in})
			got, want = ours(t, &d, in), u.dispatch(t, in)
			if equality.Semantic.DeepEqual(got, want) || want.Message == panicked {
				break
			}
		}
		if want.Message != panicked && !equality.Semantic.DeepEqual(got, want) {
			return fmt.Sprintf("object   %s\ngot      %s\nupstream %s", in.Object.Raw, toJSON(t, got), toJSON(t, want))
		}
	}
	return ""
}

// panicked is the message of an evaluation in which upstream panics, which is an error of the policy here.
const panicked = "panicked"

func toJSON(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	return string(text)
}
