// Package dispatcher decides by ValidatingAdmissionPolicies with the API server's own code, in the process of the test.
package dispatcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/warning"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// Outcome is an answer in the terms that the API server and Gatehouse share.
type Outcome struct {
	Allowed  bool
	First    string // the first violation
	Code     int32
	Reason   metav1.StatusReason
	Warnings []string
	Audit    map[string]string
}

// Dispatcher is the API server's own machinery over policies and bindings.
type Dispatcher struct {
	dispatcher generic.Dispatcher[validating.PolicyHook]
	hooks      []validating.PolicyHook
	served     apiserveradmission.ObjectInterfaces
}

// Store has the namespaces and params of policies.
type Store interface {
	policy.Objects
	// All returns all of them.
	All() []*unstructured.Unstructured
}

// New returns a Dispatcher of the policies and bindings. Its spec has a Store, and the API server serves what the registry knows.
func New(t testing.TB, spec policy.Spec, rights authorizer.UnconditionalAuthorizer, registry runtime.EquivalentResourceRegistry) *Dispatcher {
	t.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	params := map[schema.GroupVersionKind]cache.Indexer{}
	paramsOf := func(gvk schema.GroupVersionKind) cache.Indexer {
		if params[gvk] == nil {
			params[gvk] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		}
		return params[gvk]
	}
	for _, object := range spec.Objects.(Store).All() { //nolint:forcetypeassert // as New says
		if object.GetKind() == "Namespace" {
			namespace, _ := spec.Objects.Namespace(object.GetName())
			must(t, namespaces.Add(namespace))
		} else {
			must(t, paramsOf(object.GroupVersionKind()).Add(asInformed(t, object)))
		}
	}
	served := interfaces{apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme), registry}
	out := &Dispatcher{served: served, dispatcher: validating.NewDispatcher(rights,
		generic.NewPolicyMatcher(matching.NewMatcher(corelisters.NewNamespaceLister(namespaces), nil)))}
	for i := range spec.Policies {
		p := spec.Policies[i].DeepCopy()
		setDefaults(p.Spec.MatchConstraints)
		hook := validating.PolicyHook{Policy: p, Evaluator: compileUpstream(p)}
		for k := range spec.Bindings {
			if b := spec.Bindings[k].DeepCopy(); b.Spec.PolicyName == p.Name {
				setDefaults(b.Spec.MatchResources)
				hook.Bindings = append(hook.Bindings, b)
			}
		}
		slices.SortFunc(hook.Bindings, func(a, b *validating.PolicyBinding) int { return strings.Compare(a.Name, b.Name) })
		if kind := p.Spec.ParamKind; kind != nil {
			gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
			hook.ParamInformer = informer{lister: sorted{GenericLister: cache.NewGenericLister(paramsOf(gvk), schema.GroupResource{Resource: "params"})}}
			hook.ParamScope = meta.RESTScopeNamespace
			namespaced, err := spec.Objects.Namespaced(gvk)
			if hook.ConfigurationError = err; err == nil && !namespaced {
				hook.ParamScope = meta.RESTScopeRoot
			}
		}
		if len(hook.Bindings) > 0 {
			out.hooks = append(out.hooks, hook)
		}
	}
	slices.SortFunc(out.hooks, func(a, b validating.PolicyHook) int { return strings.Compare(a.Policy.Name, b.Policy.Name) })
	return out
}

// asInformed returns an object as upstream's informers hold it: typed, and without
// its kind, if the kind is one of Kubernetes.
func asInformed(t testing.TB, object *unstructured.Unstructured) runtime.Object {
	t.Helper()
	typed, err := clientgoscheme.Scheme.New(object.GroupVersionKind())
	if err != nil {
		return object
	}
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed))
	typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return typed
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
	list := s.namespaced
	if list == nil {
		list = s.GenericLister
	}
	out, err := list.List(selector)
	slices.SortFunc(out, func(a, b runtime.Object) int {
		return cmp.Compare(a.(metav1.Object).GetName(), b.(metav1.Object).GetName())
	})
	return out, err
}

func (s sorted) Get(name string) (runtime.Object, error) {
	if s.namespaced != nil {
		return s.namespaced.Get(name)
	}
	return s.GenericLister.Get(name)
}

func setDefaults(match *admissionregistrationv1.MatchResources) {
	if match == nil {
		return
	}
	if match.MatchPolicy == nil {
		match.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	if match.NamespaceSelector == nil {
		match.NamespaceSelector = &metav1.LabelSelector{}
	}
	if match.ObjectSelector == nil {
		match.ObjectSelector = &metav1.LabelSelector{}
	}
}

func newCompiler() *plugincel.CompositedCompiler {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		panic(err)
	}
	return compiler
}

// WithoutVariables returns the compiler of all policies without variables: to make a compiler, with its
// eight environments, takes longer than anything else in these tests.
var WithoutVariables = sync.OnceValue(newCompiler) //nolint:gochecknoglobals // made once, and constant

// compileUpstream puts the parts together as the API server does, which
// exports the parts but not the whole.
func compileUpstream(p *validating.Policy) validating.Validator {
	declared := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	forMessages := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil}
	compiler := WithoutVariables()
	if len(p.Spec.Variables) > 0 {
		compiler = newCompiler()
	}
	for _, v := range p.Spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.StoredExpressions)
	}
	compile := func(accessors []plugincel.ExpressionAccessor, declared plugincel.OptionalVariableDeclarations) plugincel.ConditionEvaluator {
		return compiler.CompileCondition(accessors, declared, environment.StoredExpressions)
	}
	var conditions, rules, messages, notes []plugincel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for _, v := range p.Spec.Validations {
		rules = append(rules, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		if v.MessageExpression == "" {
			messages = append(messages, nil)
		} else {
			messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
	for _, a := range p.Spec.AuditAnnotations {
		notes = append(notes, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression})
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(compile(conditions, declared), p.Spec.FailurePolicy, "policy", "validate", p.Name)
	}
	return validating.NewValidator(compile(rules, declared), matcher, compile(notes, declared), compile(messages, forMessages), p.Spec.FailurePolicy, nil)
}

// interfaces are what the API server tells its plug-ins about its objects. Objects
// are converted by webhooks/kinds/versions, which is held against the API server's
// conversions by its own test. A custom resource only gets another apiVersion.
type interfaces struct {
	apiserveradmission.ObjectInterfaces
	registry runtime.EquivalentResourceRegistry
}

func (i interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return i.registry }

func (i interfaces) GetObjectConvertor() runtime.ObjectConvertor {
	return converter{clientgoscheme.Scheme}
}

func (i interfaces) GetObjectCreater() runtime.ObjectCreater {
	return newObjects{clientgoscheme.Scheme}
}

type newObjects struct{ runtime.ObjectCreater }

func (n newObjects) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	if clientgoscheme.Scheme.Recognizes(kind) {
		return n.ObjectCreater.New(kind)
	}
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(kind)
	return out, nil
}

type converter struct{ runtime.ObjectConvertor }

func (converter) Convert(in, out, _ any) error {
	if custom, ok := out.(*unstructured.Unstructured); ok {
		version := custom.GetAPIVersion()
		custom.Object = in.(*unstructured.Unstructured).DeepCopy().Object
		custom.SetAPIVersion(version)
		return nil
	}
	resource := func(kind schema.GroupVersionKind) schema.GroupVersionResource {
		return kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	text, err := rawjson.Parse(raw)
	if err != nil {
		return err
	}
	var target schema.GroupVersionKind
	if kinds, _, err := clientgoscheme.Scheme.ObjectKinds(out.(runtime.Object)); err == nil {
		target = kinds[0]
	}
	converted, err := kindversions.Convert(text, resource(in.(runtime.Object).GetObjectKind().GroupVersionKind()), resource(target))
	if err != nil {
		return err
	}
	return json.Unmarshal(converted, out)
}

// Asked is a request, as the API server has it and as it sends it.
type Asked struct {
	Object, OldObject runtime.Object
	Sent              admission.Request
}

// Ask returns a request as the API server has it and as it sends it.
func Ask(t testing.TB, req admission.Request) Asked {
	t.Helper()
	return Asked{Typed(t, req.Object.Raw), Typed(t, req.OldObject.Raw), req}
}

// recorder keeps what upstream hands to the audit log and to the client.
type recorder struct {
	apiserveradmission.Attributes
	audit    map[string]string
	warnings []string
}

func (r *recorder) AddAnnotation(key, value string) error {
	r.audit[key] = value
	return r.Attributes.AddAnnotation(key, value)
}

func (r *recorder) AddWarning(_, text string) { r.warnings = append(r.warnings, text) }

// Dispatch returns the API server's answer.
func (d *Dispatcher) Dispatch(t testing.TB, a Asked) Outcome {
	t.Helper()
	r := &recorder{Attributes: AttributesOf(t, a), audit: map[string]string{}}
	err := d.dispatcher.Dispatch(warning.WithWarningRecorder(context.Background(), r), r, d.served, d.hooks)
	out := Outcome{Allowed: err == nil, Warnings: r.warnings, Audit: r.audit}
	if err != nil {
		var status *apierrors.StatusError
		if !errors.As(err, &status) {
			t.Fatalf("upstream failed: %v", err)
		}
		causes := status.ErrStatus.Details.Causes
		out.Code, out.Reason, out.First = status.ErrStatus.Code, status.ErrStatus.Reason, causes[len(causes)-1].Message
	}
	return out
}

// AttributesOf returns a request as upstream's plug-ins get it.
func AttributesOf(t testing.TB, a Asked) apiserveradmission.Attributes {
	t.Helper()
	req := a.Sent
	info := &user.DefaultInfo{Name: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups, Extra: map[string][]string{}}
	for key, value := range req.UserInfo.Extra {
		info.Extra[key] = value
	}
	var options runtime.Object
	if len(req.Options.Raw) > 0 {
		options = map[admissionv1.Operation]runtime.Object{
			admissionv1.Create: &metav1.CreateOptions{}, admissionv1.Update: &metav1.UpdateOptions{}, admissionv1.Delete: &metav1.DeleteOptions{},
		}[req.Operation]
		must(t, json.Unmarshal(req.Options.Raw, options))
	}
	return apiserveradmission.NewAttributesRecord(a.Object, a.OldObject,
		schema.GroupVersionKind(*req.RequestKind), req.Namespace, req.Name, schema.GroupVersionResource(*req.RequestResource), req.SubResource,
		apiserveradmission.Operation(req.Operation), options, req.DryRun != nil && *req.DryRun, info)
}

// codecs decodes what an API server has types for.
var codecs = sync.OnceValue(func() serializer.CodecFactory { //nolint:gochecknoglobals // a constant
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme)
})

// Typed returns an object as upstream's plugins get it.
func Typed(t testing.TB, raw []byte) runtime.Object {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	object, _, err := codecs().UniversalDeserializer().Decode(raw, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		out := new(unstructured.Unstructured)
		must(t, out.UnmarshalJSON(raw))
		return out
	}
	must(t, err)
	return object
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
