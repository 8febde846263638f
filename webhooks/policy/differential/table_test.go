package differential_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/test/support/dispatcher"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// everything matches every request.
const everything = `
matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}`

// typedRequests returns requests about objects of built-in kinds, which are Go values for the API server, and of a
// custom resource, some of them updates.
func typedRequests(t testing.TB) map[string]dispatcher.Asked {
	t.Helper()
	const (
		pod = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, creationTimestamp: "2026-01-02T03:04:05Z", labels: {app: web, team: ops}, annotations: {a: "1"}, finalizers: [x/a, x/b], ownerReferences: [{apiVersion: v1, kind: Node, name: node, uid: u, controller: true}],
  managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {}}}]},
 spec: {nodeSelector: {a: b}, containers: [{name: a, image: i, resources: {limits: {memory: 1Gi, cpu: 250m}}, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: http}}}, {name: b, image: j, args: [x, z], resources: {}, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}}],
  initContainers: [{name: b, image: j, args: [x, z], resources: {}, ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}}], securityContext: {}, tolerations: [{key: k, operator: Exists, tolerationSeconds: 300}], priority: 3}, status: {}}`
		thing = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: t, namespace: shop, labels: {app: web}, finalizers: [x/a]}, spec: {nodeSelector: {a: b}, containers: [{name: a, resources: {limits: {memory: 1Gi}}, args: []}], priority: 3.0, accessModes: [ReadWriteOnce], q: "100000000000000000000000000000000000000000Ki"}, data: {x: "NaN"}}`
	)
	larger := strings.NewReplacer("1Gi", `"1073741824"`, "300", "301").Replace(pod)
	out := map[string]dispatcher.Asked{}
	for name, texts := range map[string][2]string{
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
	} {
		options := []func(*admission.Request){func(req *admission.Request) {
			if req.Kind.Kind == "Namespace" {
				req.Namespace = "" // namespaceObject is null
			}
		}}
		if texts[1] != "" {
			options = append(options, func(req *admission.Request) {
				req.Operation, req.OldObject.Raw = admissionv1.Update, asJSON(t, texts[1])
			})
		}
		out[name] = dispatcher.Ask(t, serialized(t, review(t, texts[0], options...)))
	}
	return out
}

// tablePolicies returns every policy's spec, written so that each matters for
// some of the requests. A line "bindings:" separates the specs of bindings,
// without which there is one that denies.
func tablePolicies(t testing.TB) map[string]string {
	t.Helper()
	const workloads = `
matchConstraints: {resourceRules: [{apiGroups: ["apps", ""], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["deployments", "pods"]}]}`
	out := map[string]string{
		"deny-all":             everything + "\nvalidations: [{expression: 'false', message: no}]",
		"deny-reason":          everything + "\nvalidations: [{expression: 'false', reason: Forbidden}, {expression: 'false', reason: RequestEntityTooLarge}]",
		"audit-warn":           everything + "\nvalidations: [{expression: 'false', message: one}, {expression: 'true'}, {expression: '1 == 2'}]\nbindings:\n- {validationActions: [Audit, Warn]}\n- {validationActions: [Warn]}\n- {validationActions: [Audit]}",
		"error-audit":          everything + "\nvalidations: [{expression: 'object.spec.nothing == 1'}]\nbindings:\n- {validationActions: [Audit]}",
		"message-long":         workloads + "\nvalidations:\n- {expression: 'false', message: fallback, messageExpression: \"'" + strings.Repeat("x", 5200) + "'\"}",
		"message-error":        workloads + "\nvalidations:\n- {expression: 'false', messageExpression: \"'a' + object.nothing\"}",
		"condition-par":        everything + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nmatchConditions:\n- {name: p, expression: \"params.data.team == 'ops'\"}\nvalidations: [{expression: 'false', message: ops}]\nbindings:\n- {validationActions: [Deny], paramRef: {selector: {}, namespace: shop, parameterNotFoundAction: Deny}}",
		"variables":            workloads + "\nvariables:\n- {name: spec, expression: \"has(object.spec.template) ? object.spec.template.spec : object.spec\"}\n- {name: images, expression: 'variables.spec.containers.map(c, c.image)'}\n- {name: unused, expression: 'object.nothing.at.all'}\nvalidations:\n- {expression: \"variables.images.all(i, i.startsWith('registry.example.com/'))\", messageExpression: \"'bad: ' + variables.images.join(', ')\"}",
		"variable-error":       workloads + "\nvariables: [{name: broken, expression: 'object.nothing.at.all'}]\nvalidations:\n- {expression: \"request.operation == 'CREATE' || variables.broken == 1\"}",
		"audit":                everything + "\nauditAnnotations:\n- {key: who, valueExpression: \"'user ' + request.userInfo.username\"}\n- {key: none, valueExpression: 'null'}\n- {key: blank, valueExpression: \"'  '\"}\n- {key: maybe, valueExpression: \"request.operation == 'DELETE' ? 'gone' : ''\"}",
		"audit-params":         everything + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nauditAnnotations: [{key: team, valueExpression: 'string(params.data.team)'}]\nbindings:\n- {validationActions: [Deny], paramRef: {selector: {matchLabels: {use: limits}}, namespace: shop, parameterNotFoundAction: Deny}}\n- {validationActions: [Deny], paramRef: {name: limits, namespace: shop, parameterNotFoundAction: Deny}}",
		"params-name":          workloads + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: \"!has(object.spec.replicas) || object.spec.replicas <= int(params.data.maxReplicas)\", messageExpression: \"'at most ' + params.data.maxReplicas + ' by ' + params.metadata.name + ' ' + params.kind + ' ' + params.apiVersion\"}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Allow}}\n- {validationActions: [Audit], paramRef: {name: limits-2, namespace: shop, parameterNotFoundAction: Deny}}",
		"params-none":          everything + "\nparamKind: {apiVersion: v1, kind: ConfigMap}\nvalidations: [{expression: 'params == null', message: given}]\nbindings:\n- {validationActions: [Deny]}\n- {validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}",
		"params-secret":        workloads + "\nparamKind: {apiVersion: v1, kind: Secret}\nvalidations: [{expression: \"params.data.word != 'c2VzYW1l'\", message: typed}, {expression: \"!has(params.stringData) && type(params.data.word) != string\", message: string}]\nbindings:\n- {validationActions: [Audit], paramRef: {name: words, namespace: lab, parameterNotFoundAction: Deny}}",
		"params-cluster":       everything + "\nparamKind: {apiVersion: example.com/v1, kind: ClusterLimit}\nvalidations: [{expression: \"params.spec.maxReplicas == 4 && params.spec.weights[1] == 2.5\"}, {expression: \"!has(object.spec.replicas) || object.spec.replicas < params.spec.maxReplicas\"}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: global, parameterNotFoundAction: Deny}}",
		"authorizer":           everything + "\nvalidations:\n- {expression: \"authorizer.group('').resource('pods').namespace('shop').check('get').allowed()\", messageExpression: \"'not ' + request.userInfo.username\"}\n- {expression: \"authorizer.requestResource.check('get').reason() == 'x'\", messageExpression: \"'y'\"}",
		"authorizer-error":     everything + "\nvalidations: [{expression: \"authorizer.group('apps').resource('x').check('fail').errored()\"}, {expression: \"authorizer.group('').resource('x').check('fail').allowed()\"}, {expression: \"authorizer.serviceAccount('shop', 'web').group('').resource('pods').check('get').allowed()\"}]",
		"authorizer-variable":  everything + "\nvariables: [{name: may, expression: \"authorizer.group('').resource('pods').check('get').allowed()\"}]\nvalidations: [{expression: variables.may, messageExpression: \"'may: ' + string(variables.may)\", message: fallback}]\nauditAnnotations: [{key: may, valueExpression: 'string(variables.may)'}]",
		"condition-late-error": everything + "\nmatchConditions: [{name: a, expression: 'object.spec.nothing == 1'}, {name: b, expression: 'false'}]\nvalidations: [{expression: 'false', message: no}]",
		"variable-twice":       everything + "\nvariables: [{name: a, expression: '1'}, {name: b, expression: 'variables.a + 1'}, {name: a, expression: '5'}]\nvalidations: [{expression: variables.b == 2, message: two}, {expression: variables.b == 6, message: six}]",
		"variable-names":       everything + "\nvariables: [{name: a__b, expression: '1'}, {name: a__dot__b, expression: '2'}]\nvalidations: [{expression: variables.a__b == 1, message: one}, {expression: variables.a__dot__b == 2, message: two}]",
		"variables-whole":      everything + "\nvariables: [{name: a, expression: '1'}, {name: b, expression: \"'x'\"}]\nvalidations: [{expression: \"dyn(variables).size() == 2\", message: size}, {expression: \"'a' in dyn(variables)\", message: has}, {expression: \"has(variables.a)\", message: there}, {expression: \"variables == variables\", message: same}, {expression: \"dyn(variables).c == 1\"}]",
		"variable-types":       everything + "\nvariables: [{name: l, expression: '[1, 2]'}, {name: m, expression: \"{'a': [1]}\"}, {name: o, expression: 'object.?spec'}, {name: ns, expression: namespaceObject}, {name: t, expression: \"duration('1s')\"}]\nvalidations: [{expression: 'variables.l[0] + 1 == 2'}, {expression: \"variables.m['a'][0] == 1\"}, {expression: 'variables.o.hasValue()', message: spec}, {expression: \"variables.ns == null || variables.ns.metadata.name == 'shop'\", message: ns}, {expression: \"variables.t < duration('2s')\"}]",
	}
	for i, expression := range expressionsOf(t, "params") {
		for _, kind := range []string{"{apiVersion: example.com/v1, kind: Limit}", "{apiVersion: v1, kind: ConfigMap}"} {
			out[fmt.Sprintf("params-%02d-%t", i, strings.Contains(kind, "Limit"))] = everything + "\nparamKind: " + kind + "\nvalidations: [{expression: " + toJSON(t, expression) +
				"}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: p, parameterNotFoundAction: Deny}}"
		}
	}
	// Match conditions have no namespaceObject.
	for i, expression := range []string{`namespaceObject == null || namespaceObject.metadata.name == 'lab'`, `namespaceObject.metadata.name == 'shop'`, `has(namespaceObject.metadata)`} {
		out[fmt.Sprintf("condition-ns-%d", i)] = everything + "\nmatchConditions: [{name: a, expression: " + toJSON(t, expression) + "}]\nvalidations: [{expression: 'false', message: namespace}]"
	}
	return out
}

// policyText returns one of the policies with its bindings.
func policyText(name, text string) string {
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

// TestTableSameAsUpstream holds each policy of the table alone, and all at once, for every request.
func TestTableSameAsUpstream(t *testing.T) {
	t.Parallel()
	requests := typedRequests(t)
	documents := map[string]string{}
	for name, text := range tablePolicies(t) {
		documents[name] = policyText(name, text)
	}
	documents["all of them"] = strings.Join(slices.Collect(maps.Values(documents)), "\n---\n")
	n := 0
	for name, text := range documents {
		set, reference := compile(t, text)
		for request, a := range requests {
			if n++; race.Enabled && n%4 != 0 {
				continue // others each time: maps have no order
			}
			if found := difference(t, set, reference, a); found != "" {
				t.Errorf("%s, %s:\n%s", name, request, found)
			}
		}
	}
}

// TestCompilesAsUpstream holds that what does not compile here does not compile
// in the API server either, and the reverse.
func TestCompilesAsUpstream(t *testing.T) {
	t.Parallel()
	request := dispatcher.Ask(t, review(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}`))
	for _, expression := range slices.Concat(expressionsOf(t, "everything"), expressionsOf(t, "compile"), []string{""}) {
		spec := specOf(t, policyText("p", everything+"\nvalidations: [{expression: "+toJSON(t, expression)+"}]"))
		_, err := policy.Compile(spec)
		first := newUpstream(t, spec).Dispatch(t, request).First
		if (err != nil) != strings.Contains(first, "compilation error: ") {
			t.Errorf("%s: Compile says %v, upstream %q", expression, err, first)
		}
	}
}

// TestExpressionsSameAsUpstream holds the result, the error and the cost of
// expressions against those of the API server's own evaluator.
func TestExpressionsSameAsUpstream(t *testing.T) {
	t.Parallel()
	requests := typedRequests(t)
	results := map[string]bool{}
	for _, expression := range slices.Concat(expressionsOf(t, "everything"), expressionsOf(t, "typed")) {
		compiled := dispatcher.WithoutVariables().CompileCondition([]plugincel.ExpressionAccessor{&validating.ValidationCondition{Expression: expression}},
			plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
		set, _ := compile(t, policyText("p", everything+"\nvalidations: [{expression: "+toJSON(t, expression)+"}]"))
		for name, a := range requests {
			want, cost := evaluate(t, compiled, a)
			d := set.Decide(t.Context(), policy.Input{Request: a.Sent, Explain: true})
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

// evaluate returns the result of an expression and its cost in the API server.
func evaluate(t testing.TB, compiled plugincel.ConditionEvaluator, a dispatcher.Asked) (string, int64) {
	t.Helper()
	attributes := &apiserveradmission.VersionedAttributes{Attributes: dispatcher.AttributesOf(t, a), VersionedKind: schema.GroupVersionKind(a.Sent.Kind)}
	attributes.VersionedObject.Set(a.Object)
	if a.OldObject != nil {
		attributes.VersionedOldObject.Set(a.OldObject)
	}
	namespace, _ := known().Namespace(a.Sent.Namespace)
	results, remaining, err := compiled.ForInput(context.Background(), attributes, plugincel.CreateAdmissionRequest(attributes, a.Sent.Resource, a.Sent.Kind),
		plugincel.OptionalVariableBindings{Authorizer: randomAuthorizer{}}, plugincel.CreateNamespaceObject(namespace), celconfig.RuntimeCELCostBudget)
	must(t, err)
	cost := celconfig.RuntimeCELCostBudget - remaining
	if results[0].Error != nil {
		return strings.TrimPrefix(results[0].Error.Error(), "ErrorInternal: "), cost
	}
	return map[bool]string{true: string(policy.Passed), false: string(policy.Violated)}[results[0].EvalResult.Value().(bool)], cost
}
