package policy_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/client-go/informers"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/race"
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

// failuresKey is upstream's key for audited violations.
const failuresKey = "validation.policy.admission.k8s.io/validation_failure"

// ours is our answer, or an error if there is no decision. What upstream files under
// <policy>/<key> a webhook files under <policy>_<key>.
func ours(response admission.Response) (outcome, error) {
	out := outcome{Allowed: response.Allowed, Warnings: response.Warnings, Audit: map[string]string{}}
	if !response.Allowed {
		if response.Result.Code >= 500 {
			return out, fmt.Errorf("cannot decide: %s", response.Result.Message)
		}
		out.Code, out.Reason, out.First = response.Result.Code, response.Result.Reason, response.Result.Details.Causes[0].Message
	}
	for key, value := range response.AuditAnnotations {
		policyName, name, found := strings.Cut(key, "_")
		switch {
		case key == policy.DeniedByKey:
			continue // upstream has nothing like it
		case key == "validation_failure":
			key = failuresKey
		case found && !strings.Contains(key, "/"):
			key = policyName + "/" + name
		}
		out.Audit[key] = value
	}
	return out, nil
}

// compare fails the test if the answer to a request is not upstream's. It returns
// upstream's answer.
func compare(t testing.TB, name string, set *policy.Set, reference *upstream, a asked) outcome {
	t.Helper()
	want := reference.dispatch(t, a, apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme), reference.hooks)
	got, err := ours(set.Decide(t.Context(), policy.Input{Request: a.sent}).Response())
	must(t, err)
	if g, w := toJSON(t, got), toJSON(t, want); g != w {
		t.Errorf("%s:\n     got %s\nupstream %s", name, g, w)
	}
	return want
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
	for _, object := range spec.Objects.(objects) {
		gvk := object.GroupVersionKind()
		if gvk.Kind == "Namespace" {
			namespace, _ := spec.Objects.Namespace(object.GetName())
			must(t, namespaces.Add(namespace))
			continue
		}
		if params[gvk] == nil {
			params[gvk] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		}
		must(t, params[gvk].Add(asInformed(t, object)))
	}
	var asks authorizer.UnconditionalAuthorizer = testAuthorizer{}
	if spec.Authorizer != nil {
		asks = spec.Authorizer
	}
	out := &upstream{dispatcher: validating.NewDispatcher(asks,
		generic.NewPolicyMatcher(matching.NewMatcher(corelisters.NewNamespaceLister(namespaces), nil)))}
	for i := range spec.Policies {
		p := spec.Policies[i].DeepCopy()
		defaultLikeUpstream(p.Spec.MatchConstraints)
		hook := validating.PolicyHook{Policy: p, Evaluator: compileLikeUpstream(p)}
		for k := range spec.Bindings {
			if b := spec.Bindings[k].DeepCopy(); b.Spec.PolicyName == p.Name {
				defaultLikeUpstream(b.Spec.MatchResources)
				hook.Bindings = append(hook.Bindings, b)
			}
		}
		slices.SortFunc(hook.Bindings, func(a, b *validating.PolicyBinding) int { return strings.Compare(a.Name, b.Name) })
		if kind := p.Spec.ParamKind; kind != nil {
			gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
			indexer := params[gvk]
			if indexer == nil {
				indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			}
			hook.ParamInformer = storeInformer{lister: ordered{GenericLister: cache.NewGenericLister(indexer, schema.GroupResource{Resource: "params"})}}
			hook.ParamScope = meta.RESTScopeNamespace
			namespaced, err := spec.Objects.Namespaced(gvk)
			if err != nil {
				hook.ConfigurationError = err
			} else if !namespaced {
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

// testAuthorizer knows one rule, and one thing that it cannot tell.
type testAuthorizer struct{}

func (testAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case a.GetVerb() == "fail":
		return authorizer.DecisionNoOpinion, "", errors.New("backend away")
	case a.GetVerb() == "get" && a.GetUser().GetName() == "alice":
		return authorizer.DecisionAllow, "alice may get " + a.GetResource() + a.GetPath(), nil
	case a.GetVerb() == "create" && a.GetSubresource() == "exec" && a.GetNamespace() == "shop":
		return authorizer.DecisionAllow, "", nil
	default:
		return authorizer.DecisionDeny, "no", nil
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

// storeInformer is an informer of which only the store is there.
type storeInformer struct {
	cache.SharedIndexInformer
	lister cache.GenericLister
}

var _ informers.GenericInformer = storeInformer{}

func (i storeInformer) Informer() cache.SharedIndexInformer { return i }
func (i storeInformer) Lister() cache.GenericLister         { return i.lister }
func (i storeInformer) HasSynced() bool                     { return true }

// ordered lists by name: upstream lists params as the store's map has them.
type ordered struct {
	cache.GenericLister
	namespaced cache.GenericNamespaceLister
}

func (o ordered) ByNamespace(name string) cache.GenericNamespaceLister {
	return ordered{namespaced: o.GenericLister.ByNamespace(name)}
}

func (o ordered) List(selector labels.Selector) ([]runtime.Object, error) {
	list := o.namespaced
	if list == nil {
		list = o.GenericLister
	}
	out, err := list.List(selector)
	slices.SortFunc(out, func(a, b runtime.Object) int {
		return strings.Compare(a.(metav1.Object).GetName(), b.(metav1.Object).GetName())
	})
	return out, err
}

func (o ordered) Get(name string) (runtime.Object, error) {
	if o.namespaced != nil {
		return o.namespaced.Get(name)
	}
	return o.GenericLister.Get(name)
}

func defaultLikeUpstream(match *admissionregistrationv1.MatchResources) {
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

func newUpstreamCompiler() *plugincel.CompositedCompiler {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		panic(err)
	}
	return compiler
}

// withoutVariables compiles all policies without variables: to make a compiler, with its
// eight environments, takes longer than anything else in these tests.
var withoutVariables = sync.OnceValue(newUpstreamCompiler)

// compileLikeUpstream puts the parts together as the API server does, which
// exports the parts but not the whole.
func compileLikeUpstream(p *validating.Policy) validating.Validator {
	declared := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	forMessages := plugincel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil}
	compiler := withoutVariables()
	if len(p.Spec.Variables) > 0 {
		compiler = newUpstreamCompiler()
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

// recorder keeps what upstream hands to the audit log and to the client.
type recorder struct {
	apiserveradmission.Attributes
	audit    map[string]string
	warnings []string
}

func (r *recorder) AddAnnotation(key, value string) error {
	if err := r.Attributes.AddAnnotation(key, value); err != nil {
		return err
	}
	r.audit[key] = value
	return nil
}

func (r *recorder) AddWarning(_, text string) { r.warnings = append(r.warnings, text) }

func (u *upstream) decide(t testing.TB, req admission.Request) outcome {
	t.Helper()
	return u.dispatch(t, ask(t, req), apiserveradmission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme), u.hooks)
}

// ask returns a request as the API server has it and as it sends it.
func ask(t testing.TB, req admission.Request) asked {
	t.Helper()
	return asked{typed(t, req.Object.Raw), typed(t, req.OldObject.Raw), req}
}

// dispatch is upstream's answer.
func (u *upstream) dispatch(t testing.TB, a asked, o apiserveradmission.ObjectInterfaces, hooks []validating.PolicyHook) outcome {
	t.Helper()
	r := newRecorder(t, a.sent, a.object, a.oldObject)
	return r.outcome(t, u.dispatcher.Dispatch(r.context(), r, o, hooks))
}

// newRecorder returns a request as upstream's plug-ins get it.
func newRecorder(t testing.TB, req admission.Request, object, oldObject runtime.Object) *recorder {
	t.Helper()
	info := &user.DefaultInfo{Name: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups, Extra: map[string][]string{}}
	for key, value := range req.UserInfo.Extra {
		info.Extra[key] = value
	}
	var options runtime.Object
	switch req.Operation {
	case admissionv1.Create:
		options = &metav1.CreateOptions{}
	case admissionv1.Update:
		options = &metav1.UpdateOptions{}
	case admissionv1.Delete:
		options = &metav1.DeleteOptions{}
	case admissionv1.Connect:
	}
	if options != nil && len(req.Options.Raw) > 0 {
		must(t, json.Unmarshal(req.Options.Raw, options))
	} else {
		options = nil
	}
	return &recorder{
		Attributes: apiserveradmission.NewAttributesRecord(object, oldObject,
			schema.GroupVersionKind(*req.RequestKind), req.Namespace, req.Name, schema.GroupVersionResource(*req.RequestResource), req.SubResource,
			apiserveradmission.Operation(req.Operation), options, req.DryRun != nil && *req.DryRun, info),
		audit: map[string]string{},
	}
}

func (r *recorder) context() context.Context {
	return warning.WithWarningRecorder(context.Background(), r)
}

// outcome returns what upstream's dispatcher has said.
func (r *recorder) outcome(t testing.TB, err error) outcome {
	t.Helper()
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

// serialized returns the request as the API server would send it: its objects
// written from typed ones, with the fields that only then appear.
func serialized(t testing.TB, req admission.Request) admission.Request {
	t.Helper()
	for _, object := range []*runtime.RawExtension{&req.Object, &req.OldObject} {
		if len(object.Raw) > 0 {
			raw, err := json.Marshal(typed(t, object.Raw))
			must(t, err)
			object.Raw = raw
		}
	}
	return req
}

// differentialContext are the namespaces and params that policies read, behind a line of
// ---.
//
//go:embed testdata/context.yaml
var differentialContext string

// big is the request about a large object.
const big = "big config map"

// differentialRequests returns the requests that every policy is tried with.
func differentialRequests(t testing.TB) map[string]asked {
	t.Helper()
	pod := readFile(t, "testdata/pod.json")
	const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {team: checkout}}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "docker.io/nginx:1.25", resources: {limits: {memory: 1Gi, cpu: 250m}}}]}}`
	const scale = `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: web, namespace: shop}, spec: {replicas: 9}}`
	const secret = `{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: shop}, type: Opaque, data: {key: c2VzYW1l}}`
	const thing = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, namespace: lab, labels: {team: ops}}, spec: {n: 3, f: 3.0, big: 9007199254740993, list: [a, b], "null": null, ip: 10.1.2.3, "with-dash": x}}`
	options := func(kind string) func(*admission.Request) {
		return func(req *admission.Request) {
			req.Options.Raw = fmt.Appendf(nil, `{"kind":%q,"apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl"}`, kind)
		}
	}
	subresource := func(group, resource, sub string) func(*admission.Request) {
		return func(req *admission.Request) {
			req.Resource = metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
			req.SubResource = sub
		}
	}
	requests := map[string]admission.Request{
		"pod":                    review(t, pod, options("CreateOptions")),
		"pod, dry run":           review(t, pod, func(r *admission.Request) { r.DryRun = new(true); r.UserInfo.Extra = nil }),
		"pod with a bad image":   review(t, strings.ReplaceAll(pod, "registry.example.com", "docker.io")),
		"pod updated":            review(t, pod, updating(t, strings.ReplaceAll(pod, ":1.0.0@", ":0.9.0@")), options("UpdateOptions")),
		"pod deleted":            review(t, pod, deleting, func(r *admission.Request) { r.Name = "shop-1" }),
		"pod exec":               review(t, `{apiVersion: v1, kind: PodExecOptions, command: [sh], container: shop}`, subresource("", "pods", "exec"), func(r *admission.Request) { r.Operation, r.Name, r.Namespace = admissionv1.Connect, "shop-1", "shop" }),
		"deployment":             review(t, deployment, options("CreateOptions")),
		"deployment updated":     review(t, deployment, updating(t, strings.ReplaceAll(deployment, "replicas: 4", "replicas: 2"))),
		"deployment deleted":     review(t, deployment, deleting),
		"deployment in lab":      review(t, strings.ReplaceAll(deployment, "namespace: shop", "namespace: lab")),
		"scale":                  review(t, scale, updating(t, strings.ReplaceAll(scale, "9", "2")), subresource("apps", "deployments", "scale")),
		"secret":                 review(t, secret, func(r *admission.Request) { r.UserInfo.Username = "system:serviceaccount:shop:web" }),
		"custom resource":        review(t, thing),
		"custom resource status": review(t, thing, updating(t, thing), func(r *admission.Request) { r.SubResource = "status" }),
		"namespace":              review(t, `{apiVersion: v1, kind: Namespace, metadata: {name: new, labels: {env: prod}}}`),
		"namespace updated":      review(t, `{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {env: prod}}}`, updating(t, `{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {env: test}}}`)),
		"namespace deleted":      review(t, `{apiVersion: v1, kind: Namespace, metadata: {name: lab, labels: {env: test}}}`, deleting),
		"cluster role":           review(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader}, rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]}`),
		big:                      review(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: big, namespace: shop}, data: {big: \""+strings.Repeat("x", 1_000_000)+"\"}}"),
		"node": review(t, `{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {zone: a}}}`, updating(t, `{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {zone: b}}}`), func(r *admission.Request) {
			r.UserInfo.Username, r.UserInfo.Groups = "system:node:n1", []string{"system:nodes"}
		}),
	}
	out := map[string]asked{}
	for name, req := range requests {
		out[name] = ask(t, serialized(t, req))
	}
	return out
}

// differentialPolicies returns every policy's spec, written so that each matters for
// some of the requests. A line "bindings:" separates the specs of bindings,
// without which there is one that denies.
func differentialPolicies(t testing.TB) map[string]string {
	t.Helper()
	const everything = `
matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}`
	const workloads = `
matchConstraints: {resourceRules: [{apiGroups: ["apps", ""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["deployments", "pods"]}]}`
	const bigs = `
matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["configmaps"]}]}`
	var bigConditions string
	for i := range 4 {
		bigConditions += fmt.Sprintf("- {name: c%d, expression: \"%strue\"}\n", i, strings.Repeat("!object.data.big.contains('y') && ", 8))
	}
	out := map[string]string{
		"deny-all":           everything + "\nvalidations: [{expression: 'false', message: no}]",
		"deny-reason":        everything + "\nvalidations: [{expression: 'false', reason: Forbidden}, {expression: 'false', reason: RequestEntityTooLarge}]",
		"too-large":          everything + "\nvalidations: [{expression: 'false', reason: RequestEntityTooLarge}]",
		"audit-warn":         everything + "\nvalidations: [{expression: 'false', message: one}, {expression: 'true'}, {expression: '1 == 2'}]\nbindings:\n- {validationActions: [Audit, Warn]}\n- {validationActions: [Warn]}\n- {validationActions: [Audit]}",
		"deny-audit":         everything + "\nvalidations: [{expression: 'false', message: one}]\nbindings:\n- {validationActions: [Deny, Audit]}",
		"error-audit":        everything + "\nvalidations: [{expression: 'object.spec.nothing == 1'}]\nbindings:\n- {validationActions: [Audit]}",
		"error-ignored":      everything + "\nfailurePolicy: Ignore\nvalidations: [{expression: 'object.spec.nothing == 1'}, {expression: 'false', message: second}]",
		"error-fails":        everything + "\nvalidations: [{expression: 'object.spec.nothing == 1'}]",
		"message":            workloads + "\nvalidations:\n- {expression: 'false', message: '  padded  '}\n- {expression: 'false', message: m, messageExpression: \"'name ' + object.metadata.name\"}\n- {expression: 'false', message: m, messageExpression: \"string(object.metadata.nothing)\"}\n",
		"message-expr":       workloads + "\nvalidations:\n- {expression: 'false', message: fallback, messageExpression: \"'image ' + dyn(request.operation)\"}",
		"message-lines":      workloads + "\nvalidations:\n- {expression: 'false', message: fallback, messageExpression: \"'a\\\\nb'\"}",
		"message-blank":      workloads + "\nvalidations:\n- {expression: 'false', messageExpression: \"'  '\"}",
		"message-long":       workloads + "\nvalidations:\n- {expression: 'false', message: fallback, messageExpression: \"'" + strings.Repeat("x", 5200) + "'\"}",
		"message-error":      workloads + "\nvalidations:\n- {expression: 'false', messageExpression: \"'a' + object.nothing\"}",
		"multi-line":         workloads + "\nvalidations:\n- expression: |\n    object.kind ==\n      'Nothing'\n",
		"condition":          everything + "\nmatchConditions:\n- {name: users, expression: \"!request.userInfo.username.startsWith('system:')\"}\n- {name: apps, expression: \"request.resource.group == 'apps'\"}\nvalidations: [{expression: 'false', message: apps}]",
		"condition-err":      everything + "\nmatchConditions:\n- {name: broken, expression: \"object.spec.nothing == 1\"}\n- {name: apps, expression: \"request.resource.group == 'apps'\"}\nvalidations: [{expression: 'false', message: apps}]",
		"condition-ign":      everything + "\nfailurePolicy: Ignore\nmatchConditions:\n- {name: broken, expression: \"object.spec.nothing == 1\"}\nvalidations: [{expression: 'false', message: apps}]",
		"condition-par":      everything + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nmatchConditions:\n- {name: p, expression: \"params.data.team == 'ops'\"}\nvalidations: [{expression: 'false', message: ops}]\nbindings:\n- {validationActions: [Deny], paramRef: {selector: {}, namespace: shop, parameterNotFoundAction: Deny}}",
		"variables":          workloads + "\nvariables:\n- {name: spec, expression: \"has(object.spec.template) ? object.spec.template.spec : object.spec\"}\n- {name: images, expression: 'variables.spec.containers.map(c, c.image)'}\n- {name: unused, expression: 'object.nothing.at.all'}\nvalidations:\n- {expression: \"variables.images.all(i, i.startsWith('registry.example.com/'))\", messageExpression: \"'bad: ' + variables.images.join(', ')\"}",
		"variable-error":     workloads + "\nvariables: [{name: broken, expression: 'object.nothing.at.all'}]\nvalidations:\n- {expression: \"request.operation == 'CREATE' || variables.broken == 1\"}",
		"variable-ign":       workloads + "\nfailurePolicy: Ignore\nvariables: [{name: broken, expression: 'object.nothing.at.all'}]\nvalidations:\n- {expression: \"variables.broken == 1\"}",
		"audit":              everything + "\nauditAnnotations:\n- {key: who, valueExpression: \"'user ' + request.userInfo.username\"}\n- {key: none, valueExpression: 'null'}\n- {key: blank, valueExpression: \"'  '\"}\n- {key: maybe, valueExpression: \"request.operation == 'DELETE' ? 'gone' : ''\"}",
		"audit-error":        everything + "\nauditAnnotations: [{key: bad, valueExpression: 'string(object.nothing)'}]\nbindings:\n- {validationActions: [Warn]}",
		"audit-ignored":      everything + "\nfailurePolicy: Ignore\nauditAnnotations: [{key: bad, valueExpression: 'string(object.nothing)'}]",
		"audit-params":       everything + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nauditAnnotations: [{key: team, valueExpression: 'string(params.data.team)'}]\nbindings:\n- {validationActions: [Deny], paramRef: {selector: {matchLabels: {use: limits}}, namespace: shop, parameterNotFoundAction: Deny}}\n- {validationActions: [Deny], paramRef: {name: limits, namespace: shop, parameterNotFoundAction: Deny}}",
		"params-name":        workloads + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: \"!has(object.spec.replicas) || object.spec.replicas <= int(params.data.maxReplicas)\", messageExpression: \"'at most ' + params.data.maxReplicas + ' by ' + params.metadata.name + ' ' + params.kind + ' ' + params.apiVersion\"}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Allow}}\n- {validationActions: [Audit], paramRef: {name: limits-2, namespace: shop, parameterNotFoundAction: Deny}}",
		"params-select":      workloads + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: \"!has(object.spec.replicas) || object.spec.replicas <= int(params.data.maxReplicas)\", messageExpression: \"'at most ' + params.data.maxReplicas\"}]\nbindings:\n- {validationActions: [Warn], paramRef: {selector: {matchLabels: {use: limits}}, parameterNotFoundAction: Deny}}",
		"params-missing":     workloads + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: 'false', message: reached}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: none, parameterNotFoundAction: Allow}}\n- {validationActions: [Warn], paramRef: {name: none, parameterNotFoundAction: Deny}}\n- {validationActions: [Warn], paramRef: {selector: {matchLabels: {use: none}}, parameterNotFoundAction: Deny}}",
		"params-ignored":     workloads + "\nfailurePolicy: Ignore\nparamKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: 'false', message: reached}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: none, parameterNotFoundAction: Deny}}",
		"params-none":        everything + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: 'params == null', message: given}]\nbindings:\n- {validationActions: [Deny]}\n- {validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}",
		"params-secret":      workloads + "\nparamKind: {apiVersion: v1, kind: Secret}\nvalidations: [{expression: \"params.data.word != 'c2VzYW1l'\", message: typed}, {expression: \"!has(params.stringData) && type(params.data.word) != string\", message: string}]\nbindings:\n- {validationActions: [Audit], paramRef: {name: words, namespace: lab, parameterNotFoundAction: Deny}}",
		"params-cluster":     everything + "\nparamKind: {apiVersion: example.com/v1, kind: ClusterLimit}\nvalidations: [{expression: \"params.spec.maxReplicas == 4 && params.spec.weights[1] == 2.5\"}, {expression: \"!has(object.spec.replicas) || object.spec.replicas < params.spec.maxReplicas\"}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: global, parameterNotFoundAction: Deny}}",
		"params-custom":      everything + "\nparamKind: {apiVersion: example.com/v1, kind: Limit}\nvalidations: [{expression: \"params.spec.maxReplicas == 2 && false\", message: custom}]\nbindings:\n- {validationActions: [Warn], paramRef: {name: own, parameterNotFoundAction: Allow}}",
		"params-ns":          everything + "\nparamKind: {apiVersion: example.com/v1, kind: ClusterLimit}\nvalidations: [{expression: 'true'}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: global, namespace: shop, parameterNotFoundAction: Deny}}",
		"params-ignored-ref": everything + "\nvalidations: [{expression: 'false', message: no params}]\nbindings:\n- {validationActions: [Warn], paramRef: {name: limits, parameterNotFoundAction: Deny}}",
		// Looking through a string costs a tenth of its length, and no time.
		"budget":         bigs + "\nvalidations:\n- {expression: \"" + strings.Repeat("!object.data.big.contains('y') && ", 12) + "true\"}\n- {expression: 'false', message: behind}",
		"budget-total":   bigs + "\nvariables: [{name: big, expression: 'object.data.big'}]\nvalidations:\n" + strings.Repeat("- {expression: \""+strings.Repeat("!string(variables.big).contains('y') && ", 8)+"true\"}\n", 14),
		"budget-conds":   bigs + "\nmatchConditions:\n" + bigConditions + "\nvalidations: [{expression: 'true'}]",
		"budget-message": bigs + "\nvalidations:\n" + strings.Repeat("- {expression: \""+strings.Repeat("!object.data.big.contains('y') && ", 8)+"true\", messageExpression: \"object.data.big.contains('y') && object.data.big.contains('y') ? 'a' : 'b'\"}\n", 12),
		"select-ns":      everything + "\nvalidations: [{expression: 'false', message: prod}]\nbindings:\n- {validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {env: prod}}}}",
		"select-not-ns":  strings.Replace(everything, "{resourceRules", "{namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}, resourceRules", 1) + "\nvalidations: [{expression: 'false', message: not prod}]",
		"select-object":  strings.Replace(everything, "{resourceRules", "{objectSelector: {matchLabels: {team: checkout}}, resourceRules", 1) + "\nvalidations: [{expression: 'false', message: checkout}]",
		"select-without": everything + "\nvalidations: [{expression: 'false', message: no team}]\nbindings:\n- {validationActions: [Deny], matchResources: {objectSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}}",
		"select-zone":    everything + "\nvalidations: [{expression: 'false', message: zone a}]\nbindings:\n- {validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {zone: b}}}}",
		"exclude":        strings.Replace(everything, "{resourceRules", "{excludeResourceRules: [{apiGroups: [''], apiVersions: ['v1'], operations: ['*'], resources: ['*']}], resourceRules", 1) + "\nvalidations: [{expression: 'false', message: not core}]",
		"exclude-names":  strings.Replace(everything, "{resourceRules", "{excludeResourceRules: [{apiGroups: ['apps'], apiVersions: ['*'], operations: ['*'], resources: ['*/*'], resourceNames: [web]}], resourceRules", 1) + "\nvalidations: [{expression: 'false', message: not web}]",
		"names":          "\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*'], resourceNames: [web, lab, shop-1]}]}\nvalidations: [{expression: 'false', message: named}]",
		"scope-cluster":  "\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'], scope: Cluster}]}\nvalidations: [{expression: 'false', message: cluster}]",
		"scope-ns":       "\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'], scope: Namespaced}]}\nvalidations: [{expression: 'false', message: namespaced}]",
		"sub-scale":      "\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/scale']}]}\nvalidations: [{expression: 'object.spec.replicas - oldObject.spec.replicas < 3'}]",
		"sub-any":        "\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['pods/*', 'things/*']}]}\nvalidations: [{expression: 'false', message: sub}]",
		"sub-connect":    "\nmatchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: ['v1'], operations: [CONNECT], resources: ['pods/exec']}]}\nvalidations: [{expression: \"!('sh' in object.command)\", messageExpression: \"request.subResource + ' of ' + request.name + ' as ' + request.userInfo.username\"}]",
		"delete":         "\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [DELETE], resources: ['*']}]}\nvalidations: [{expression: 'object == null && oldObject != null'}, {expression: \"oldObject.metadata.name == 'x'\"}]",
		"binding-rules":  everything + "\nvalidations: [{expression: 'false', message: bound}]\nbindings:\n- {validationActions: [Deny], matchResources: {resourceRules: [{apiGroups: ['apps'], apiVersions: ['v1'], operations: [UPDATE], resources: [deployments]}]}}\n- {validationActions: [Warn], matchResources: {excludeResourceRules: [{apiGroups: ['apps'], apiVersions: ['v1'], operations: ['*'], resources: ['*']}]}}",
		"binding-exact":  everything + "\nvalidations: [{expression: 'false', message: bound}]\nbindings:\n- {validationActions: [Deny], matchResources: {matchPolicy: Exact, resourceRules: [{apiGroups: ['apps'], apiVersions: ['v1beta1'], operations: ['*'], resources: ['*']}]}}",
		"exact":          "\nmatchConstraints: {matchPolicy: Exact, resourceRules: [{apiGroups: ['apps'], apiVersions: [v1], operations: ['*'], resources: [deployments]}]}\nvalidations: [{expression: 'false', message: exact}]",
	}
	// Each costs more than a hundred thousand, for a megabyte that is looked
	// through.
	costly := func(n int) string {
		return strings.Repeat("!object.data.big.contains(\"y\") && ", n) + "true"
	}
	for name, text := range map[string]string{
		"authorizer":           "\nvalidations:\n- {expression: \"authorizer.group('').resource('pods').namespace('shop').check('get').allowed()\", messageExpression: \"'not ' + request.userInfo.username\"}\n- {expression: \"authorizer.requestResource.check('get').reason() == 'x'\", messageExpression: \"'y'\"}",
		"authorizer-own":       "\nvalidations: [{expression: \"authorizer.requestResource.subresource('exec').check('create').allowed()\"}]",
		"authorizer-condition": "\nmatchConditions: [{name: a, expression: \"authorizer.path('/healthz').check('get').allowed()\"}]\nvalidations: [{expression: 'false', message: may}]",
		"authorizer-error":     "\nvalidations: [{expression: \"authorizer.group('apps').resource('x').check('fail').errored()\"}, {expression: \"authorizer.group('').resource('x').check('fail').allowed()\"}, {expression: \"authorizer.serviceAccount('shop', 'web').group('').resource('pods').check('get').allowed()\"}]",
		"authorizer-variable":  "\nvariables: [{name: may, expression: \"authorizer.group('').resource('pods').check('get').allowed()\"}]\nvalidations: [{expression: variables.may, messageExpression: \"'may: ' + string(variables.may)\", message: fallback}]\nauditAnnotations: [{key: may, valueExpression: 'string(variables.may)'}]",
		"authorizer-audit":     "\nvalidations: [{expression: 'true'}]\nauditAnnotations: [{key: may, valueExpression: \"string(authorizer.requestResource.check('get').allowed())\"}]",
		"authorizer-ignore":    "\nfailurePolicy: Ignore\nvalidations: [{expression: 'true'}]\nauditAnnotations: [{key: may, valueExpression: \"string(authorizer.requestResource.check('get').allowed())\"}]",
		// What counts twice, and what once: a variable in each list of expressions.
		"variable-cost":         "\nvariables: [{name: a, expression: '" + costly(8) + "'}, {name: b, expression: 'variables.a && variables.a'}]\nvalidations: [" + strings.Repeat("{expression: variables.b}, ", 40) + "{expression: 'false', messageExpression: \"variables.b ? 'b' : 'a'\"}]",
		"variables-cost":        "\nvariables: [" + manyVariables(13, costly(8)) + "]\nvalidations: [{expression: variables.v12, message: used up}]",
		"messages-cost":         "\nvariables: [" + manyVariables(9, costly(8)) + "]\nvalidations: [{expression: variables.v8, messageExpression: \"variables.v8 ? 'never shown' : ''\"}, {expression: '" + costly(8) + "'}, {expression: '" + costly(8) + "'}, {expression: 'false', message: kept}]",
		"messages-cost-of-kept": "\nvariables: [" + manyVariables(9, costly(8)) + "]\nvalidations: [{expression: variables.v8, messageExpression: \"variables.v8 ? 'never shown' : ''\"}, {expression: '" + costly(8) + "'}, {expression: '" + costly(8) + "'}]",
		"audit-cost":            "\nvariables: [" + manyVariables(13, costly(8)) + "]\nvalidations: [{expression: 'false', message: forgotten}]\nauditAnnotations: [{key: a, valueExpression: \"variables.v12 ? 'a' : 'b'\"}]",
		"audit-cost-ignored":    "\nfailurePolicy: Ignore\nvariables: [" + manyVariables(13, costly(8)) + "]\nvalidations: [{expression: 'false', message: forgotten}]\nauditAnnotations: [{key: a, valueExpression: \"variables.v12 ? 'a' : 'b'\"}]",
		"condition-cost":        "\nmatchConditions: [{name: a, expression: '" + costly(8) + "'}, {name: b, expression: 'false'}, {name: c, expression: '" + costly(8) + "'}, {name: d, expression: '" + costly(8) + "'}]\nvalidations: [{expression: 'false', message: no}]",
		"condition-late-error":  "\nmatchConditions: [{name: a, expression: 'object.spec.nothing == 1'}, {name: b, expression: 'false'}]\nvalidations: [{expression: 'false', message: no}]",
		"rule-limit":            "\nvalidations: [{expression: '" + costly(12) + "'}, {expression: 'true'}]",
		"variable-twice":        "\nvariables: [{name: a, expression: '1'}, {name: b, expression: 'variables.a + 1'}, {name: a, expression: '5'}]\nvalidations: [{expression: variables.b == 2, message: two}, {expression: variables.b == 6, message: six}]",
		"variable-names":        "\nvariables: [{name: a__b, expression: '1'}, {name: a__dot__b, expression: '2'}]\nvalidations: [{expression: variables.a__b == 1, message: one}, {expression: variables.a__dot__b == 2, message: two}]",
		"variables-whole":       "\nvariables: [{name: a, expression: '1'}, {name: b, expression: \"'x'\"}]\nvalidations: [{expression: \"dyn(variables).size() == 2\", message: size}, {expression: \"'a' in dyn(variables)\", message: has}, {expression: \"has(variables.a)\", message: there}, {expression: \"variables == variables\", message: same}, {expression: \"dyn(variables).c == 1\"}]",
		"variable-types":        "\nvariables: [{name: l, expression: '[1, 2]'}, {name: m, expression: \"{'a': [1]}\"}, {name: o, expression: 'object.?spec'}, {name: ns, expression: namespaceObject}, {name: t, expression: \"duration('1s')\"}]\nvalidations: [{expression: 'variables.l[0] + 1 == 2'}, {expression: \"variables.m['a'][0] == 1\"}, {expression: 'variables.o.hasValue()', message: spec}, {expression: \"variables.ns == null || variables.ns.metadata.name == 'shop'\", message: ns}, {expression: \"variables.t < duration('2s')\"}]",
	} {
		if strings.Contains(name, "-cost") || name == "rule-limit" {
			text = bigs + text // of the others none is large
		} else {
			text = everything + text
		}
		out[name] = text
	}
	for i, expression := range expressionsOf(t, "everything") {
		out[fmt.Sprintf("expression-%02d", i)] = everything + "\nvalidations: [{expression: " + toJSON(t, expression) + "}]"
	}
	return out
}

// manyVariables returns a chain of variables, each as expensive as the first.
func manyVariables(n int, expression string) string {
	out := "{name: v0, expression: '" + expression + "'}"
	for i := 1; i < n; i++ {
		out += fmt.Sprintf(", {name: v%d, expression: 'variables.v%d && %s'}", i, i-1, expression)
	}
	return out
}

// differentialSpec returns one of the policies with its bindings.
func differentialSpec(name, text string) string {
	body, bindings, found := strings.Cut(text, "\nbindings:\n")
	if !found {
		bindings = "- {validationActions: [Deny]}"
	}
	indent := func(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") }
	out := fmt.Sprintf("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: %s}\nspec:\n  %s", name, indent(body))
	for i, binding := range strings.Split(strings.TrimSpace(bindings), "\n") {
		binding = strings.TrimPrefix(strings.TrimSpace(binding), "- {")
		out += fmt.Sprintf("\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: %s-%d}\nspec: {policyName: %s, %s", name, i+1, name, binding)
	}
	return out
}

// TestSameAsUpstream holds Review against the API server's dispatcher: each
// policy alone, and all at once, for every request.
func TestSameAsUpstream(t *testing.T) {
	t.Parallel()
	requests := differentialRequests(t)
	policies := differentialPolicies(t)
	documents := map[string]string{}
	for name, text := range policies {
		documents[name] = differentialSpec(name, text)
	}
	documents["all of them"] = strings.Join(slices.Collect(maps.Values(documents)), "\n---\n")
	if len(documents) < 100 {
		t.Errorf("only %d sets are compared", len(documents))
	}
	n := 0
	for name, text := range documents {
		spec := specOf(t, text+"\n---"+differentialContext)
		spec.Authorizer = testAuthorizer{}
		set, err := policy.Compile(spec)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		reference := newUpstream(t, spec)
		for request, req := range requests {
			if request == big && !strings.Contains(text, "data.big") {
				continue // its size matters to those alone that look at it
			}
			if n++; race.Enabled && n%4 != 0 {
				continue // others each time: maps have no order
			}
			compare(t, name+", "+request, set, reference, req)
		}
	}
}

// TestCompilesAsUpstream holds that what does not compile here does not compile
// in the API server either, and the reverse.
func TestCompilesAsUpstream(t *testing.T) {
	t.Parallel()
	for _, expression := range slices.Concat(expressionsOf(t, "everything"), expressionsOf(t, "compile"), []string{""}) {
		spec := specOf(t, differentialSpec("p", `matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}`+
			"\nvalidations: [{expression: "+toJSON(t, expression)+"}]"))
		_, err := policy.Compile(spec)
		upstream := newUpstream(t, spec).decide(t, review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: ""}}`))
		refused := strings.Contains(upstream.First, "compilation error: ")
		if (err != nil) != refused {
			t.Errorf("%s: Compile says %v, upstream %q", expression, err, upstream.First)
		}
	}
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}
