package e2e

import (
	"fmt"
	"strings"
)

// beyondDocuments are policies that are each about the objects with their name in the label "beyond".
func beyondDocuments() string {
	documents := []string{
		`
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyConfiguration
workloads: [{group: beyond.example.com, kind: Rollout, resource: rollouts, template: spec.template}]
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: proxy}
spec:
  match: {objectSelector: {matchLabels: {beyond: mesh}}}
  injection: OptOut
  template:
    spec:
      initContainers: [{name: proxy, image: "registry.example/proxy:1", restartPolicy: Always, startupProbe: {exec: {command: [ready]}}}]
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: mesh}
spec:
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: mesh}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "object.spec.?initContainers.orValue([]).exists(c, c.name == 'proxy')", message: not in the mesh}]
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: images}
spec:
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: images}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers]}]
  variables:
  - name: containers
    expression: object.spec.containers + object.spec.?initContainers.orValue([]) + object.spec.?ephemeralContainers.orValue([])
  - name: foreign
    expression: variables.containers.filter(c, !c.image.startsWith('registry.example/')).map(c, c.name)
  validations:
  - {expression: variables.foreign.size() == 0, messageExpression: "'not from our registry: ' + variables.foreign.join(', ')", reason: Forbidden}
  - {expression: "!object.spec.?hostNetwork.orValue(false)", message: the network of the host is not for pods}
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: standard}
spec:
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {standard: "true"}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  podSecurity: {level: baseline, version: v1.37}
`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: with-templates, annotations: {gatehouse.dev/workload-templates: Check}}
spec:
  matchConstraints:
    objectSelector: {matchLabels: {beyond: upstream}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "!has(object.spec.nodeName)", message: pods choose no node}]
`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: with-templates}
spec: {policyName: with-templates, validationActions: [Deny]}
`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: without-templates}
spec:
  matchConstraints:
    objectSelector: {matchLabels: {beyond: upstream}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "!has(object.spec.nodeName)", message: this is not about templates}]
`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: without-templates}
spec: {policyName: without-templates, validationActions: [Deny]}
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: owners}
spec:
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: owners}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations:
  - {expression: "object.data.owner in ['ann', 'bob']", messageExpression: "'not an owner: ' + object.data.owner"}
  - {expression: "object.data.size() <= 2", message: too many settings}
  - {expression: "'tier' in object.metadata.labels", message: no tier}
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: owners-always}
spec:
  existingViolations: Deny
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: owners-always}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations: [{expression: "object.data.owner in ['ann', 'bob']", messageExpression: "'never an owner: ' + object.data.owner"}]
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: guarded}
spec:
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: guarded}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations: [{expression: "request.userInfo.username == 'beyond-guard'", messageExpression: "'only for the guard, not for ' + request.userInfo.username"}]
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: frozen}
spec:
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: frozen}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}]
  validations: [{expression: "false", message: nobody changes this}]
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: quota}
spec:
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: quota}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations:
  - {expression: "object.data.size() <= 1", message: at most 1}
  - {expression: "!('secret' in object.data)", message: no secrets}
`, beyondException("gatehouse-system", "legacy", "legacy-*", "rules: ['validations[0]']", ""),
		beyondException(beyondNamespace, "own", "own-*", "", ""), `
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: images, namespace: gatehouse-system}
spec:
  policies: [{name: images}]
  match: {names: [legacy-app]}
  reason: moves in spring
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: connections}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec, pods/attach, pods/portforward]}]
  validations:
  - {expression: "request.subResource != 'exec' || !object.?tty.orValue(false)", messageExpression: "'no terminal in ' + request.name + ' for ' + object.command.join(' ')"}
  - {expression: "request.subResource != 'attach' || !object.?stdin.orValue(false)", messageExpression: "'do not type into ' + object.container"}
  - {expression: "request.subResource != 'portforward' || object.?ports.orValue([]).all(p, p >= 8000)", message: no system ports}
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: kept}
spec:
  validationActions: [Deny]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: kept}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  validations: [{expression: "object == null && oldObject.data.keep != 'yes'", messageExpression: "'still needed: ' + oldObject.metadata.name"}]
`, `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: subresources}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments/scale, deployments/status]}
  validations:
  - {expression: "request.subResource != 'scale' || object.spec.replicas <= 3", messageExpression: "string(object.spec.replicas) + ' are too many'"}
  - {expression: "request.subResource != 'status' || object.status.?availableReplicas.orValue(0) <= object.spec.replicas", message: more than were asked for}
`,
	}
	documents = append(documents, talking("chatty", "Warn, Audit"), talking("verbose", "Deny"))
	return strings.Join(documents, "---")
}

// talking is a policy with rules that each take a text from the object.
func talking(name, actions string) string {
	text := fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: %s}
spec:
  validationActions: [%s]
  matchConstraints:
    objectSelector: {matchLabels: {beyond: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  auditAnnotations:
  - {key: size, valueExpression: "string(object.data.size())"}
  validations:
`, name, actions)
	for i := range talkingRules {
		text += fmt.Sprintf("  - {expression: \"!('w%02[1]d' in object.data)\", messageExpression: string(object.data.w%02[1]d)}\n", i)
	}
	return text
}

// talkingRules is how many rules each such policy has.
const talkingRules = 30

// beyondException is an exception from the policy "quota".
func beyondException(namespace, name, pattern, rules, expires string) string {
	if rules != "" {
		rules = ", " + rules
	}
	return fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: quota-%s, namespace: %s}
spec:
  policies: [{kind: AdmissionPolicy, name: quota%s}]
  match: {namespaces: [%s], names: ["%s"]}
  reason: the old shop is moved in spring
  %s
`, name, namespace, rules, beyondNamespace, pattern, expires)
}

const rolloutDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rollouts.beyond.example.com}
spec:
  group: beyond.example.com
  scope: Namespaced
  names: {kind: Rollout, plural: rollouts, singular: rollout}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
