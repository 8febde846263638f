package policy_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// denyAll returns a policy about everything that is always violated. Its first
// argument is its name, the second goes into the spec, the third into the
// binding.
func denyAll(name, spec, binding string) string {
	var fields []string
	for _, field := range []struct{ name, otherwise string }{
		{"matchConstraints", `matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}`},
		{"validations", `validations: [{expression: "false", message: ` + name + `}]`},
	} {
		if !strings.Contains(spec, field.name) {
			fields = append(fields, field.otherwise)
		}
	}
	if spec != "" {
		fields = append(fields, spec)
	}
	spec = strings.Join(fields, ", ")
	if !strings.Contains(binding, "validationActions") {
		binding = strings.TrimSuffix("validationActions: [Deny], "+binding, ", ")
	}
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec: {%[2]s}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, %[3]s}`, name, spec, binding)
}

func documents(list ...string) string { return strings.Join(list, "\n---\n") }

const (
	configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, labels: {team: ops}}, data: {a: b}}`
	labelled  = `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: prod}}}`
)

func TestReviewVerdicts(t *testing.T) {
	t.Parallel()
	deployment := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 9}}`
	asked := func(version string) func(*admission.Request) {
		return func(req *admission.Request) {
			req.RequestResource, req.RequestKind = new(req.Resource), new(req.Kind)
			req.RequestResource.Version, req.RequestKind.Version = version, version
		}
	}
	sent := func(version string) func(*admission.Request) {
		return func(req *admission.Request) { req.Resource.Version, req.Kind.Version = version, version }
	}
	both := func(options ...func(*admission.Request)) func(*admission.Request) {
		return func(req *admission.Request) {
			for _, option := range options {
				option(req)
			}
		}
	}
	none := func(*admission.Request) {}
	apps := func(match string) string {
		return denyAll("p", `matchConstraints: {`+match+`resourceRules: [{apiGroups: ["apps"], apiVersions: ["v1"], operations: ["CREATE"], resources: ["deployments"]}]}`, "")
	}
	const unconverted = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed to configure binding: failed to convert object version: the object was sent as apps/%s, and the policy names apps/v1: name the versions of policies in the webhook configuration, with matchPolicy Equivalent"
	const denied = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: p"
	const unknown = "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: namespace \"shop\" is not known, and its labels decide (hint: if it is new, try again in a few seconds)"
	namespaceSelector := func(selector string) string {
		return `matchConstraints: {namespaceSelector: ` + selector + `, resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}`
	}
	for _, tc := range []struct {
		name      string
		documents string
		object    string
		options   func(*admission.Request)
		want      string // verdict, or the message of a denial
	}{
		// Forms of a request.
		{"the version that the policy names", apps(""), deployment, none, denied},
		{"another version, converted", apps(""), deployment, asked("v1beta1"), denied},
		{"another version, not converted", apps(""), deployment, sent("v1beta1"), fmt.Sprintf(unconverted, "v1beta1")},
		{"another version, not converted, failure ignored", strings.Replace(apps(""), "matchConstraints", "failurePolicy: Ignore, matchConstraints", 1), deployment, sent("v1beta1"), "allowed"},
		{"another version, not converted, operation not meant", apps(""), deployment, both(sent("v1beta1"), deleting), "allowed"},
		{"another version, exactly", apps("matchPolicy: Exact, "), deployment, sent("v1beta1"), "allowed"},
		{"another version, exactly, converted", apps("matchPolicy: Exact, "), deployment, asked("v1beta1"), "allowed"},
		{"the version, exactly", apps("matchPolicy: Exact, "), deployment, none, denied},
		{"the version, exactly, but converted to another", apps("matchPolicy: Exact, "), deployment, both(asked("v1"), sent("v2")), fmt.Sprintf(unconverted, "v2")},
		{"the version, converted to another", apps(""), deployment, both(asked("v1"), sent("v2")), fmt.Sprintf(unconverted, "v2")},
		{"all versions, converted", strings.Replace(apps(""), `apiVersions: ["v1"]`, `apiVersions: ["*"]`, 1), deployment, asked("v1beta1"), denied},
		{"an equivalent of another group", apps(""), deployment, func(req *admission.Request) {
			req.RequestResource = &metav1.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}
			req.RequestKind = &metav1.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Deployment"}
		}, denied},
		{"excluded in another version", apps(`excludeResourceRules: [{apiGroups: ["apps"], apiVersions: ["v1beta1"], operations: ["*"], resources: ["*"]}], `), deployment, none, denied},
		{"excluded in another version that may be served", strings.ReplaceAll(apps(`excludeResourceRules: [{apiGroups: ["apps"], apiVersions: ["v2"], operations: ["*"], resources: ["*"]}], `), `"apps"`, `"example.org"`), deployment, func(req *admission.Request) {
			req.Resource.Group, req.RequestResource = "example.org", nil
		}, `ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: the object is example.org/v1, and excluded as example.org/v2, of which it is not known whether the API server has it`},
		{"excluded in another version, exactly", apps(`matchPolicy: Exact, excludeResourceRules: [{apiGroups: ["apps"], apiVersions: ["v1beta1"], operations: ["*"], resources: ["*"]}], `), deployment, none, denied},
		{"bound in another version", denyAll("p", "", `matchResources: {resourceRules: [{apiGroups: ["apps"], apiVersions: ["v1beta1"], operations: ["*"], resources: ["*"]}]}`), deployment, none, "allowed"},
		{"an old request without the resource that was asked for", apps(""), deployment, func(req *admission.Request) { req.RequestResource = &req.Resource }, denied},

		// Namespaces.
		{"namespace selected", documents(denyAll("p", namespaceSelector("{matchLabels: {env: prod}}"), ""), labelled), configMap, none, denied},
		{"namespace not selected", documents(denyAll("p", namespaceSelector("{matchLabels: {env: test}}"), ""), labelled), configMap, none, "allowed"},
		{"namespace not known", denyAll("p", namespaceSelector("{matchLabels: {env: prod}}"), ""), configMap, none, unknown},
		{"namespace not known, failure ignored", denyAll("p", "failurePolicy: Ignore, "+namespaceSelector("{matchLabels: {env: prod}}"), ""), configMap, none, "allowed"},
		{"namespace not known, object not selected", denyAll("p", strings.Replace(namespaceSelector("{matchLabels: {env: prod}}"), "namespaceSelector", "objectSelector: {matchLabels: {team: x}}, namespaceSelector", 1), ""), configMap, none, "allowed"},
		{"namespace not known, for a binding", denyAll("p", "", "matchResources: {namespaceSelector: {matchLabels: {env: prod}}}"), configMap, none, `ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed to configure binding: namespace "shop" is not known, and its labels decide (hint: if it is new, try again in a few seconds)`},
		{"namespace not known, selected by name", denyAll("p", namespaceSelector("{matchLabels: {kubernetes.io/metadata.name: shop}}"), ""), configMap, none, denied},
		{"namespace not known, rejected by name", denyAll("p", namespaceSelector("{matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [shop]}]}"), ""), configMap, none, "allowed"},
		{"namespace not known, rejected by name whatever else", denyAll("p", namespaceSelector("{matchLabels: {env: prod, kubernetes.io/metadata.name: lab}}"), ""), configMap, none, "allowed"},
		{"namespace not known, a label must be missing", denyAll("p", namespaceSelector("{matchExpressions: [{key: env, operator: DoesNotExist}]}"), ""), configMap, none, unknown},
		{"namespace not known, all selected", denyAll("p", namespaceSelector("{}"), ""), configMap, none, denied},
		{"namespace not known and looked at", denyAll("p", `validations: [{expression: "namespaceObject != null"}]`, ""), configMap, none, `ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed to configure binding: namespace "shop" is not known, and namespaceObject is used (hint: if it is new, try again in a few seconds)`},
		{"namespace not known and looked at, failure ignored", denyAll("p", `failurePolicy: Ignore, validations: [{expression: "namespaceObject != null"}]`, ""), configMap, none, "allowed"},
		{"cluster-scoped is in every namespace", denyAll("p", namespaceSelector("{matchLabels: {env: prod}}"), ""), `{apiVersion: v1, kind: Node, metadata: {name: n1}}`, none, denied},
		{"new namespace by its own labels", denyAll("p", namespaceSelector("{matchLabels: {env: prod}}"), ""), labelled, none, denied},
		{"new namespace by its own labels, not selected", denyAll("p", namespaceSelector("{matchLabels: {env: test}}"), ""), labelled, none, "allowed"},
		{"updated namespace by its new labels", denyAll("p", namespaceSelector("{matchLabels: {env: prod}}"), ""), labelled, updating(t, `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`), denied},
		{"updated namespace not by its old labels", denyAll("p", namespaceSelector("{matchLabels: {env: test}}"), ""), labelled, updating(t, `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: test}}}`), "allowed"},
		{"deleted namespace by its old labels", denyAll("p", namespaceSelector("{matchLabels: {env: prod}}"), ""), labelled, deleting, denied},
		{"status of a namespace by its old labels", denyAll("p", namespaceSelector("{matchLabels: {env: prod}}"), ""), `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`, both(updating(t, labelled), func(req *admission.Request) { req.SubResource = "status" }), denied},

		// Objects.
		{"object selected by its old labels", denyAll("p", strings.Replace(namespaceSelector("{}"), "namespaceSelector", "objectSelector: {matchLabels: {team: dev}}, namespaceSelector", 1), ""), configMap, updating(t, strings.Replace(configMap, "ops", "dev", 1)), denied},
		{"options of CONNECT have no labels", denyAll("p", "", "matchResources: {objectSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}"), `{apiVersion: v1, kind: PodExecOptions, command: [sh]}`, func(req *admission.Request) {
			req.Operation, req.Resource.Resource, req.SubResource = "CONNECT", "pods", "exec"
		}, "allowed"},
		{"object without labels", denyAll("p", "", "matchResources: {objectSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}"), `{apiVersion: v1, kind: ConfigMap}`, none, denied},
		{"object is null on DELETE", denyAll("p", `validations: [{expression: "object == null && oldObject.data.a == 'b'"}]`, ""), configMap, deleting, "allowed"},
		{"old object is null on CREATE", denyAll("p", `validations: [{expression: "oldObject == null && object.data.a == 'b'"}]`, ""), configMap, none, "allowed"},

		// What is never looked at.
		{"policies themselves", denyAll("p", "", ""), `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: p}}`, func(req *admission.Request) { req.Resource.Resource = "validatingadmissionpolicies" }, "allowed"},
		{"bindings", denyAll("p", "", ""), `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: p}}`, none, "allowed"},
		{"mutating policies", denyAll("p", "", ""), `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: p}}`, func(req *admission.Request) { req.Resource.Resource = "mutatingadmissionpolicies" }, "allowed"},
		{"their bindings", denyAll("p", "", ""), `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: p}}`, none, "allowed"},
		{"token reviews", denyAll("p", "", ""), `{apiVersion: authentication.k8s.io/v1, kind: TokenReview}`, none, "allowed"},
		{"access reviews", denyAll("p", "", ""), `{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview}`, none, "allowed"},
		{"our own kinds", denyAll("p", "", ""), `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicy, metadata: {name: p}}`, none, "allowed"},

		// What API servers ask no webhook about, but their own policies.
		{"webhook configurations", denyAll("p", "", ""), `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: p}}`, deleting, "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: p"},
		{"mutating webhook configurations", denyAll("p", "", ""), `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: p}}`, deleting, "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: p"},

		// Params.
		{"params of a kind that extends Kubernetes", documents(
			denyAll("p", `paramKind: {apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass}, validations: [{expression: "params.spec.controllerName == 'x'"}]`, "paramRef: {name: l, parameterNotFoundAction: Deny}"),
			`{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: l}, spec: {controllerName: x}}`), configMap, none, "allowed"},
		{"cluster-scoped custom params", documents(
			denyAll("p", `paramKind: {apiVersion: example.com/v1, kind: Limit}, validations: [{expression: "object.metadata.name != params.spec.name", messageExpression: "'not ' + params.metadata.name"}]`, "paramRef: {name: l, parameterNotFoundAction: Deny}"),
			`{apiVersion: example.com/v1, kind: Limit, metadata: {name: l}, spec: {name: settings}}`), configMap, none, "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not l"},
		{"known cluster-scoped params", documents(
			denyAll("p", `paramKind: {apiVersion: storage.k8s.io/v1, kind: StorageClass}, validations: [{expression: "params.provisioner == 'x'"}]`, "paramRef: {name: l, parameterNotFoundAction: Deny}"),
			`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: l}, provisioner: x}`), configMap, none, "allowed"},
		{"params in the namespace of the request", documents(
			denyAll("p", `paramKind: {apiVersion: example.com/v1, kind: Limit}`, "paramRef: {name: l, parameterNotFoundAction: Allow}"),
			`{apiVersion: example.com/v1, kind: Limit, metadata: {name: l, namespace: shop}}`), configMap, none, denied},
		{"params in another namespace than the request", documents(
			denyAll("p", `paramKind: {apiVersion: example.com/v1, kind: Limit}`, "paramRef: {name: l, parameterNotFoundAction: Allow}"),
			`{apiVersion: example.com/v1, kind: Limit, metadata: {name: l, namespace: lab}}`), configMap, none, "allowed"},
		{"params without a context", denyAll("p", `paramKind: {apiVersion: example.com/v1, kind: Limit}`, "paramRef: {selector: {}, parameterNotFoundAction: Deny}"), configMap, none, "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction: there is no Limit in namespace \"shop\" (hint: create it)"},

		// AdmissionPolicies.
		{"an AdmissionPolicy is in force without a binding", ownCEL("", "[Deny]"), configMap, none, "AdmissionPolicy 'own' denied request: not b"},
		{"an AdmissionPolicy has match conditions", ownCEL(`matchConditions: [{name: c, expression: "request.userInfo.username == 'bob'"}], `, "[Deny]"), configMap, none, "allowed"},
		{"an AdmissionPolicy in a namespace that is not known", strings.Replace(ownCEL("", "[Warn]"), "object.data.a", "namespaceObject.metadata.name", 1), configMap, none, `AdmissionPolicy 'own' denied request: failed to configure policy: namespace "shop" is not known, and namespaceObject is used (hint: if it is new, try again in a few seconds)`},
		{"an AdmissionPolicy fails closed", strings.Replace(ownCEL("", "[Deny]"), "object.data.a", "object.data.x", 1), configMap, none, "AdmissionPolicy 'own' denied request: expression 'object.data.x != variables.b' resulted in error: no such key: x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			response := decide(t, compile(t, tc.documents), review(t, tc.object, tc.options))
			got := verdict(response)
			if got == "denied" {
				got = message(response)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func ownCEL(spec, actions string) string {
	return `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: own}
spec: {` + spec + `matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}]},
  variables: [{name: b, expression: "'b'"}], validations: [{expression: "object.data.a != variables.b", messageExpression: "'not ' + variables.b"}], validationActions: ` + actions + `}`
}

// TestHostileObjects holds that an object that cannot be read is never allowed
// or refused, but only if a policy has to read it.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	selecting := denyAll("p", "", "matchResources: {objectSelector: {matchLabels: {team: x}}}")
	constrained := denyAll("p", `matchConstraints: {objectSelector: {matchLabels: {team: x}}, resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}`, "")
	looking := denyAll("p", `validations: [{expression: "object.data.a == 'b'"}]`, "")
	restricted := strings.Replace(restrictedPolicy, "[Deny]", "[Warn]", 1)
	const blind = "request.userInfo.username == 'alice'"
	for _, tc := range []struct {
		name, raw string
		// selects, looks, checks are the verdicts of a selector, an expression and
		// podSecurity.
		selects, looks, checks string
	}{
		{"empty object", `{}`, "allowed", "denied", "allowed"},
		{"no JSON", `{"a"`, "cannot decide", "cannot decide", "cannot decide"},
		{"two values", `{} {}`, "cannot decide", "cannot decide", "cannot decide"},
		{"a list", `[]`, "cannot decide", "cannot decide", "cannot decide"},
		{"a string", `"x"`, "cannot decide", "cannot decide", "cannot decide"},
		{"not UTF-8", "{\"a\":\"\xff\"}", "cannot decide", "cannot decide", "cannot decide"},
		{"a key twice", `{"data":{"a":"b"},"data":{"a":"c"}}`, "cannot decide", "cannot decide", "cannot decide"},
		{"metadata twice", `{"metadata":{"labels":{"team":"y"}},"metadata":{"labels":{"team":"x"}},"data":{"a":"b"}}`, "cannot decide", "cannot decide", "cannot decide"},
		{"a label twice", `{"metadata":{"labels":{"team":"y","team":"x"}}}`, "cannot decide", "cannot decide", "allowed"},
		{"a label twice, once with an escape", `{"metadata":{"labels":{"team":"y","te\u0061m":"x"}}}`, "cannot decide", "cannot decide", "allowed"},
		{"a deep key twice", `{"spec":{"containers":[{"name":"a","image":"a","image":"b"}]}}`, "cannot decide", "cannot decide", "cannot decide"},
		{"labels that are a list", `{"metadata":{"labels":["team"]},"data":{"a":"b"}}`, "cannot decide", "allowed", "allowed"},
		{"a label that is a number", `{"metadata":{"labels":{"team":1}},"data":{"a":"b"}}`, "cannot decide", "allowed", "allowed"},
		{"labels that are null", `{"metadata":{"labels":null},"data":{"a":"b"}}`, "allowed", "allowed", "allowed"},
		{"metadata that is a string", `{"metadata":"x","data":{"a":"b"}}`, "allowed", "allowed", "cannot decide"},
		{"another case", `{"Metadata":{"Labels":{"team":"x"}},"Data":{"a":"b"},"data":{"A":"b"}}`, "allowed", "denied", "allowed"},
		{"containers that are an object", `{"spec":{"containers":{"a":1}},"data":{"a":"b"}}`, "allowed", "allowed", "cannot decide"},
		{"null", `null`, "allowed", "denied", "allowed"},
		{"nothing", ``, "allowed", "denied", "allowed"},
		{"too deep", strings.Repeat(`{"a":`, 10_001) + "1" + strings.Repeat("}", 10_001), "cannot decide", "cannot decide", "cannot decide"},
		{"a number out of range", `{"data":{"a":"b"},"n":1e999}`, "cannot decide", "cannot decide", "allowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			pod := func(req *admission.Request) {
				req.Object.Raw = []byte(tc.raw)
				req.Kind = metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
				req.Resource = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
			}
			for text, want := range map[string]string{
				selecting:   tc.selects,
				constrained: tc.selects,
				looking:     tc.looks,
				restricted:  tc.checks,
				denyAll("p", `validations: [{expression: "`+blind+`"}]`, ""): "allowed",
			} {
				response := decide(t, compile(t, text), review(t, configMap, pod))
				if got := verdict(response); got != want {
					t.Errorf("%s: got %s %q, want %s", text, got, message(response), want)
				}
			}
		})
	}
}

// TestWithoutContext holds that a set without objects knows nothing, and says so.
func TestWithoutContext(t *testing.T) {
	t.Parallel()
	spec := specOf(t, documents(
		denyAll("a", `validations: [{expression: "namespaceObject == null"}]`, ""),
		denyAll("b", `paramKind: {apiVersion: v1, kind: ConfigMap}`, "paramRef: {name: a, parameterNotFoundAction: Deny}"),
		denyAll("c", `paramKind: {apiVersion: example.com/v1, kind: Limit}`, "paramRef: {selector: {}, parameterNotFoundAction: Allow}"),
	))
	spec.Objects = nil
	set, err := policy.Compile(spec)
	must(t, err)
	const want = `2 violations: 1. ValidatingAdmissionPolicy 'a' with binding 'a' denied request: failed to configure binding: namespace "shop" is not known, and namespaceObject is used (hint: if it is new, try again in a few seconds)
2. ValidatingAdmissionPolicy 'b' with binding 'b' denied request: failed to configure binding: no params found for policy binding with ` + "`Deny` parameterNotFoundAction: there is no ConfigMap \"a\" in namespace \"shop\" (hint: create it)"
	if got := message(decide(t, set, review(t, configMap))); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestManyViolations(t *testing.T) {
	t.Parallel()
	set := compile(t, documents(
		denyAll("b", `validations: [{expression: "false", message: one, reason: Forbidden}, {expression: "true"}, {expression: "1 ==\n  2"}]`, ""),
		ownCEL("", "[Deny]"),
		denyAll("a", `validations: [{expression: "false", reason: RequestEntityTooLarge, message: large}]`, ""),
	))
	response := decide(t, set, review(t, configMap))
	const want = `4 violations: 1. ValidatingAdmissionPolicy 'a' with binding 'a' denied request: large
2. ValidatingAdmissionPolicy 'b' with binding 'b' denied request: one
3. ValidatingAdmissionPolicy 'b' with binding 'b' denied request: failed expression: 1 ==
     2
4. AdmissionPolicy 'own' denied request: not b`
	if got := message(response); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r := response.Result; r.Code != 413 || r.Reason != metav1.StatusReasonRequestEntityTooLarge || r.Status != metav1.StatusFailure {
		t.Errorf("got code %d, reason %s, status %s", r.Code, r.Reason, r.Status)
	}
	d := response.Result.Details
	if d == nil || d.Name != "settings" || d.Kind != "configmaps" || len(d.Causes) != 4 || d.Causes[3].Message != "AdmissionPolicy 'own' denied request: not b" {
		t.Errorf("got details %+v", d)
	}
}

func TestContact(t *testing.T) {
	t.Parallel()
	with := func(of string) string {
		return "metadata: {name: p, annotations: {gatehouse.dev/contact: '" + of + "'}}"
	}
	rule := `validations: [{expression: "false", message: never}]`
	for name, tc := range map[string]struct{ policy, binding, want string }{
		"neither":          {"metadata: {name: p}", "metadata: {name: p}", ""},
		"of the policy":    {with("#platform"), "metadata: {name: p}", " (contact: #platform)"},
		"of the binding":   {with("#platform"), with("team a"), " (contact: team a)"},
		"too long":         {with(strings.Repeat("a", 257)), "metadata: {name: p}", ""},
		"more than a line": {"metadata: {name: p, annotations: {gatehouse.dev/contact: \"a\\nb\"}}", "metadata: {name: p}", ""},
		"bidirectional":    {"metadata: {name: p, annotations: {gatehouse.dev/contact: \"a\\u202Eb\"}}", "metadata: {name: p}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for message, shown := range map[string]string{"never": "never", strings.Repeat("a", 9000): "…"} {
				text := denyAll("p", strings.Replace(rule, "never", message, 1), "")
				text = strings.Replace(text, "metadata: {name: p}", tc.policy, 1)
				at := strings.LastIndex(text, "metadata: {name: p}")
				text = text[:at] + tc.binding + text[at+len("metadata: {name: p}"):]
				got := decide(t, compile(t, text), review(t, configMap)).Result.Message
				if !strings.HasSuffix(got, shown+tc.want) || len(got) > 8*1024 {
					t.Errorf("got %q", got[max(0, len(got)-100):])
				}
			}
		})
	}
}

func TestNameOfAnObjectWithoutOne(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: settings-}}`: "settings-",
		`{apiVersion: v1, kind: ConfigMap}`:                                      "",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}`:          "settings",
	} {
		response := decide(t, compile(t, denyAll("p", "", "")), review(t, object, func(r *admission.Request) { r.Name = "" }))
		if got := response.Result.Details.Name; got != want {
			t.Errorf("%s: got %q, want %q", object, got, want)
		}
	}
}

func TestMessageBounds(t *testing.T) {
	t.Parallel()
	rules := func(n int, message string) string {
		return "validations: [" + strings.TrimSuffix(strings.Repeat(`{expression: "false", message: "`+message+`"}, `, n), ", ") + "]"
	}
	for _, tc := range []struct {
		name   string
		spec   string
		ends   string
		causes int
	}{
		{"one long message", rules(1, strings.Repeat("€", 9000)), "€€…", 1},
		{"a long message among others", rules(2, strings.Repeat("€", 9000)), "€€…", 2},
		{"a long message with an odd byte", rules(1, "x"+strings.Repeat("€", 9000)), "€€…", 1},
		{"a long message with two odd bytes", rules(1, "xx"+strings.Repeat("€", 9000)), "€€…", 1},
		{"several long messages", rules(20, strings.Repeat("ä", 9000)), "\n… and 13 more", 8},
		{"many messages", rules(500, "no"), " more", 112},
		{"many lines in a message", `validations: [{expression: "` + strings.Repeat(`\n`, 9000) + `false"}]`, "denied request: failed expression: false", 1},
		{"many lines in many messages", `validations: [` + strings.Repeat(`{expression: "0`+strings.Repeat(`\n`, 900)+`== 1"}, `, 5) + `{expression: "false"}]`, "\n… and 4 more", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			response := decide(t, compile(t, denyAll("p", tc.spec, "")), review(t, configMap))
			got := message(response)
			if len(got) > 8*1024 || !strings.HasSuffix(got, tc.ends) || len(response.Result.Details.Causes) != tc.causes {
				t.Errorf("got %d bytes, %d causes, the last of them %q", len(got), len(response.Result.Details.Causes), got[max(0, len(got)-60):])
			}
			if !bytes.Equal([]byte(got), bytes.ToValidUTF8([]byte(got), nil)) {
				t.Error("a character was cut")
			}
		})
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	validations := `validations: [{expression: "true"}, {expression: "false", message: second}]`
	set := compile(t, documents(
		denyAll("a", validations, "validationActions: [Warn, Audit]"),
		denyAll("b", validations, "validationActions: [Audit]"),
		ownCEL("", "[Audit, Warn]"),
	))
	response := decide(t, set, review(t, configMap))
	if !response.Allowed || response.Result != nil {
		t.Fatalf("got %s %q", verdict(response), message(response))
	}
	wantWarnings := []string{
		"Validation failed for ValidatingAdmissionPolicy 'a' with binding 'a': second",
		"Validation failed for AdmissionPolicy 'own': not b",
	}
	if !slices.Equal(response.Warnings, wantWarnings) {
		t.Errorf("got warnings %q", response.Warnings)
	}
	const wantAudit = `{"validation_failure":"[` +
		`{\"message\":\"second\",\"policy\":\"a\",\"binding\":\"a\",\"expressionIndex\":1,\"validationActions\":[\"Warn\",\"Audit\"]},` +
		`{\"message\":\"second\",\"policy\":\"b\",\"binding\":\"b\",\"expressionIndex\":1,\"validationActions\":[\"Audit\"]},` +
		`{\"message\":\"not b\",\"policy\":\"own\",\"binding\":\"\",\"expressionIndex\":0,\"validationActions\":[\"Audit\",\"Warn\"]}]"}`
	if got := toJSON(t, response.AuditAnnotations); got != wantAudit {
		t.Errorf("got audit annotations\n%s\nwant\n%s", got, wantAudit)
	}
}

// TestDeniedStillAudits holds that one binding's denial does not hide what
// another notes.
func TestDeniedStillAudits(t *testing.T) {
	t.Parallel()
	set := compile(t, documents(denyAll("a", "", "validationActions: [Deny, Audit]"), denyAll("b", "", "validationActions: [Warn]"),
		denyAll("c", `auditAnnotations: [{key: user, valueExpression: "request.userInfo.username"}], validations: [{expression: "true"}]`, "")))
	response := decide(t, set, review(t, configMap))
	if response.Allowed || len(response.Warnings) != 1 || len(response.AuditAnnotations) != 3 || response.AuditAnnotations["c_user"] != "alice" {
		t.Errorf("got %+v", response)
	}
}

// TestDeniedBy holds what the log says of a refusal: each policy and binding
// once, in the order of the message, and nothing of the object.
func TestDeniedBy(t *testing.T) {
	t.Parallel()
	set := compile(t, documents(denyAll("b", "", ""), denyAll("a", `validations: [{expression: "false", messageExpression: "string(object.metadata.name)"}, {expression: "false"}]`, "")))
	if got := decide(t, set, review(t, configMap)).AuditAnnotations["denied-by"]; got != "a/a,b/b" {
		t.Errorf("denied-by is %q, want a/a,b/b", got)
	}
}

func TestAuditBounds(t *testing.T) {
	t.Parallel()
	var rules, long string
	for range 60 {
		rules += `{expression: "false", message: m}, `
	}
	name := strings.Repeat("long-", 20) + "name"
	long = denyAll(name, `auditAnnotations: [{key: one, valueExpression: "'x'"}, {key: two, valueExpression: "lists.range(3).map(i, '`+strings.Repeat("ä", 2000)+`').join()"}], validations: [{expression: "true"}]`, "")
	response := decide(t, compile(t, documents(denyAll("p", "validations: ["+rules+"]", "validationActions: [Audit]"), long)), review(t, configMap))
	if n := strings.Count(response.AuditAnnotations["validation_failure"], `"message"`); n != 50 {
		t.Errorf("%d violations are noted, want 50", n)
	}
	if len(response.AuditAnnotations) != 3 {
		t.Fatalf("got keys %v", response.AuditAnnotations)
	}
	for key, value := range response.AuditAnnotations {
		if len(key) > 63 || len(value) > 10*1024 {
			t.Errorf("key %q has %d bytes", key, len(value))
		}
	}
}

func TestNoDecisionInTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	response := compile(t, denyAll("p", "", "")).Decide(ctx, policy.Input{Request: review(t, configMap)}).Response()
	if got := verdict(response); got != "cannot decide" || message(response) != "no decision in time, at ValidatingAdmissionPolicy 'p': context canceled" {
		t.Errorf("got %s %q", got, message(response))
	}
}

// TestAbandonedEvaluation holds that an expression is given up when time is up,
// and that its failure policy does not decide then.
func TestAbandonedEvaluation(t *testing.T) {
	t.Parallel()
	loop := "lists.range(900).all(a, lists.range(900).all(b, a + b >= 0))"
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, failurePolicy := range []string{"Fail", "Ignore"} {
		set := compile(t, denyAll("p", `failurePolicy: `+failurePolicy+`, validations: [{expression: "`+loop+`"}]`, ""))
		if got := verdict(set.Decide(ctx, policy.Input{Request: review(t, configMap)}).Response()); got != "cannot decide" {
			t.Errorf("%s: got %s", failurePolicy, got)
		}
	}
}

// TestKeepsNothing holds that neither the set nor a response refers to the bytes
// of a request, which are used again for the next.
func TestKeepsNothing(t *testing.T) {
	t.Parallel()
	set := compile(t, documents(
		denyAll("p", `validations: [{expression: "false", messageExpression: "string(object.data.a) + string(request.options.fieldManager)"}]`, "matchResources: {objectSelector: {matchLabels: {team: ops}}}"),
		denyAll("q", `auditAnnotations: [{key: a, valueExpression: "string(object.data.a)"}]`, "validationActions: [Warn, Audit]")))
	req := review(t, configMap, func(req *admission.Request) {
		req.Options.Raw = []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl"}`)
	})
	first := set.Decide(context.Background(), policy.Input{Request: req}).Response()
	before := toJSON(t, first)
	for _, raw := range [][]byte{req.Object.Raw, req.Options.Raw} {
		for i := range raw {
			raw[i] = '#'
		}
	}
	if after := toJSON(t, first); after != before {
		t.Errorf("the response changed with the request's bytes:\n%s\n%s", before, after)
	}
	if second := toJSON(t, set.Decide(context.Background(), policy.Input{Request: review(t, configMap, func(req *admission.Request) {
		req.Options.Raw = []byte(`{"fieldManager":"kubectl"}`)
	})}).Response()); second != before {
		t.Errorf("the second response differs:\n%s\n%s", before, second)
	}
}

// TestConcurrentReviews is for the race detector.
func TestConcurrentReviews(t *testing.T) {
	t.Parallel()
	set := compile(t, documents(
		denyAll("p", `paramKind: {apiVersion: v1, kind: ConfigMap}, variables: [{name: own, expression: "params.data"}], matchConditions: [{name: c, expression: "params.data.a == 'b'"}], `+
			`validations: [{expression: "variables.own.all(k, namespaceObject.metadata.labels.env == 'test')", messageExpression: "params.metadata.name + namespaceObject.metadata.name"}]`,
			"paramRef: {selector: {}, parameterNotFoundAction: Deny}, matchResources: {namespaceSelector: {matchLabels: {env: prod}}}"),
		configMap, labelled))
	want := toJSON(t, decide(t, set, review(t, configMap)))
	req := review(t, configMap)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 20 {
				if got := toJSON(t, set.Decide(context.Background(), policy.Input{Request: req}).Response()); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
	group.Wait()
	if !strings.Contains(want, "settingsshop") {
		t.Errorf("got %s", want)
	}
}
