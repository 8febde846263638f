package lint

import (
	"fmt"
	"slices"
	"strings"
)

// Code names a diagnostic, for people who look it up and for v1alpha1.LintIgnoreAnnotation. Codes
// do not change.
type Code string

// The codes, each with what explains it in explanations.
const (
	// Type is an expression that does not fit the schema of a kind.
	Type Code = "type"
	// OptionalField is a field or key that an object need not have.
	OptionalField Code = "optional-field"
	// NullObject is object on DELETE, or oldObject on CREATE.
	NullObject Code = "null-object"
	// NamespaceObject is namespaceObject in a match condition.
	NamespaceObject Code = "namespace-object"
	// UnknownResource is a resource that its API group does not have.
	UnknownResource Code = "unknown-resource"
	// Operation is an operation that a resource never has.
	Operation Code = "operation"
	// Subresource is a subresource by which what a policy checks changes, and which no policy matches.
	Subresource Code = "subresource"
	// Scope is a scope that a rule's resources do not have.
	Scope Code = "scope"
	// BeingDeleted is an expression that spares objects that are being deleted.
	BeingDeleted Code = "being-deleted"
	// Expensive is an expression that may cost more than the API server allows.
	Expensive Code = "expensive"
	// DoubleBraces is a string of a sidecar template that looks like a template of Helm or Istio.
	DoubleBraces Code = "double-braces"
	// Expired is an exception that does nothing any more.
	Expired Code = "expired"
	// TwoPolicies is an exception from two policies of one name.
	TwoPolicies Code = "two-policies"
	// AtomicField is an atomic field that an ApplyConfiguration sets.
	AtomicField Code = "atomic-field"
	// Order is a pair of mutating policies whose order matters.
	Order Code = "order"
	// NotIdempotent is a mutating policy that changes its own result.
	NotIdempotent Code = "not-idempotent"
	// Resize is a mutating policy that matches pods/resize.
	Resize Code = "resize"
)

// explanation explains a code to users.
type explanation struct {
	code Code
	// summary is on one line, meaning says when the code is reported, and remedy what to do.
	summary, meaning, remedy string
	// example has the mistake: a document, or the spec of a ValidatingAdmissionPolicy.
	example string
}

// explanations returns those of all codes.
func explanations() []explanation {
	return []explanation{
		{
			Type, "an expression does not fit the schema of a kind that the policy matches",
			`The schemas are those of Kubernetes' own kinds, and of the CustomResourceDefinitions in the directory. At most ten kinds of a policy are
checked. If the policy distinguishes kinds, by object.kind or has(…), errors for some kinds only are not reported. The API server makes
the same check and writes it into a policy's status, but not of match conditions and variables.`,
			`Use the field's name. If only some of the kinds have it, test it with has(…), or write a policy for each kind.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
validations: [{expression: object.spec.replica <= 5, message: at most 5 replicas}]`,
		},
		{
			OptionalField, "an optional field or key is read without a test for its presence",
			`The expression fails for an object without the field, and failurePolicy Fail refuses the request. Checked are pods, pod templates, and
labels and annotations of all objects. A test anywhere in the expression, the match conditions or the variables is enough.`,
			`Handle the absent field: object.spec.?hostNetwork.orValue(false) == false, or has(c.resources.limits) && …`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
validations: [{expression: 'object.metadata.labels["team"] != ""', message: label it with your team}]`,
		},
		{
			NullObject, "object is read on DELETE, or oldObject on CREATE or CONNECT, where it is null",
			`The policy matches such requests, reads a field of the object, and tests neither the operation nor null. The expression fails, and
failurePolicy Fail refuses the request: nobody can delete the object.`,
			`Match only the operations that are meant, or test: object == null || … On DELETE use oldObject.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
validations: [{expression: object.spec.containers.size() < 9, message: at most 8 containers}]`,
		},
		{
			NamespaceObject, "a match condition reads namespaceObject, which is null there",
			`The API server passes no namespace to match conditions, and neither does Gatehouse, so reading a field of it fails.`,
			`Write a namespaceSelector in matchConstraints, or ask in the validations.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
matchConditions: [{name: production, expression: namespaceObject.metadata.labels.env == "prod"}]
validations: [{expression: object.spec.containers.size() < 9, message: at most 8 containers}]`,
		},
		{
			UnknownResource, "a rule names a resource or a version that its API groups do not have",
			`The rule never matches. Known groups are those of Kubernetes and of the CustomResourceDefinitions in the directory.`,
			`Use the group and the plural that kubectl api-resources prints.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [deployment, pods]}]
validations: [{expression: object.metadata.name != "app", message: choose another name}]`,
		},
		{
			Operation, "a rule names operations that its resources do not have",
			`The rule never matches them: pods/exec has only CONNECT, pods/ephemeralcontainers only UPDATE, pods/eviction only CREATE. Or the API
server asks no policy or webhook about the resource.`,
			`Write a rule of its own for the resource, with the operations that it has.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/exec]}]
validations: [{expression: request.userInfo.username == "admin", message: only admin may}]`,
		},
		{
			Subresource, "a policy checks containers of pods, and no policy matches the subresource by which they change",
			`Resources of a running pod change by pods/resize, and ephemeral containers are added by pods/ephemeralcontainers. A policy on pods
sees neither. It is not reported if any policy of the directory matches the subresource.`,
			`Write a rule for the subresource too, with operations: [UPDATE]. Its object is the whole pod.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers]}]
validations: [{expression: 'object.spec.containers.all(c, quantity(c.?resources.limits[?"cpu"].orValue("1")).isLessThan(quantity("4")))', message: too much}]`,
		},
		{
			Scope, "a rule has a scope that its resources do not have",
			`The rule never matches. Namespaces themselves have scope Cluster.`,
			`Drop the scope, or the resource.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], scope: Cluster}]
validations: [{expression: object.metadata.name != "app", message: choose another name}]`,
		},
		{
			BeingDeleted, "a policy exempts objects that are being deleted",
			`Anyone who adds a finalizer to an object and deletes it can still change it: a Service that is being deleted still gets a NodePort.
Kyverno had this hole: CVE-2023-34091.`,
			`Remove the test. Where controllers must be able to remove finalizers, exempt only updates that leave the rest as it was:
oldObject == null || !has(oldObject.metadata.deletionTimestamp) || object.spec != oldObject.spec
An AdmissionPolicy with existingViolations: Allow does without.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}]
matchConditions: [{name: not-being-deleted, expression: "!has(object.metadata.deletionTimestamp)"}]
validations: [{expression: object.spec.type == "ClusterIP", message: only ClusterIP is allowed}]`,
		},
		{
			Expensive, "an expression may cost more than the API server allows",
			`By the API server's estimate an expression can exceed its limit of 1,000,000, or all of them 10,000,000, for lists of 30 elements and
strings of 128 characters. Then the API server gives up, and failurePolicy Fail refuses the request.`,
			`Avoid nested loops: collect with map, then compare sizes or use in. Put what does not depend on the element into a variable.`,
			`matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
validations:
  - message: containers share no volume
    expression: >-
      object.spec.containers.all(a, object.spec.containers.all(b, a.name == b.name || a.?volumeMounts.orValue([]).all(m,
      !b.?volumeMounts.orValue([]).exists(n, n.name + n.mountPath == m.name + m.mountPath))))`,
		},
		{
			DoubleBraces, "a string of a sidecar template has {{ }}, which is not replaced",
			`Templates of Helm and of Istio's injector have {{ }}. Gatehouse does not replace it, so sidecars get the braces.`,
			`Write a placeholder, ${params.level}, or render the file with Helm first.`,
			`apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: logs}
spec:
  parameters: [{name: level, type: string, default: info, pattern: "[a-z]+"}]
  template:
    spec:
      initContainers: [{name: logs, image: registry.example/logs:1, restartPolicy: Always, args: ["--level={{ .params.level }}"]}]`,
		},
		{
			Expired, "a PolicyException has expired",
			`The exception does nothing any more.`,
			`Remove the exception, or give it a later spec.expiresAt.`,
			`apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: legacy, namespace: gatehouse-system}
spec:
  policies: [{name: names}]
  match: {namespaces: [legacy]}
  reason: renamed in the next release
  expiresAt: "2026-11-01T00:00:00Z"`,
		},
		{
			TwoPolicies, "a PolicyException without `kind` names two policies",
			`A ValidatingAdmissionPolicy and an AdmissionPolicy have this name. The exception is from both.`,
			`Set kind, or name both kinds if you mean both.`,
			`apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: object.metadata.name != "x"}]
  validationActions: [Deny]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: object.metadata.name != "y"}]
---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: legacy, namespace: gatehouse-system}
spec:
  policies: [{name: names}]
  match: {namespaces: [legacy]}
  reason: renamed in the next release`,
		},
		{
			AtomicField, "an ApplyConfiguration of a mutating policy sets an atomic list, map or struct",
			`The API server merges an ApplyConfiguration by the schema of the kind, and refuses one that sets an atomic field, such as args and command
of a container. The mutation fails for every object, and failurePolicy decides. Schemas are those of Kubernetes' own kinds, and of the
CustomResourceDefinitions in the directory.`,
			`Write the mutation with patchType JSONPatch, as the hint says.`,
			`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: args}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: 'Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, args: ["--quiet"]})}}'}`,
		},
		{
			Order, "two mutating policies give different results in different orders",
			`An API server runs MutatingAdmissionPolicies in no particular order, which changes with each change of a policy and differs between API
servers. In its webhook Gatehouse runs them by name. The policies are tried on the objects of the tests in the directory, in pairs.`,
			`Make one policy of the two, or have them change different fields.`,
			`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: blue}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  mutations:
    - patchType: JSONPatch
      jsonPatch: {expression: '[JSONPatch{op: "add", path: "/data/team", value: "blue"}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: blue}
spec: {policyName: blue}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: green}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  mutations:
    - patchType: JSONPatch
      jsonPatch: {expression: '[JSONPatch{op: "add", path: "/data/team", value: "green"}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: green}
spec: {policyName: green}
---
apiVersion: gatehouse.dev/v1alpha1
kind: Test
metadata: {name: config}
cases:
  - name: web
    object: {apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {a: "1"}}
    expect: {verdict: Allowed}`,
		},
		{
			NotIdempotent, "a mutating policy changes its own result again",
			`An object passes a policy more than once: at each update, with reinvocationPolicy IfNeeded, and if a webhook is called again. The policies
are tried on the objects of the tests in the directory, twice.`,
			`Test in the expression, or in a match condition, for what the policy adds.`,
			`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: suffix}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  mutations:
    - patchType: JSONPatch
      jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/data/a", value: object.data.a + "x"}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: suffix}
spec: {policyName: suffix}
---
apiVersion: gatehouse.dev/v1alpha1
kind: Test
metadata: {name: config}
cases:
  - name: web
    object: {apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {a: "1"}}
    expect: {verdict: Allowed}`,
		},
		{
			Resize, "a mutating policy matches pods/resize",
			`A resize sends the whole pod. What a webhook changes there in labels and annotations is kept. A policy that adds a container, or changes
what a resize cannot change, makes a valid resize of a client fail.`,
			`Match pods alone, or exclude pods/resize with excludeResourceRules.`,
			`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["pods/*"]}]}
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"team": "shop"}}}'}`,
		},
	}
}

// Codes returns all codes, in the order in which they are documented.
func Codes() []Code {
	var all []Code
	for _, e := range explanations() {
		all = append(all, e.code)
	}
	return all
}

// Summary returns what a code means on one line, and "" for what is no code.
func Summary(code Code) string {
	return find(code).summary
}

// Explain returns what a code means, an example and what to do. It is empty for what is no code.
func Explain(code Code) string {
	e := find(code)
	if e.code == "" {
		return ""
	}
	return fmt.Sprintf("%s: %s\n\n%s\n\nExample:\n\n  %s\n\nWhat to do:\n\n%s\n", e.code, e.summary, e.meaning, strings.ReplaceAll(Example(code), "\n", "\n  "), e.remedy)
}

// Example returns a document with the mistake.
func Example(code Code) string {
	e := find(code)
	if strings.HasPrefix(e.example, "apiVersion: ") {
		return e.example
	}
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: example}\nspec:\n  " + strings.ReplaceAll(e.example, "\n", "\n  ")
}

func find(code Code) explanation {
	all := explanations()
	if i := slices.IndexFunc(all, func(e explanation) bool { return e.code == code }); i >= 0 {
		return all[i]
	}
	return explanation{}
}
