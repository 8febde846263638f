package main

import (
	"fmt"
	"strings"
	"time"
)

// podRules are the resource rules of every policy that is about pods.
const podRules = `    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [CREATE, UPDATE]
        resources: [pods]
`

// upstreamPolicy makes a ValidatingAdmissionPolicy, and the binding of the same
// name that puts it in force, of the rest of its spec. The match is what stands
// below matchConstraints.
func upstreamPolicy(name, match, rest string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: %[1]s
spec:
  failurePolicy: Fail
  matchConstraints:
%[2]s%[3]s---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: %[1]s
spec:
  policyName: %[1]s
  validationActions: [Deny]
`, name, match, rest)
}

// middleRules are variables, rules and messages of a policy of middle size.
const middleRules = `  variables:
    - name: containers
      expression: "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
    - name: untagged
      expression: "variables.containers.filter(c, c.image.endsWith(':latest') || !c.image.contains(':'))"
    - name: unlimited
      expression: "variables.containers.filter(c, !has(c.resources) || !has(c.resources.limits) || !('memory' in c.resources.limits))"
  validations:
    - expression: "size(variables.untagged) == 0"
      messageExpression: "'images without a fixed tag: ' + variables.untagged.map(c, c.image).join(', ')"
    - expression: "size(variables.unlimited) == 0"
      messageExpression: "'containers without a memory limit: ' + variables.unlimited.map(c, c.name).join(', ')"
    - expression: "has(object.metadata.labels) && '` + nameLabel + `' in object.metadata.labels"
      message: "label ` + nameLabel + ` is missing"
`

// rule is one validation.
type rule struct{ name, expression string }

// usualRules returns ten rules that policy engines are usually installed for. The
// containers are a list that CEL knows by the name that is given.
func usualRules(containers string) []rule {
	return []rule{
		{"no-host-network", "!has(object.spec.hostNetwork) || !object.spec.hostNetwork"},
		{"no-host-pid", "!has(object.spec.hostPID) || !object.spec.hostPID"},
		{"no-privileged", containers + ".all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)"},
		{"no-escalation", containers + ".all(c, has(c.securityContext) && has(c.securityContext.allowPrivilegeEscalation) && !c.securityContext.allowPrivilegeEscalation)"},
		{"fixed-tags", containers + ".all(c, c.image.contains(':') && !c.image.endsWith(':latest'))"},
		{"own-registry", containers + ".all(c, c.image.startsWith('registry.example.com/'))"},
		{"memory-limits", containers + ".all(c, has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits)"},
		{"name-label", "has(object.metadata.labels) && '" + nameLabel + "' in object.metadata.labels"},
		{"no-host-path", "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))"},
		{"non-root", "has(object.spec.securityContext) && has(object.spec.securityContext.runAsNonRoot) && object.spec.securityContext.runAsNonRoot"},
	}
}

// ruleMessages returns the messages for a pod that breaks all of usualRules, each
// in a policy of its own.
func ruleMessages() []string {
	var messages []string
	for _, r := range usualRules("") {
		messages = append(messages, "the pod breaks rule "+r.name)
	}
	return messages
}

// ruledPolicy returns policy number i of those with one rule each. The first ten have
// usualRules; later ones have them with an exemption of their own, so that no
// two expressions are alike.
func ruledPolicy(i int, match string) string {
	rules := usualRules("object.spec.containers")
	r := rules[i%len(rules)]
	if i >= len(rules) {
		r.name = fmt.Sprintf("%s-%03d", r.name, i)
		r.expression = fmt.Sprintf("(%s) || object.metadata.name == 'exempt-%03d'", r.expression, i)
	}
	return upstreamPolicy(r.name, match, fmt.Sprintf(`  validations:
    - expression: "%s"
      message: the pod breaks rule %s
`, r.expression, r.name))
}

// ruledPolicies returns as many policies, with their bindings, all of which match
// pods.
func ruledPolicies(count int) []string {
	var documents []string
	for i := range count {
		documents = append(documents, ruledPolicy(i, podRules))
	}
	return documents
}

// mostlyOtherPolicies returns the policies of ruledPolicies(10), and others that
// match another resource, a namespace by its name, a namespace by another label,
// or a label of the object.
func mostlyOtherPolicies(count int) []string {
	documents := ruledPolicies(10)
	for i := len(documents); i < count; i++ {
		documents = append(documents, ruledPolicy(i, otherMatch(i)))
	}
	return documents
}

// otherMatch returns what stands below matchConstraints of policy number i that matches no pod of the benchmark.
func otherMatch(i int) string {
	name := fmt.Sprintf("other-%03d", i)
	return []string{
		strings.NewReplacer(`""`, "example.com", "pods", name+"s").Replace(podRules),
		podRules + "    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: " + name + "}}\n",
		podRules + "    namespaceSelector: {matchLabels: {team: " + name + "}}\n",
		podRules + "    objectSelector: {matchLabels: {" + nameLabel + ": " + name + "}}\n",
	}[i%4]
}

// tenRulesDocument returns usualRules as one policy, with a variable, and with
// message expressions for the rules about containers.
func tenRulesDocument() string {
	var rest strings.Builder
	rest.WriteString(`  variables:
    - name: containers
      expression: "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
  validations:
`)
	for _, r := range usualRules("variables.containers") {
		message := "message: the pod breaks rule " + r.name
		if strings.HasPrefix(r.expression, "variables.") {
			message = `messageExpression: "'rule ` + r.name + ` is broken by one of ' + variables.containers.map(c, c.name).join(', ')"`
		}
		fmt.Fprintf(&rest, "    - expression: \"%s\"\n      %s\n", r.expression, message)
	}
	return upstreamPolicy("ten-rules", podRules, rest.String())
}

// podSecurityDocument is the Pod Security Standard restricted as a policy.
const podSecurityDocument = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata:
  name: restricted
spec:
  matchConstraints:
` + podRules + `  podSecurity:
    level: restricted
  validationActions: [Deny]
`

// templateDocument is a policy of middle size about pods, and so about the pod
// templates of workloads, that asks for what the benchmark's profile adds.
const templateDocument = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata:
  name: containers
spec:
  matchConstraints:
` + podRules + middleRules + `    - expression: "has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.name == '` + sidecarName + `')"
      message: "the sidecar ` + sidecarName + ` is missing"
  validationActions: [Deny]
`

// exceptionDocuments returns exceptions from the rule that a pod in a host network
// breaks, only the last of which matches it. They expire a day after now.
func exceptionDocuments(count int, now time.Time) []string {
	var documents []string
	for i := range count {
		name := fmt.Sprintf("legacy-%03d", i)
		match := []string{
			"{namespaces: [" + name + "]}",
			`{names: ["` + name + `-*"]}`,
			"{namespaceSelector: {matchLabels: {team: " + name + "}}}",
			"{objectSelector: {matchLabels: {" + nameLabel + ": " + name + "}}}",
		}[i%4]
		if i == count-1 {
			match = "{namespaces: [" + benchNamespace + `], names: ["checkout-*"]}`
		}
		documents = append(documents, fmt.Sprintf(`apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata:
  name: %s
  namespace: gatehouse-system
spec:
  policies: [{name: no-host-network}]
  match: %s
  reason: moves to the new network next quarter
  expiresAt: %q
`, name, match, now.Add(24*time.Hour).UTC().Format(time.RFC3339)))
	}
	return documents
}

// mutatedLabel is what the mutating policies of the benchmark set.
const mutatedLabel = `"shop.example.com/mutated":"yes"`

// mutatingPolicy makes a MutatingAdmissionPolicy with a mutation, and the binding of the same name. The match is what stands
// below matchConstraints.
func mutatingPolicy(name, match, mutation string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  reinvocationPolicy: Never
  matchConstraints:
%[2]s  mutations:
  - %[3]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, name, match, mutation)
}

// mutatingDocuments returns the mutating policies of a configuration, with their bindings.
func mutatingDocuments(configuration string) []string {
	const (
		apply = `{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {` + mutatedLabel + `}}}'}}`
		patch = `{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/labels/shop.example.com~1mutated", value: "yes"}]'}}`
	)
	count := 1
	switch configuration {
	case applyLabel, oneOfTenMutates:
		if configuration == oneOfTenMutates {
			count = 10
		}
		documents := []string{mutatingPolicy("label", podRules, apply)}
		for i := 1; i < count; i++ {
			documents = append(documents, mutatingPolicy(fmt.Sprintf("other-%03d", i), otherMatch(i), apply))
		}
		return documents
	case patchLabel:
		return []string{mutatingPolicy("label", podRules, patch)}
	case othersMutate:
		return []string{mutatingPolicy("label", strings.Replace(podRules, "pods", "services", 1), apply)}
	case hundredMutate:
		var documents []string
		for i := range 100 {
			documents = append(documents, mutatingPolicy(fmt.Sprintf("label-%03d", i), otherMatch(i), strings.ReplaceAll(apply, "mutated", fmt.Sprintf("mutated-%03d", i))))
		}
		return documents
	default:
		return nil
	}
}
