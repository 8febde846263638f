package policy_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
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

// TestExpressionsSameAsUpstream holds the result, the error and the cost of
// expressions against those of the API server's own evaluator, which has objects
// of built-in kinds as Go values.
func TestExpressionsSameAsUpstream(t *testing.T) {
	t.Parallel()
	requests := map[string]parityRequest{}
	for name, texts := range parityObjects() {
		requests[name] = newParityRequest(t, texts[0], texts[1])
	}
	results := map[string]bool{}
	for _, expression := range expressionsOf(t, "typed") {
		evaluate := upstreamEvaluator(t, expression)
		set := compile(t, denyAll("p", "validations: [{expression: "+toJSON(t, expression)+"}]", "")+"\n---"+differentialContext)
		for name, req := range requests {
			want, cost := evaluate(t, req)
			d := set.Decide(context.Background(), policy.Input{Request: req.Request, Explain: true})
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

func newParityRequest(t testing.TB, object, old string) parityRequest {
	t.Helper()
	options := []func(*admission.Request){func(req *admission.Request) {
		req.UserInfo.Extra["example.com/none"] = authenticationv1.ExtraValue{}
	}}
	if old != "" {
		options = append(options, updating(t, old))
	}
	req := serialized(t, review(t, object, options...))
	if req.Kind.Kind == "Namespace" {
		req.Namespace = ""
	}
	after, before := typed(t, req.Object.Raw), typed(t, req.OldObject.Raw)
	out := parityRequest{req, &apiserveradmission.VersionedAttributes{
		Attributes: newRecorder(t, req, after, before).Attributes, VersionedKind: schema.GroupVersionKind(req.Kind),
	}}
	out.attributes.VersionedObject.Set(after)
	if before != nil {
		out.attributes.VersionedOldObject.Set(before)
	}
	return out
}

// upstreamEvaluator evaluates an expression as the API server does.
func upstreamEvaluator(t testing.TB, expression string) func(testing.TB, parityRequest) (string, int64) {
	t.Helper()
	compiled := withoutVariables().CompileCondition([]plugincel.ExpressionAccessor{&validating.ValidationCondition{Expression: expression}},
		plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	for _, err := range compiled.CompilationErrors() {
		t.Fatalf("%s: %v", expression, err)
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
	objects := "\n---" + differentialContext
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
			want := compare(t, expression+", "+failure, set, newUpstream(t, spec), ask(t, req))
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
	for _, expression := range expressionsOf(t, "params") {
		for _, kind := range []string{"{apiVersion: example.com/v1, kind: Limit}", "{apiVersion: v1, kind: ConfigMap}"} {
			for _, failure := range []string{"Fail", "Ignore"} {
				spec := specOf(t, differentialSpec("p", "failurePolicy: "+failure+"\nparamKind: "+kind+
					"\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}]}"+
					"\nvalidations: [{expression: "+toJSON(t, expression)+"}]\nbindings:\n- {validationActions: [Deny], paramRef: {name: p, parameterNotFoundAction: Deny}}")+
					objects+differentialContext)
				set, err := policy.Compile(spec)
				must(t, err)
				compare(t, expression+", "+kind+", "+failure, set, newUpstream(t, spec), ask(t, req))
			}
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
		if want := newUpstream(t, spec).decide(t, req).Audit[failuresKey]; (text == want) != c.same {
			t.Errorf("%s: as upstream %t, want %t", name, text == want, c.same)
		}
	}
}
