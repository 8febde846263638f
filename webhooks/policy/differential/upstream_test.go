// Package differential_test holds the answers of webhooks/policy against those of the API server's own dispatcher.
package differential_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

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

// outcome is an answer in the terms that upstream and we share.
type outcome struct {
	Allowed  bool
	First    string // the first violation
	Code     int32
	Reason   metav1.StatusReason
	Warnings []string
	Audit    map[string]string
}

// missingParams is what we say besides upstream's text: which params do not exist.
var missingParams = regexp.MustCompile("(`Deny` parameterNotFoundAction): there is no [^\\n]*? \\(hint: create it\\)")

// ours returns our answer, or an error if there is no decision. What upstream files under
// <policy>/<key> a webhook files under <policy>_<key>.
func ours(response admission.Response) (outcome, error) {
	out := outcome{Allowed: response.Allowed, Warnings: response.Warnings, Audit: map[string]string{}}
	if !response.Allowed {
		if response.Result.Code >= 500 {
			return out, fmt.Errorf("cannot decide: %s", response.Result.Message)
		}
		out.Code, out.Reason, out.First = response.Result.Code, response.Result.Reason, missingParams.ReplaceAllString(response.Result.Details.Causes[0].Message, "$1")
	}
	for key, value := range response.AuditAnnotations {
		policyName, name, found := strings.Cut(key, "_")
		switch {
		case key == policy.DeniedByKey:
			continue // upstream has nothing like it
		case key == "validation_failure":
			key = "validation.policy.admission.k8s.io/validation_failure"
		case found && !strings.Contains(key, "/"):
			key = policyName + "/" + name
		}
		out.Audit[key] = value
	}
	return out, nil
}

// difference returns how our answer to a request differs from upstream's, and "" if it does not.
func difference(t testing.TB, set *policy.Set, u *upstream, a asked) string {
	t.Helper()
	got, err := ours(set.Decide(t.Context(), policy.Input{Request: a.sent}).Response())
	if err != nil {
		return err.Error()
	}
	var want outcome
	// What upstream says can depend on the order of a map's members, which it has at random.
	for range 12 {
		if want = u.dispatch(t, a); got.isBounded(want) {
			return ""
		}
	}
	return fmt.Sprintf("     got %s\nupstream %s", toJSON(t, got), toJSON(t, want))
}

// isBounded reports whether an outcome is the other with texts that are cut, and with
// what cannot be printed left out.
func (o outcome) isBounded(of outcome) bool {
	if o.Allowed != of.Allowed || o.Code != of.Code || o.Reason != of.Reason || len(o.Audit) != len(of.Audit) {
		return false
	}
	for key, value := range o.Audit {
		if of, ok := of.Audit[key]; !ok || !isBoundedText(value, of) {
			return false
		}
	}
	return isBoundedText(o.First, of.First) && slices.EqualFunc(o.Warnings, of.Warnings, isBoundedText)
}

// goTypeName is how a message names the Go type of a value. Ours is another.
var goTypeName = regexp.MustCompile(`\*(value|types|common)\.[A-Za-z]+`)

func isBoundedText(text, of string) bool {
	text, of = goTypeName.ReplaceAllString(text, "*type"), goTypeName.ReplaceAllString(of, "*type")
	// Why an object cannot be converted is told in other words here.
	const conversion = "failed to convert object version: "
	if before, _, found := strings.Cut(of, conversion); found {
		return strings.HasPrefix(text, before+conversion)
	}
	if strings.ContainsFunc(of, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(of, `\u0000`) { // as it is, or in JSON
		return text != ""
	}
	start, cut := strings.CutSuffix(text, "…")
	return text == of || cut && strings.HasPrefix(of, start)
}

// upstream is the API server's own machinery over the same documents.
type upstream struct {
	dispatcher generic.Dispatcher[validating.PolicyHook]
	hooks      []validating.PolicyHook
}

func newUpstream(t testing.TB, spec policy.Spec) *upstream {
	t.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	params := map[schema.GroupVersionKind]cache.Indexer{}
	paramsOf := func(gvk schema.GroupVersionKind) cache.Indexer {
		if params[gvk] == nil {
			params[gvk] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		}
		return params[gvk]
	}
	for _, object := range spec.Objects.(objects) {
		if object.GetKind() == "Namespace" {
			namespace, _ := spec.Objects.Namespace(object.GetName())
			must(t, namespaces.Add(namespace))
		} else {
			must(t, paramsOf(object.GroupVersionKind()).Add(asInformed(t, object)))
		}
	}
	out := &upstream{dispatcher: validating.NewDispatcher(randomAuthorizer{},
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

// randomAuthorizer answers every question in a way that depends on all of it and
// on nothing else.
type randomAuthorizer struct{}

func (randomAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, a.GetUser().GetName(), a.GetUser().GetGroups(), a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName(), a.GetPath(), a.IsResourceRequest())
	switch {
	case a.GetVerb() == "fail":
		return authorizer.DecisionNoOpinion, "", errors.New("backend away")
	case h.Sum32()%3 == 0:
		return authorizer.DecisionDeny, "no", nil
	case h.Sum32()%3 == 1:
		return authorizer.DecisionNoOpinion, "", nil
	default:
		return authorizer.DecisionAllow, "yes", nil
	}
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

// withoutVariables compiles all policies without variables: to make a compiler, with its
// eight environments, takes longer than anything else in these tests.
var withoutVariables = sync.OnceValue(newCompiler)

// compileUpstream puts the parts together as the API server does, which
// exports the parts but not the whole.
func compileUpstream(p *validating.Policy) validating.Validator {
	declared := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	forMessages := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil}
	compiler := withoutVariables()
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

var served = sync.OnceValue(func() interfaces {
	return interfaces{apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme), servedKinds()}
})

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

// servedKinds returns what the API server of the test serves: the resources that
// random requests are about, each in all versions that are known of it.
func servedKinds() runtime.EquivalentResourceRegistry {
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(resource schema.GroupResource) string {
		if resource.Resource == "events" {
			return "events"
		}
		return ""
	})
	done := map[string]bool{}
	register := func(resource schema.GroupVersionResource, subresource string, kind schema.GroupVersionKind) {
		if key := resource.String() + "/" + subresource; !done[key] {
			done[key] = true
			registry.RegisterKindFor(resource, subresource, kind)
		}
	}
	for _, t := range targets() {
		others := kindversions.Of(t.resource)
		if others == nil {
			register(t.resource, t.subresource, t.kind)
		}
		for _, e := range others {
			kind := t.kind
			if t.kind.GroupVersion() == t.resource.GroupVersion() {
				kind = e.GroupVersion().WithKind(t.kind.Kind)
			}
			register(e.GroupVersionResource, t.subresource, kind)
		}
	}
	return registry
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

// asked is a request, as the API server has it and as it sends it.
type asked struct {
	object, oldObject runtime.Object
	sent              admission.Request
}

// ask returns a request as the API server has it and as it sends it.
func ask(t testing.TB, req admission.Request) asked {
	t.Helper()
	return asked{typed(t, req.Object.Raw), typed(t, req.OldObject.Raw), req}
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

// dispatch returns upstream's answer.
func (u *upstream) dispatch(t testing.TB, a asked) outcome {
	t.Helper()
	r := &recorder{Attributes: attributesOf(t, a), audit: map[string]string{}}
	err := u.dispatcher.Dispatch(warning.WithWarningRecorder(context.Background(), r), r, served(), u.hooks)
	out := outcome{Allowed: err == nil, Warnings: r.warnings, Audit: r.audit}
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

// attributesOf returns a request as upstream's plug-ins get it.
func attributesOf(t testing.TB, a asked) apiserveradmission.Attributes {
	t.Helper()
	req := a.sent
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
	return apiserveradmission.NewAttributesRecord(a.object, a.oldObject,
		schema.GroupVersionKind(*req.RequestKind), req.Namespace, req.Name, schema.GroupVersionResource(*req.RequestResource), req.SubResource,
		apiserveradmission.Operation(req.Operation), options, req.DryRun != nil && *req.DryRun, info)
}

// codecs decodes what an API server has types for.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme)
})

// typed returns an object as upstream's plugins get it.
func typed(t testing.TB, raw []byte) runtime.Object {
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

func toJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}
