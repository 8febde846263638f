package policy_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// parityObjects are objects before and after an update, of built-in kinds and of
// a custom resource, as the API server would send them.
func parityObjects() map[string][2]string {
	const (
		pod = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, creationTimestamp: "2026-01-02T03:04:05Z", labels: {app: web, team: ops}, annotations: {a: "1"}, finalizers: [x/a, x/b], ownerReferences: [{apiVersion: v1, kind: Node, name: node, uid: u, controller: true}],
  managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {}}}]},
 spec: {nodeSelector: {a: b}, containers: [{name: a, image: i, resources: {limits: {memory: 1Gi, cpu: 250m}}, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: http}}}, {name: b, image: j, args: [x, z], resources: {}, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}}],
  initContainers: [{name: b, image: j, args: [x, z], resources: {}, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}}], securityContext: {}, tolerations: [{key: k, operator: Exists, tolerationSeconds: 300}], priority: 3}, status: {}}`
		thing = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, namespace: shop, labels: {app: web}, finalizers: [x/a]}, spec: {nodeSelector: {a: b}, containers: [{name: a, resources: {limits: {memory: 1Gi}}, args: []}], priority: 3.0, accessModes: [ReadWriteOnce]}, data: {x: "NaN"}}`
	)
	larger := strings.NewReplacer("1Gi", `"1073741824"`, "300", "301").Replace(pod)
	return map[string][2]string{
		"pod":              {pod, pod},
		"pod, other units": {strings.Replace(pod, "1Gi", `"1073741824"`, 1), pod},
		"pod, other pod":   {larger, pod},
		"thing":            {thing, strings.Replace(thing, "1Gi", "1073741824", 1)},
		"config map":       {`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {x: "NaN", "n": "5", t: "2026-01-02T03:04:05,5Z"}, binaryData: {b: AAEC}}`, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {x: "6"}, immutable: true}`},
		"secret":           {`{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}, type: Opaque, data: {x: c2VzYW1l, "y": ""}}`, ""},
		"volume claim":     {`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: v, namespace: shop, finalizers: [a, b]}, spec: {accessModes: [ReadWriteOnce, ReadOnlyMany], resources: {requests: {storage: 1Gi}}}}`, ""},
		"namespace":        {`{apiVersion: v1, kind: Namespace, metadata: {name: shop}, spec: {finalizers: [kubernetes]}, status: {phase: Active}}`, ""},
		"deployment":       {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: shop}, spec: {replicas: 2, selector: {matchLabels: {app: web}}, strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 1}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: i}]}}}}`, ""},
		"revision":         {`{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: r, namespace: shop}, data: {spec: {list: [1, 2.5, {a: 1}], map: {a: {}}}}, revision: 3}`, ""},
		"scale":            {`{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d, namespace: shop}, spec: {replicas: 9}, status: {replicas: 1}}`, ""},
		"definition": {`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com}, spec: {group: example.com, scope: Cluster, names: {kind: Thing, plural: things},
 versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, default: {a: [1]}, properties: {"n": {type: integer, minimum: 1, maximum: 9.5, enum: [1, 2]}}}}}}}]}}`, ""},
		"exec": {`{apiVersion: v1, kind: PodExecOptions, stdin: true, container: a, command: [sh, -c, ls]}`, ""},
	}
}

// parityExpressions use every operator and function on what typed and untyped
// values differ in.
func parityExpressions() []string {
	return []string{
		// Numbers, timestamps and bytes, of which versions of cel-go differ.
		`!(double(object.data.x) > 5.0)`,
		`double(object.data.x) < 5.0 || double(object.data.x) >= 5.0`,
		`double(object.data.x) == double(object.data.x)`,
		`timestamp(object.data.t) < timestamp('2027-01-01T00:00:00Z')`,
		`timestamp('2026-01-02T03:04:05,5Z') == timestamp('2026-01-02T03:04:05.5Z')`,
		`timestamp('2026-01-02T3:04:05Z') == timestamp('2026-01-02T03:04:05Z')`,
		`timestamp(object.metadata.creationTimestamp).getFullYear() == 2026`,
		`bytes(object.data.x) == b'NaN' && size(bytes(object.data.x)) == 3`,
		`bytes(object.data.x) + b'\xff' == b'NaN\xff'`,
		`object.data.x == 'c2VzYW1l' && object.data.?y.orValue('none') == ''`,
		`string(bytes(object.data.x)) == 'NaN' && string(bytes(object.data.n)) + 'x' != string(b'\\x35')`,
		`object.data.missing == 'x' || object.data.x.contains('N')`,
		`object.data.missing.contains(object.data.x) && object.data.x == 'NaN'`,
		`object.data.x.contains('N') && 1 / 0 == 1`,
		`[object.data.missing, object.data.x].size() == 2`,
		// Keys and indexes.
		`dyn(1) in object.metadata.labels`,
		`dyn(1) in object.metadata`,
		`dyn(1.0) in object`,
		`dyn(null) in object.spec.nodeSelector`,
		`dyn('app') in object.metadata.labels`,
		`object.metadata.labels[dyn(1)] == 'x'`,
		`object.metadata[dyn(1)] == 'x'`,
		`object[dyn(1)] == 'x'`,
		`object.spec.containers[dyn(0.0)].name == 'a'`,
		`object.spec.containers[dyn(0u)].name == 'a'`,
		`object.spec.containers[0.0].name == 'a'`,
		`dyn(object.spec.containers)[dyn(0.0)].name == 'a'`,
		`object.spec.containers[dyn('x')].name == 'a'`,
		`object.spec.containers[dyn(7)].name == 'a'`,
		`object.spec.containers[dyn(7.0)].name == 'a'`,
		`object.spec.containers[-1].name == 'a'`,
		`object.spec.containers[?dyn(0.0)].?name.orValue('x') == 'a'`,
		`object.metadata.?labels[?dyn(1)].orValue('x') == 'x'`,
		`object.?metadata[?dyn(true)].hasValue()`,
		`has(object.spec.containers[0].resources.limits.memory)`,
		`has(object.metadata.labels.missing) || has(object.metadata.nothing)`,
		// Equality.
		`object == oldObject`,
		`object != oldObject`,
		`object.spec == oldObject.spec`,
		`object.spec.containers == oldObject.spec.containers`,
		`object.spec.containers[0] == oldObject.spec.containers[0]`,
		`object.spec.containers[0].resources == oldObject.spec.containers[0].resources`,
		`object.spec.containers[0].resources.limits == oldObject.spec.containers[0].resources.limits`,
		`object.spec.containers[1] == object.spec.initContainers[0]`,
		`object.spec.containers[1] in object.spec.initContainers`,
		`object.spec.initContainers.all(c, c in object.spec.containers)`,
		`object.metadata == object.spec`,
		`object.metadata.labels == object.spec.nodeSelector`,
		`object.metadata.labels == {'app': 'web', 'team': 'ops'}`,
		`{'app': 'web', 'team': 'ops'} == object.metadata.labels`,
		`object.metadata.labels == {'app': dyn(1), 'team': dyn('ops')}`,
		`object.spec.containers[1].resources == {}`,
		`{} == object.spec.containers[1].resources`,
		`object.spec.containers[0].ports == [{'containerPort': 80}]`,
		`[{'containerPort': 80}] == object.spec.containers[0].ports`,
		`object.spec.containers[0].ports[0] == {'containerPort': 80.0}`,
		`object.spec.containers[0].ports[0] == {'containerPort': 'x'}`,
		`{'containerPort': 80} in object.spec.containers[0].ports`,
		`dyn(object.metadata) == 'x'`,
		`dyn(object.metadata) != 'x'`,
		`dyn('x') == object.metadata`,
		`dyn(object.metadata.labels) == 1`,
		`dyn(object.metadata.labels) == []`,
		`dyn(object.spec.containers) == 1`,
		`dyn(object.spec.containers) != {}`,
		`1 == dyn(object.spec.containers)`,
		`object.metadata == null || object.spec == null`,
		`null == object.metadata.labels`,
		`dyn(object.metadata.labels) in ['x']`,
		`dyn(object.metadata.labels) in [{'app': 'web'}]`,
		`1 in object.spec.containers`,
		`dyn('x/a') in object.metadata.finalizers`,
		`null in object.metadata.finalizers`,
		`object.spec.strategy.rollingUpdate.maxSurge == '25%' && object.spec.strategy.rollingUpdate.maxUnavailable == 1`,
		`object.spec.containers.map(c, c.livenessProbe.httpGet.port) == [dyn('http'), dyn(80)]`,
		`object.spec.tolerations[0] == oldObject.spec.tolerations[0]`,
		`object.spec.tolerations == [{'key': dyn('k'), 'operator': dyn('Exists'), 'tolerationSeconds': dyn(300)}]`,
		// Lists.
		`(object.metadata.finalizers + ['x'])[dyn(0.0)] == 'x/a'`,
		`(['x'] + object.metadata.finalizers)[dyn(1.0)] == 'x/a'`,
		`([] + object.metadata.finalizers)[dyn(0.0)] == 'x/a'`,
		`(object.metadata.finalizers + [])[dyn(0.0)] == 'x/a'`,
		`(object.metadata.finalizers + object.metadata.finalizers)[dyn(1.0)] == 'x/b'`,
		`object.metadata.finalizers + ['z'] == ['x/a', 'x/b', 'z']`,
		`dyn(object.metadata.finalizers) + dyn(1) == []`,
		`object.metadata.finalizers.join(',') == 'x/a,x/b'`,
		`object.spec.accessModes.join(',') == 'ReadWriteOnce,ReadOnlyMany'`,
		`object.spec.finalizers.join() == 'kubernetes'`,
		`object.command.join(' ') == 'sh -c ls'`,
		`(object.spec.accessModes + []).join(',') == 'ReadWriteOnce,ReadOnlyMany'`,
		`object.spec.containers.join(',') == ''`,
		`object.spec.accessModes.isSorted() || object.metadata.finalizers.isSorted()`,
		`object.spec.containers.map(c, c.name).indexOf('b') == 1 && object.metadata.finalizers.lastIndexOf('x/a') == 0`,
		`sets.contains(object.metadata.finalizers, ['x/a']) && sets.equivalent(object.metadata.finalizers, ['x/b', 'x/a'])`,
		`sets.intersects(object.spec.containers, object.spec.initContainers)`,
		`object.metadata.finalizers.sort() == ['x/a', 'x/b'] && object.spec.containers.distinct().size() == 2`,
		`object.metadata.finalizers.slice(0, 1) == ['x/a'] && [object.metadata.finalizers].flatten() == ['x/a', 'x/b']`,
		`'%s %d %s'.format([object.metadata.finalizers, object.spec.priority, object.metadata.labels]) == ''`,
		`type(object.spec.containers) == list && type(object.metadata) == map && type(object.metadata.labels) == map`,
		`type(object.spec.priority) == int`,
		// Zero values, sizes and loops.
		`optional.ofNonZeroValue(object.spec.containers[1].resources).hasValue()`,
		`optional.ofNonZeroValue(object.spec.containers[0].args).hasValue()`,
		`optional.ofNonZeroValue(object.spec.?securityContext.orValue({})).hasValue()`,
		`object.spec.?containers[?0].?args.orValue([]).size() == 0`,
		`size(object.metadata) > 3 && size(object.spec.containers) == 2 && size(object.metadata.labels) == 2`,
		`object.metadata.labels.all(k, k != 'x') && object.metadata.all(k, k != 'x')`,
		`object.metadata.labels.exists_one(k, v, v == 'web') && object.spec.containers.exists(i, c, i == 1 && c.name == 'b')`,
		`object.metadata.labels.transformMap(k, v, v + '!').app == 'web!'`,
		`object.metadata.labels.transformList(k, v, v).sort() == ['ops', 'web']`,
		`object.metadata.labels.map(k, object.metadata.labels[k]).sort() == ['ops', 'web']`,
		// What is JSON inside of typed objects.
		`object.metadata.managedFields[0].fieldsV1 == {'f:metadata': {}}`,
		`dyn(object.metadata.managedFields[0].fieldsV1) == 'x'`,
		`dyn(1) in object.metadata.managedFields[0].fieldsV1`,
		`object.data.spec.list[dyn(0.0)] == 1 && object.data.spec.list[1] == 2.5`,
		`optional.ofNonZeroValue(object.data.spec.map.a).hasValue()`,
		`object.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.n.minimum == 1.0`,
		`type(object.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.n.minimum) == int`,
		`object.spec.versions[0].schema.openAPIV3Schema.properties.spec.default.a[dyn(0.0)] == 1`,
		`dyn(1) in object.spec.versions[0].schema.openAPIV3Schema.properties`,
		`object.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.n.enum[dyn(1.0)] == 2`,
		`quantity(object.spec.containers[0].resources.limits.memory) == quantity('1Gi')`,
		`quantity(object.spec.resources.requests.storage).isGreaterThan(quantity('1Mi'))`,
		`object.spec.replicas + object.status.replicas == 10`,
		// Who asks.
		`request.userInfo.extra['example.com/none'] == []`,
		`dyn(request.userInfo.extra['example.com/none']) == null`,
		`request.userInfo.extra.all(k, request.userInfo.extra[k].size() >= 0)`,
		`namespaceObject == null || namespaceObject.metadata.name == 'shop'`,
		`dyn(1) in namespaceObject.metadata.labels`,
	}
}

// parityCodecs decodes what an API server has types for.
func parityCodecs(t testing.TB) serializer.CodecFactory {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, apiextensionsv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme)
}

// TestExpressionsSameAsUpstream holds the result, the error and the cost of
// expressions against those of the API server's own evaluator, which has objects
// of built-in kinds as Go values.
func TestExpressionsSameAsUpstream(t *testing.T) {
	t.Parallel()
	codecs := parityCodecs(t)
	requests := map[string]parityRequest{}
	for name, texts := range parityObjects() {
		requests[name] = newParityRequest(t, codecs, texts[0], texts[1])
	}
	results := map[string]bool{}
	for _, expression := range parityExpressions() {
		evaluate := upstreamEvaluator(t, expression)
		if evaluate == nil {
			continue
		}
		set := compile(t, denyAll("p", "validations: [{expression: "+toJSON(t, expression)+"}]", "")+"\n---"+differentialContext)
		for name, req := range requests {
			want, cost := evaluate(t, req)
			d := set.Decide(context.Background(), req.Request, true)
			if d.Err != nil || len(d.Evaluations) == 0 || len(d.Evaluations[0].Rules) != 1 {
				t.Fatalf("%s, %s: %v, %+v", expression, name, d.Err, d.Evaluations)
			}
			rule := d.Evaluations[0].Rules[0]
			got := string(rule.Outcome)
			if rule.Outcome == policy.Failed {
				got = rule.Message
			}
			if got != want || rule.Cost != cost {
				t.Errorf("%s, %s:\n     got %s, cost %d\nupstream %s, cost %d", expression, name, got, rule.Cost, want, cost)
			}
			results[want] = true
		}
	}
	if len(results) < 40 {
		t.Errorf("only %d different results", len(results))
	}
}

// parityRequest is a request, and as the API server has it.
type parityRequest struct {
	admission.Request
	attributes *apiserveradmission.VersionedAttributes
}

func newParityRequest(t testing.TB, codecs serializer.CodecFactory, object, old string) parityRequest {
	t.Helper()
	options := []func(*admission.Request){func(req *admission.Request) {
		req.UserInfo.Extra["example.com/none"] = authenticationv1.ExtraValue{}
	}}
	if old != "" {
		options = append(options, updating(t, old))
	}
	req := review(t, object, options...)
	if req.Kind.Kind == "Namespace" {
		req.Namespace = ""
	}
	decode := func(raw *[]byte) runtime.Object {
		if len(*raw) == 0 {
			return nil
		}
		object, _, err := codecs.UniversalDeserializer().Decode(*raw, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			custom := new(unstructured.Unstructured)
			must(t, custom.UnmarshalJSON(*raw))
			object, err = custom, nil
		}
		must(t, err)
		*raw, err = json.Marshal(object)
		must(t, err)
		return object
	}
	info := &user.DefaultInfo{Name: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups, Extra: map[string][]string{}}
	for key, value := range req.UserInfo.Extra {
		info.Extra[key] = value
	}
	out := parityRequest{}
	after, before := decode(&req.Object.Raw), decode(&req.OldObject.Raw)
	out.attributes = &apiserveradmission.VersionedAttributes{
		Attributes: apiserveradmission.NewAttributesRecord(after, before, schema.GroupVersionKind(req.Kind), req.Namespace, req.Name,
			schema.GroupVersionResource(req.Resource), "", apiserveradmission.Operation(req.Operation), nil, false, info),
		VersionedKind: schema.GroupVersionKind(req.Kind),
	}
	out.attributes.VersionedObject.Set(after)
	if before != nil {
		out.attributes.VersionedOldObject.Set(before)
	}
	out.Request = req
	return out
}

// upstreamEvaluator evaluates an expression as the API server does.
func upstreamEvaluator(t testing.TB, expression string) func(testing.TB, parityRequest) (string, int64) {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	must(t, err)
	compiled := compiler.CompileCondition([]plugincel.ExpressionAccessor{&validating.ValidationCondition{Expression: expression}},
		plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	for _, err := range compiled.CompilationErrors() {
		t.Errorf("%s: %v", expression, err)
		return nil
	}
	namespaces := specOf(t, strings.TrimPrefix(differentialContext, "\n")).Objects
	return func(t testing.TB, req parityRequest) (string, int64) {
		t.Helper()
		namespace, _ := namespaces.Namespace(req.Namespace)
		results, remaining, err := compiled.ForInput(context.Background(), req.attributes,
			plugincel.CreateAdmissionRequest(req.attributes, req.Resource, req.Kind), plugincel.OptionalVariableBindings{},
			plugincel.CreateNamespaceObject(namespace), celconfig.RuntimeCELCostBudget)
		must(t, err)
		cost := celconfig.RuntimeCELCostBudget - remaining
		if results[0].Error != nil {
			return strings.TrimPrefix(results[0].Error.Error(), "ErrorInternal: "), cost
		}
		return map[bool]string{true: string(policy.Passed), false: string(policy.Violated)}[results[0].EvalResult.Value().(bool)], cost
	}
}

// TestMatchConditionsSeeNoNamespace holds match conditions that read
// namespaceObject, of both kinds of policies, against the API server's.
func TestMatchConditionsSeeNoNamespace(t *testing.T) {
	t.Parallel()
	const objects = "\n---" + differentialContext
	req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}`)
	for _, expression := range []string{
		`namespaceObject == null || namespaceObject.metadata.name == 'lab'`,
		`namespaceObject != null`,
		`namespaceObject.metadata.name == 'shop'`,
		`has(namespaceObject.metadata)`,
	} {
		for _, failure := range []string{"Fail", "Ignore"} {
			body := "failurePolicy: " + failure + "\nmatchConditions: [{name: a, expression: " + toJSON(t, expression) +
				"}]\nvalidations: [{expression: \"namespaceObject.metadata.name != 'shop'\", message: namespace}]"
			const everything = "matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}]}\n"
			spec := specOf(t, differentialSpec("p", everything+body)+objects)
			set, err := policy.Compile(spec)
			must(t, err)
			want := newUpstream(t, spec).decide(t, req)
			if got := ours(t, decide(t, set, req)); toJSON(t, got) != toJSON(t, want) {
				t.Errorf("%s, %s:\n     got %s\nupstream %s", expression, failure, toJSON(t, got), toJSON(t, want))
			}
			own := compile(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  validationActions: [Deny]\n  "+
				strings.ReplaceAll(everything+body, "\n", "\n  ")+objects)
			if got := decide(t, own, req); got.Allowed != want.Allowed {
				t.Errorf("%s, %s, AdmissionPolicy: allowed %t, upstream %t", expression, failure, got.Allowed, want.Allowed)
			}
		}
	}
}

// TestParamsSameAsUpstream holds expressions over params, which are JSON for the
// API server whatever their kind.
func TestParamsSameAsUpstream(t *testing.T) {
	t.Parallel()
	const objects = `
---
apiVersion: example.com/v1
kind: Limit
metadata: {name: p, namespace: shop}
spec: {allowed: [a, b], all: "*", max: 3.0, half: 0.5, large: 1.0e+20, empty: {}, list: [], nothing: null, nested: [{a: 1}, {a: 2.0}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: p, namespace: shop}
data: {max: "3"}
---`
	req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}`)
	for _, expression := range []string{
		`params.spec.allowed == '*' || object.metadata.name in params.spec.allowed`,
		`params.spec.all == '*' || object.metadata.name in params.spec.all`,
		`params.spec == 'x' || params.spec.allowed != 1`,
		`params.spec.allowed[dyn(0.0)] == 'a'`,
		`dyn(1) in params.spec`,
		`params.spec[dyn(1)] == 'x'`,
		`type(params.spec.max) == int && type(params.spec.half) == double && type(params.spec.large) == double`,
		`params.spec.nested[1].a == 2 && type(params.spec.nested[1].a) == int`,
		`params.spec.nested == [{'a': 1}, {'a': 2}]`,
		`optional.ofNonZeroValue(params.spec.empty).hasValue() || optional.ofNonZeroValue(params.spec.list).hasValue()`,
		`params.spec.nothing == null`,
		`params.spec.allowed.join('') == 'ab'`,
		`params.data.max == '3' && params.kind == 'ConfigMap'`,
		`params.data == 1`,
		`dyn(1) in params.data`,
		`dyn(1) in params.metadata`,
		`params.metadata == {'name': 'p', 'namespace': 'shop'}`,
	} {
		for _, kind := range []string{"{apiVersion: example.com/v1, kind: Limit}", "{apiVersion: v1, kind: ConfigMap}"} {
			for _, failure := range []string{"Fail", "Ignore"} {
				spec := specOf(t, differentialSpec("p", "failurePolicy: "+failure+"\nparamKind: "+kind+
					"\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}]}"+
					"\nvalidations: [{expression: "+toJSON(t, expression)+"}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: p, parameterNotFoundAction: Deny}}")+
					objects+differentialContext)
				set, err := policy.Compile(spec)
				must(t, err)
				if got, want := toJSON(t, ours(t, decide(t, set, req))), toJSON(t, newUpstream(t, spec).decide(t, req)); got != want {
					t.Errorf("%s, %s, %s:\n     got %s\nupstream %s", expression, kind, failure, got, want)
				}
			}
		}
	}
}

// TestWebhookConfigurationsAreJudged holds which configuration of admission is
// exempt. No webhook is asked about either.
func TestWebhookConfigurationsAreJudged(t *testing.T) {
	t.Parallel()
	set := compile(t, denyAll("p", "", ""))
	for kind, exempt := range map[string]bool{
		"ValidatingWebhookConfiguration": false, "MutatingWebhookConfiguration": false,
		"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true, "MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true,
	} {
		req := review(t, "{apiVersion: admissionregistration.k8s.io/v1, kind: "+kind+", metadata: {name: x}}", func(req *admission.Request) {
			req.Resource.Resource = strings.TrimSuffix(strings.ToLower(kind), "y") + map[bool]string{true: "ies", false: "s"}[strings.HasSuffix(kind, "y")]
		})
		if got := decide(t, set, req); got.Allowed != exempt {
			t.Errorf("%s: allowed %t, want %t", kind, got.Allowed, exempt)
		}
	}
}

// TestAuditedFailures holds that the annotation of audited violations is JSON
// that fits into an answer, and upstream's where that fits.
func TestAuditedFailures(t *testing.T) {
	t.Parallel()
	const limit = 16 * 1024
	for name, c := range map[string]struct {
		rules   int
		message string
		entries int
		last    string
		same    bool
	}{
		"few":             {3, "short", 3, "short", true},
		"as many as fit":  {50, "short", 50, "short", true},
		"more than fifty": {60, "short", 50, "short", true},
		"long":            {10, strings.Repeat("é\"<", 900), 2, "… and 9 more", false},
		"one that does not fit": {
			1, strings.Repeat("<", 5000), 1, strings.Repeat("<", 2045) + "…", false,
		},
	} {
		rules := make([]string, c.rules)
		for i := range rules {
			rules[i] = "{expression: 'false', message: " + toJSON(t, c.message) + "}"
		}
		spec := specOf(t, differentialSpec("p", "matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}]}\nvalidations: ["+
			strings.Join(rules, ", ")+"]\nbindings:\n- {validationActions: [Audit]}")+"\n---"+differentialContext)
		set, err := policy.Compile(spec)
		must(t, err)
		req := review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}`)
		text := decide(t, set, req).AuditAnnotations["validation_failure"]
		var entries []validating.ValidationFailureValue
		if err := json.Unmarshal([]byte(text), &entries); err != nil || len(text) > limit {
			t.Errorf("%s: %d bytes: %v", name, len(text), err)
			continue
		}
		if len(entries) != c.entries || entries[len(entries)-1].Message != c.last {
			t.Errorf("%s: %d entries, the last %q", name, len(entries), entries[len(entries)-1].Message)
		}
		if want := newUpstream(t, spec).decide(t, req).Audit["validation.policy.admission.k8s.io/validation_failure"]; (text == want) != c.same {
			t.Errorf("%s: as upstream %t, want %t", name, text == want, c.same)
		}
	}
}
