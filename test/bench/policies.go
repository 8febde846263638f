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
// podProblems says the same in Go.
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

// middlePolicy is a policy of middle size: three variables, three validations,
// two messages made by expressions. With a mark none of its expressions is that of
// a policy with another: such policies are compiled, and not evaluated.
func middlePolicy(name, mark string) string {
	rules := middleRules
	if mark != "" {
		exempt := " || object.metadata.name == '" + mark + "'\""
		rules = strings.NewReplacer(
			"object.spec.containers + ", "object.spec.containers.filter(c, c.name != '"+mark+"') + ",
			"filter(c, ", "filter(c, c.name != '"+mark+"' && ",
			`== 0"`, "== 0"+exempt,
			`in object.metadata.labels"`, "in object.metadata.labels"+exempt,
			`"'`, `"'`+mark+": ",
		).Replace(rules)
	}
	return upstreamPolicy(name, podRules, rules)
}

// rule is one validation.
type rule struct{ name, expression string }

// usualRules are ten that policy engines are usually installed for. The
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

// ruledPolicy is the number i of policies of one rule each. The first ten have
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

// ruledPolicies are as many policies, with their bindings, all about pods.
func ruledPolicies(count int) []string {
	var documents []string
	for i := range count {
		documents = append(documents, ruledPolicy(i, podRules))
	}
	return documents
}

// mostlyOtherPolicies are the ten of ruledPolicies(10), and others that differ
// from them in what they match: another resource, a namespace by its name, a
// namespace by another label, or a label of the object.
func mostlyOtherPolicies(count int) []string {
	documents := ruledPolicies(10)
	selector := func(field, label, value string) string {
		return podRules + "    " + field + ": {matchLabels: {" + label + ": " + value + "}}\n"
	}
	for i := len(documents); i < count; i++ {
		var match string
		switch name := fmt.Sprintf("other-%03d", i); i % 4 {
		case 0:
			match = strings.NewReplacer(`""`, "example.com", "pods", name+"s").Replace(podRules)
		case 1:
			match = selector("namespaceSelector", "kubernetes.io/metadata.name", name)
		case 2:
			match = selector("namespaceSelector", "team", name)
		case 3:
			match = selector("objectSelector", nameLabel, name)
		}
		documents = append(documents, ruledPolicy(i, match))
	}
	return documents
}

// tenRulesDocument is usualRules in one policy, with a variable, and messages
// that are made by expressions where there is something to name.
func tenRulesDocument() string {
	var text strings.Builder
	text.WriteString(`  variables:
    - name: containers
      expression: "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
  validations:
`)
	for _, r := range usualRules("variables.containers") {
		fmt.Fprintf(&text, "    - expression: \"%s\"\n", r.expression)
		if strings.HasPrefix(r.expression, "variables.") {
			fmt.Fprintf(&text, "      messageExpression: \"'rule %s is broken by one of ' + variables.containers.map(c, c.name).join(', ')\"\n", r.name)
		} else {
			fmt.Fprintf(&text, "      message: the pod breaks rule %s\n", r.name)
		}
	}
	return upstreamPolicy("ten-rules", podRules, text.String())
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

// exceptionDocuments are exceptions from the rule that exceptedPod breaks, only
// the last of which is about it. They expire a day after now.
func exceptionDocuments(count int, now time.Time) []string {
	var documents []string
	for i := range count {
		name := fmt.Sprintf("legacy-%03d", i)
		var match string
		switch {
		case i == count-1:
			match = "{namespaces: [" + benchNamespace + `], names: ["checkout-*"]}`
		case i%4 == 0:
			match = "{namespaces: [" + name + "]}"
		case i%4 == 1:
			match = `{names: ["` + name + `-*"]}`
		case i%4 == 2:
			match = "{namespaceSelector: {matchLabels: {team: " + name + "}}}"
		case i%4 == 3:
			match = "{objectSelector: {matchLabels: {" + nameLabel + ": " + name + "}}}"
		}
		documents = append(documents, fmt.Sprintf(`apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata:
  name: %s
  namespace: gatehouse-system
spec:
  policies: [{name: %s}]
  match: %s
  reason: moves to the new network next quarter
  expiresAt: %q
`, name, exceptedRule, match, now.Add(24*time.Hour).UTC().Format(time.RFC3339)))
	}
	return documents
}

// exceptedRule is the policy of ruledPolicies that exceptedPod breaks.
const exceptedRule = "no-host-network"
