package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// outcomes returns the outcomes of all violations, in short.
func outcomes(d policy.Decision) string {
	var out []string
	for i := range d.Violations {
		v := &d.Violations[i]
		text := string(v.Outcome) + " " + v.Rule
		if v.Template != "" {
			text += " in " + v.Template
		}
		if v.Exception != "" {
			text += " by " + v.Exception
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// own returns an AdmissionPolicy about pods and Deployments.
func own(spec string) string {
	return `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: own}
spec: {matchConstraints: {resourceRules: [{apiGroups: ["", apps], apiVersions: [v1], operations: ["CREATE", UPDATE], resources: [pods, deployments, configmaps]}]},
  validationActions: [Deny], ` + spec + `}`
}

// TestExistingViolations holds which updates of objects that violate a rule
// already are let pass: those by which the rule sees nothing that it did not see
// before.
func TestExistingViolations(t *testing.T) {
	t.Parallel()
	images := own(`workloadTemplates: Ignore, variables: [{name: foreign, expression: "object.spec.containers.filter(c, !c.image.startsWith('good/'))"}],
  validations: [{expression: "variables.foreign.size() == 0", messageExpression: "variables.foreign.map(c, c.name).join(',')"}]`)
	pod := func(containers string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, labels: {team: a}}, spec: {containers: [` + containers + `]}}`
	}
	const bad, worse, good = `{name: a, image: bad/x, resources: {}}`, `{name: b, image: bad/y}`, `{name: c, image: good/z}`
	restricted := own(`matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers]}]}, podSecurity: {level: baseline}`)
	restricted = strings.Replace(restricted, `matchConstraints: {resourceRules: [{apiGroups: ["", apps], apiVersions: [v1], operations: ["CREATE", UPDATE], resources: [pods, deployments, configmaps]}]},`, "", 1)
	labels := own(`validations: [{expression: "has(object.metadata.labels) && 'owner' in object.metadata.labels", message: owner}]`)
	config := func(metadata, rest string) string {
		return `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop` + metadata + `}, ` + rest + `}`
	}
	template := func(containers, label string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: shop}, spec: {template: {metadata: {labels: {team: ` + label + `}}, spec: {containers: [` + containers + `]}}}}`
	}
	// priv is a Deployment with a privileged container and another one.
	priv := func(container, spec string) string {
		if container != "" {
			container = ", " + container
		}
		if spec != "" {
			spec += ", "
		}
		pod := template(`{name: a, image: x, securityContext: {privileged: true}`+container+`}, {name: b, image: b}`, "a")
		return strings.Replace(pod, "spec: {containers", "spec: {"+spec+"containers", 1)
	}
	host := func(image string) string {
		return pod(`{name: a, image: ` + image + `}], volumes: [{name: v, hostPath: {path: /tmp}}`)
	}
	privileged := strings.Replace(own(`validations: [{expression: "object.spec.containers.all(c, c.?securityContext.?privileged.orValue(false) != true)"}]`), "[pods, deployments, configmaps]", "[pods]", 1)
	for _, tc := range []struct {
		name, documents, old, object string
		want                         string
	}{
		{"nothing changes", images, pod(bad), pod(bad), "Existing validations[0]"},
		{"something else changes", images, pod(bad), strings.Replace(pod(bad), "team: a", "team: b", 1), "Existing validations[0]"},
		{"another field of the same container changes", images, pod(bad), pod(`{name: a, image: bad/x, resources: {limits: {cpu: 1}}}`), "Existing validations[0]"},
		{"the image becomes another bad one", images, pod(bad), pod(`{name: a, image: bad/w}`), "Violated validations[0]"},
		{"a second bad container", images, pod(bad), pod(bad + "," + worse), "Violated validations[0]"},
		{"a second container with the same bad image", images, pod(bad), pod(bad + `,{name: d, image: bad/x}`), "Violated validations[0]"},
		{"one of two bad containers goes", images, pod(bad + "," + worse), pod(worse), "Existing validations[0]"},
		{"the containers change places", images, pod(bad + "," + worse), pod(worse + "," + bad), "Violated validations[0]"},
		{"the object was good before", images, pod(good), pod(bad), "Violated validations[0]"},
		{"all is well after", images, pod(bad), pod(good), ""},
		{"Deny", strings.Replace(images, "workloadTemplates: Ignore", "workloadTemplates: Ignore, existingViolations: Deny", 1), pod(bad), pod(bad), "Violated validations[0]"},
		{"upstream's policies count everything", denyAll("p", `validations: [{expression: "object.data.a == 'c'"}]`, ""), configMap, configMap, "Violated validations[0]"},
		{"upstream's policies by annotation", strings.Replace(denyAll("p", `validations: [{expression: "object.data.a == 'c'"}]`, ""), "metadata: {name: p}", "metadata: {name: p, annotations: {gatehouse.dev/existing-violations: Allow}}", 1), configMap, configMap, "Existing validations[0]"},

		{"a rule about the change", own(`validations: [{expression: "object.data.a == oldObject.data.a"}]`), config("", "data: {a: x}"), config("", "data: {a: w}"), "Violated validations[0]"},
		{"a rule about the change, of something that was wrong", own(`validations: [{expression: "object.data.a == oldObject.data.a && object.data.b == 'ok'"}]`), config("", "data: {a: x, b: no}"), config("", "data: {a: w, b: no}"), "Violated validations[0]"},
		{"an error that was there before", own(`validations: [{expression: "object.data.missing == 'x'"}]`), config("", "data: {a: x}"), config("", "data: {a: w}"), "Existing validations[0]"},
		{"an error where there was a violation", own(`validations: [{expression: "object.data.m == 'x'"}]`), config("", "data: {m: w}"), config("", "data: {a: w}"), "Failed validations[0]"},
		{"a label is missing as before", labels, config("", "data: {a: x}"), config("", "data: {a: w}"), "Existing validations[0]"},
		{"another label comes", labels, config("", "data: {a: x}"), config(", labels: {team: x}", "data: {a: x}"), "Violated validations[0]"},
		{"a match condition was false before", own(`matchConditions: [{name: c, expression: "object.data.a == 'w'"}], validations: [{expression: "object.kind == 'x'"}]`), config("", "data: {a: x}"), config("", "data: {a: w}"), "Violated validations[0]"},
		{"a selector did not select before", strings.Replace(labels, "matchConstraints: {", "matchConstraints: {objectSelector: {matchLabels: {team: x}}, ", 1), config(", labels: {team: w}", "data: {}"), config(", labels: {team: x}", "data: {}"), "Violated validations[0]"},
		{
			"a binding did not select before", documents(strings.Replace(labels, "validationActions: [Deny], ", "", 1), `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: own, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {team: x}}}}}`),
			config(", labels: {team: z}", "data: {}"), config(", labels: {team: x}", "data: {}"), "Violated validations[0]",
		},

		{"finalizers alone, where a rule looks at everything", own(`validations: [{expression: "dyn(object) == {'a': 1}"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Violated validations[0]"},
		{"finalizers alone", own(`validations: [{expression: "object.data.a == request.name"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Existing validations[0]"},
		{"finalizers that a rule protects", own(`validations: [{expression: "'x/y' in object.metadata.?finalizers.orValue([])"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Violated validations[0]"},
		{"finalizers that a rule protects, where a match condition fails", own(`matchConditions: [{name: c, expression: "object.metadata.labels['x'] == 'y'"}], validations: [{expression: "'x/y' in object.metadata.?finalizers.orValue([])"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Failed matchConditions"},
		{"finalizers that a rule about the change protects, where a match condition fails", own(`matchConditions: [{name: c, expression: "object.metadata.labels['x'] == 'y'"}], validations: [{expression: "oldObject.metadata.finalizers.all(f, f in object.metadata.finalizers)"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Failed matchConditions"},
		{"finalizers, where a match condition fails", own(`matchConditions: [{name: c, expression: "object.metadata.labels['x'] == 'y'"}], validations: [{expression: "object.data.a == 'z'"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Existing matchConditions"},
		{"labels of an object that is being deleted", labels, config(`, deletionTimestamp: "2026-01-01T00:00:00Z", labels: {owner: x}`, "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), "Violated validations[0]"},
		{"an owner of an object that is being deleted, where a rule looks at owners", own(`validations: [{expression: "!has(object.metadata.ownerReferences)"}]`), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z", ownerReferences: [{kind: Pod, name: p}]`, "data: {a: x}"), "Violated validations[0]"},
		{"an owner of an object that is being deleted", labels, config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z", ownerReferences: [{kind: Pod, name: p}]`, "data: {a: x}"), "Existing validations[0]"},
		{"status of an object that is being deleted", own(`validations: [{expression: "!has(object.status)"}]`), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}, status: {x: true}"), "Violated validations[0]"},

		// What does not depend on the object alone was not "so before".
		{"a rule about who asks", own(`validations: [{expression: "object.data.owner == request.userInfo.username"}]`), config("", "data: {owner: bob, a: x}"), config("", "data: {owner: bob, a: evil}"), "Violated validations[0]"},
		{"a rule about the operation", own(`validations: [{expression: "request.operation == 'CREATE' || object.kind == 'Pod'"}]`), config("", "data: {a: x}"), config("", "data: {a: evil}"), "Violated validations[0]"},
		{"a rule about the old object alone", own(`validations: [{expression: "oldObject == null || !('locked' in oldObject.metadata.labels)"}]`), config(", labels: {locked: x}", "data: {a: x}"), config("", "data: {a: evil}"), "Violated validations[0]"},
		{"a rule about nothing of the object", own(`validations: [{expression: "request.namespace != 'shop'"}]`), config("", "data: {a: x}"), config("", "data: {a: evil}"), "Violated validations[0]"},
		{"a rule for some who ask", own(`matchConditions: [{name: c, expression: "!('admins' in request.userInfo.groups)"}], validations: [{expression: "object.data.b == 'x'"}]`), config("", "data: {a: x, b: z}"), config("", "data: {a: evil, b: z}"), "Violated validations[0]"},
		{"a rule that asks the authorizer", own(`validations: [{expression: "object.kind == 'Pod' || authorizer.requestResource.check('get').allowed()"}]`), config("", "data: {a: x}"), config("", "data: {a: evil}"), "Failed validations[0]"},
		{"who asks, by a variable", own(`variables: [{name: who, expression: request.userInfo.username}], validations: [{expression: "object.data.owner == variables.who"}]`), config("", "data: {owner: bob, a: x}"), config("", "data: {owner: bob, a: evil}"), "Violated validations[0]"},
		{"what is asked for", own(`validations: [{expression: "request.namespace == 'lab' || object.data.b == 'x'"}]`), config("", "data: {a: x, b: z}"), config("", "data: {a: y2, b: z}"), "Existing validations[0]"},
		// A violation by presence or size sees nothing of the value, so that another
		// value is not what was there before.
		{"external addresses, others", own(`validations: [{expression: "object.spec.?externalIPs.orValue([]).size() == 0"}]`), config("", "spec: {externalIPs: [192.0.2.1]}"), config("", "spec: {externalIPs: [10.96.0.1]}"), "Violated validations[0]"},
		{"external addresses, in another order", own(`validations: [{expression: "!has(object.spec.externalIPs)"}]`), config("", "spec: {externalIPs: [192.0.2.1, 192.0.2.2]}"), config("", "spec: {externalIPs: [192.0.2.2, 192.0.2.1], x: 1}"), "Violated validations[0]"},
		{"an external name, another", own(`validations: [{expression: "!has(object.spec.externalName)"}]`), config("", "spec: {externalName: good}"), config("", "spec: {externalName: evil}"), "Violated validations[0]"},
		{"an external name, by a condition", own(`matchConditions: [{name: c, expression: "has(object.spec.externalName)"}], validations: [{expression: "object.spec.type == 'x'"}]`), config("", "spec: {externalName: good, type: w}"), config("", "spec: {externalName: evil, type: w}"), "Violated validations[0]"},
		{"an external name, the same, by a condition", own(`matchConditions: [{name: c, expression: "has(object.spec.externalName)"}], validations: [{expression: "object.spec.type == 'x'"}]`), config("", "spec: {externalName: good, type: w}"), config("", "spec: {externalName: good, type: w, x: 1}"), "Existing validations[0]"},
		{"a snippet, another", own(`validations: [{expression: "!object.metadata.?annotations.orValue({}).exists(a, a.endsWith('-snippet'))"}]`), config(", annotations: {x/server-snippet: good}", "data: {}"), config(", annotations: {x/server-snippet: evil}", "data: {}"), "Violated validations[0]"},
		{"a label is missing, another one changes", labels, config(", labels: {team: x}", "data: {a: x}"), config(", labels: {team: z}", "data: {a: x}"), "Existing validations[0]"},
		{"conditions alone look at the object", own(`matchConditions: [{name: c, expression: "has(object.data)"}], validations: [{expression: "request.namespace != 'shop'"}]`), config("", "data: {a: x}"), config("", "data: {a: x}, b: x"), "Violated validations[0]"},
		{"another error", own(`validations: [{expression: "object.data[object.data.k] == 'x'"}]`), config("", "data: {k: a1}"), config("", "data: {k: a2}"), "Failed validations[0]"},

		// What is taken away can be what made good.
		{"a required container goes", own(`validations: [{expression: "object.spec.containers.exists(c, c.name == 'c') && object.spec.containers.all(c, c.image.startsWith('good/'))"}]`), pod(bad + "," + good), pod(bad), "Violated validations[0]"},
		{"a required entry of another container goes", own(`validations: [{expression: "object.spec.containers.all(c, c.args.exists(d, d == 'ALL'))"}]`), pod(`{name: a, args: []}, {name: b, args: [ALL]}`), pod(`{name: a, args: []}, {name: b, args: []}`), "Violated validations[0]"},
		{"data of an object that is being deleted", own(`validations: [{expression: "object.data.a == 'x'"}]`), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: w}"), "Violated validations[0]"},
		{"an object that only the update says is being deleted", labels, config(", labels: {owner: x}", "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), "Violated validations[0]"},
		{
			"finalizers alone, params missing", documents(strings.Replace(own(`paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params != null"}]`), "validationActions: [Deny], ", "", 1),
				`{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: own, validationActions: [Deny], paramRef: {name: none, parameterNotFoundAction: Deny}}}`),
			config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Existing ",
		},

		{"a standard, another image", restricted, pod(`{name: a, image: x, securityContext: {privileged: true}}`), pod(`{name: a, image: w, securityContext: {privileged: true}}`), "Violated podSecurity.privileged"},
		{"a standard, the image of an init container", restricted, strings.Replace(pod(`{name: a, image: x}`), "spec: {", "spec: {initContainers: [{name: i, image: x, securityContext: {privileged: true}}], ", 1), strings.Replace(pod(`{name: a, image: x}`), "spec: {", "spec: {initContainers: [{name: i, image: w, securityContext: {privileged: true}}], ", 1), "Violated podSecurity.privileged"},
		{"a standard, the image of another container", restricted, pod(`{name: a, image: x, securityContext: {privileged: true}}, {name: b, image: x}`), pod(`{name: a, image: x, securityContext: {privileged: true}}, {name: b, image: w}`), "Existing podSecurity.privileged"},
		{"a standard, images change places", restricted, pod(`{name: a, image: x, securityContext: {privileged: true}}, {name: b, image: w}`), pod(`{name: a, image: w, securityContext: {privileged: true}}, {name: b, image: x}`), "Violated podSecurity.privileged"},
		{"a standard, a harmless ephemeral container", restricted, pod(`{name: a, image: x, securityContext: {privileged: true}}`), strings.Replace(pod(`{name: a, image: x, securityContext: {privileged: true}}`), "spec: {", "spec: {ephemeralContainers: [{name: d, image: d}], ", 1), "Existing podSecurity.privileged"},
		{"a standard, a label", restricted, pod(`{name: a, image: x, securityContext: {privileged: true}}`), strings.Replace(pod(`{name: a, image: x, securityContext: {privileged: true}}`), "team: a", "team: b", 1), ""},
		{"a standard, another image in the host's network", restricted, strings.Replace(pod(`{name: a, image: x}`), "spec: {", "spec: {hostNetwork: true, ", 1), strings.Replace(pod(`{name: a, image: w}`), "spec: {", "spec: {hostNetwork: true, ", 1), "Violated podSecurity.hostNamespaces"},
		{"a standard, another image beside a volume of the host", restricted, pod(`{name: a, image: x}], volumes: [{name: v, hostPath: {path: /tmp}}`), pod(`{name: a, image: w}], volumes: [{name: v, hostPath: {path: /tmp}}`), "Violated podSecurity.hostPathVolumes"},
		{"a standard, one container less beside a volume of the host", restricted, pod(`{name: a, image: x}, {name: b, image: x}], volumes: [{name: v, hostPath: {path: /tmp}}`), pod(`{name: a, image: x}], volumes: [{name: v, hostPath: {path: /tmp}}`), "Existing podSecurity.hostPathVolumes"},
		{"a standard, another image with a sysctl", restricted, strings.Replace(pod(`{name: a, image: x}`), "spec: {", "spec: {securityContext: {sysctls: [{name: kernel.x, value: a}]}, ", 1), strings.Replace(pod(`{name: a, image: w}`), "spec: {", "spec: {securityContext: {sysctls: [{name: kernel.x, value: a}]}, ", 1), "Violated podSecurity.sysctls"},
		{"a standard, one container less with a sysctl", restricted, strings.Replace(pod(`{name: a, image: x}, {name: b, image: x}`), "spec: {", "spec: {securityContext: {sysctls: [{name: kernel.x, value: a}]}, ", 1), strings.Replace(pod(`{name: a, image: x}`), "spec: {", "spec: {securityContext: {sysctls: [{name: kernel.x, value: a}]}, ", 1), "Existing podSecurity.sysctls"},
		{"a standard, one container less with an annotation", restricted, strings.Replace(pod(`{name: a, image: x}, {name: b, image: x}`), "labels:", "annotations: {container.apparmor.security.beta.kubernetes.io/a: unconfined}, labels:", 1), strings.Replace(pod(`{name: a, image: x}`), "labels:", "annotations: {container.apparmor.security.beta.kubernetes.io/a: unconfined}, labels:", 1), "Existing podSecurity.appArmorProfile"},
		{"a standard, the label of a template", strings.Replace(restricted, "validationActions", "workloadTemplates: Check, validationActions", 1), template(`{name: a, image: x, securityContext: {privileged: true}}`, "a"), template(`{name: a, image: x, securityContext: {privileged: true}}`, "b"), "Existing podSecurity.privileged in spec.template"},
		{"a standard, another image in a template", strings.Replace(restricted, "validationActions", "workloadTemplates: Check, validationActions", 1), template(`{name: a, image: x, securityContext: {privileged: true}}`, "a"), template(`{name: a, image: w, securityContext: {privileged: true}}`, "a"), "Violated podSecurity.privileged in spec.template"},
		{"a standard, another command", restricted, priv(``, ``), priv(`command: [sh]`, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, another argument", restricted, priv(`args: [a]`, ``), priv(`args: [b]`, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, another variable of the environment", restricted, priv(`env: [{name: A, value: a}]`, ``), priv(`env: [{name: A, value: b}]`, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a hook", restricted, priv(``, ``), priv(`lifecycle: {postStart: {exec: {command: [sh]}}}`, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, another account", restricted, priv(``, ``), priv(``, `serviceAccountName: admin`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, the account by its other name", restricted, priv(``, `serviceAccount: a`), priv(``, `serviceAccountName: a`), "Existing podSecurity.privileged in spec.template"},
		{"a standard, a token", restricted, priv(``, `automountServiceAccountToken: false`), priv(``, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, no token any more", restricted, priv(``, ``), priv(``, `automountServiceAccountToken: false`), "Existing podSecurity.privileged in spec.template"},
		{"a standard, processes are shared", restricted, priv(``, ``), priv(``, `shareProcessNamespace: true`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, other nodes", restricted, priv(``, ``), priv(``, `tolerations: [{operator: Exists}]`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, no sandbox any more", restricted, priv(``, `runtimeClassName: gvisor`), priv(``, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a volume that is mounted", restricted, priv(`volumeMounts: [{name: v, mountPath: /v}]`, `volumes: [{name: v, configMap: {name: a}}]`), priv(`volumeMounts: [{name: v, mountPath: /v}]`, `volumes: [{name: v, configMap: {name: b}}]`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a volume that is not mounted", restricted, priv(``, `volumes: [{name: v, configMap: {name: a}}]`), priv(``, `volumes: [{name: v, configMap: {name: b}}]`), "Existing podSecurity.privileged in spec.template"},
		{"a standard, root", restricted, priv(``, `securityContext: {runAsUser: 1000}`), priv(``, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, not root any more", restricted, priv(``, ``), priv(``, `securityContext: {runAsUser: 1000}`), "Existing podSecurity.privileged in spec.template"},
		{"a standard, what runs nothing", restricted, priv(``, ``), priv(`resources: {limits: {cpu: 1}}, imagePullPolicy: Always, ports: [{containerPort: 80}]`, `terminationGracePeriodSeconds: 5`), "Existing podSecurity.privileged in spec.template"},
		{"a standard, the command of another container", restricted, priv(``, ``), strings.Replace(priv(``, ``), "{name: b, image: b", "{name: b, image: b, command: [sh]", 1), "Existing podSecurity.privileged in spec.template"},

		{"a standard, near other pods", restricted, priv(``, ``), priv(``, `affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: h}]}}`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, spread over nodes", restricted, priv(``, ``), priv(``, `topologySpreadConstraints: [{topologyKey: h}]`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, another scheduler", restricted, priv(``, ``), priv(``, `schedulerName: mine`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a higher priority", restricted, priv(``, ``), priv(``, `priorityClassName: system-node-critical`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, another name for an address", restricted, priv(``, ``), priv(``, `hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a field of a later Kubernetes", restricted, priv(``, ``), priv(``, `futureField: x`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a field of a later Kubernetes in the container", restricted, priv(``, ``), priv(`futureField: x`, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, groups", restricted, priv(``, ``), priv(``, `securityContext: {supplementalGroups: [0, 999]}`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, the group of root", restricted, priv(``, `securityContext: {runAsUser: 1000}`), priv(``, `securityContext: {runAsUser: 1000, runAsGroup: 0}`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, another user", restricted, priv(``, `securityContext: {runAsUser: 1000}`), priv(``, `securityContext: {runAsUser: 26}`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, the owner of volumes", restricted, priv(``, ``), priv(``, `securityContext: {fsGroup: 999}`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, another SELinux type", restricted, priv(``, ``), priv(``, `securityContext: {seLinuxOptions: {type: container_init_t}}`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, no seccomp profile any more", restricted, priv(``, `securityContext: {seccompProfile: {type: RuntimeDefault}}`), priv(``, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a seccomp profile", restricted, priv(``, ``), priv(``, `securityContext: {seccompProfile: {type: RuntimeDefault}}`), "Existing podSecurity.privileged in spec.template"},
		{"a standard, a claim of a device", restricted, priv(``, ``), priv(`resources: {claims: [{name: gpu}]}`, `resourceClaims: [{name: gpu, resourceClaimName: g}]`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a device", restricted, priv(``, ``), priv(`resources: {limits: {example.com/device: 1}}`, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a port of the node", restricted, priv(`ports: [{containerPort: 80}]`, ``), priv(`ports: [{containerPort: 80, hostPort: 80}]`, ``), "Violated podSecurity.hostPorts in spec.template; Violated podSecurity.privileged in spec.template"},
		{"a standard, numbers of a probe", restricted, priv(`livenessProbe: {exec: {command: [a]}}`, ``), priv(`livenessProbe: {exec: {command: [a]}, periodSeconds: 9}`, ``), "Existing podSecurity.privileged in spec.template"},
		{"a standard, the command of a probe", restricted, priv(`livenessProbe: {exec: {command: [a]}}`, ``), priv(`livenessProbe: {exec: {command: [b]}}`, ``), "Violated podSecurity.privileged in spec.template"},
		{"a standard, a volume that binds to a node", restricted, priv(``, ``), priv(``, `volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]`), "Violated podSecurity.privileged in spec.template"},
		{"a standard, one of two violations is mended", restricted, priv(``, `hostPID: true`), priv(``, ``), "Existing podSecurity.privileged in spec.template"},
		{"a rule about privileges, escalation", privileged, priv(``, ``), strings.Replace(priv(``, ``), "{privileged: true}", "{privileged: true, procMount: Unmasked}", 1), "Violated validations[0] in spec.template"},
		{"a rule about privileges, a dropped capability comes back", privileged, strings.Replace(priv(``, ``), "{privileged: true}", "{privileged: true, capabilities: {drop: [ALL]}}", 1), priv(``, ``), "Violated validations[0] in spec.template"},
		{"a rule about privileges, capabilities are dropped", privileged, priv(``, ``), strings.Replace(priv(``, ``), "{privileged: true}", "{privileged: true, capabilities: {drop: [ALL]}}", 1), "Existing validations[0] in spec.template"},
		{"a rule about privileges, groups", privileged, priv(``, ``), priv(``, `securityContext: {supplementalGroups: [0]}`), "Violated validations[0] in spec.template"},
		{"a rule about privileges, another command", privileged, priv(``, ``), priv(`command: [sh]`, ``), "Violated validations[0] in spec.template"},
		{"a rule about privileges, another account", privileged, priv(``, ``), priv(``, `serviceAccountName: admin`), "Violated validations[0] in spec.template"},
		{"a rule about privileges, what runs nothing", privileged, priv(``, ``), priv(`resources: {limits: {cpu: 1}}`, ``), "Existing validations[0] in spec.template"},
		{"a rule about privileges, of a workload itself", strings.NewReplacer("object.spec.containers", "object.spec.template.spec.containers", "[pods]", "[deployments]").Replace(privileged), priv(``, ``), priv(`command: [sh]`, ``), "Violated validations[0]"},
		{"a rule about the host's files, another image", own(`workloadTemplates: Ignore, validations: [{expression: "!object.spec.?volumes.orValue([]).exists(v, has(v.hostPath))"}]`), host(`x`), host(`w`), "Violated validations[0]"},
		{"a rule about images in volumes, another command", own(`workloadTemplates: Ignore, validations: [{expression: "object.spec.?volumes.orValue([]).all(v, v.?image.?reference.orValue('') == 'a')"}]`), host(`x`), strings.Replace(host(`x`), "image: x", "image: x, command: [sh]", 1), "Existing validations[0]"},
		{"a standard, another container", restricted, pod(`{name: a, image: x, securityContext: {privileged: true}}`), pod(`{name: a, image: w, securityContext: {privileged: true}}, {name: b, image: w, securityContext: {privileged: true}}`), "Violated podSecurity.privileged"},
		{"a standard, another path", restricted, pod(`{name: a, image: x}], volumes: [{name: v, hostPath: {path: /tmp}}`), pod(`{name: a, image: x2}], volumes: [{name: v, hostPath: {path: /}}`), "Violated podSecurity.hostPathVolumes"},
		{"a standard, worse in the same container", restricted, pod(`{name: a, image: x, securityContext: {capabilities: {add: [SYS_TIME]}}}`), pod(`{name: a, image: w, securityContext: {capabilities: {add: [SYS_TIME, SYS_ADMIN]}}}`), "Violated podSecurity.capabilities_baseline"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, tc.documents)
			d := set.Decide(context.Background(), policy.Input{Request: review(t, tc.object, updating(t, tc.old)), Violations: true})
			if got := outcomes(d); got != tc.want {
				t.Fatalf("got %q, want %q\n%s", got, tc.want, message(d.Response()))
			}
			refused := strings.HasPrefix(tc.want, "Violated") || strings.HasPrefix(tc.want, "Failed")
			if d.Response().Allowed == refused {
				t.Errorf("allowed: %t", d.Response().Allowed)
			}
			if strings.HasPrefix(tc.want, "Existing") && (len(d.Response().Warnings) != 1 || d.Response().AuditAnnotations[policy.ExistingKey] == "") {
				t.Errorf("not told: warnings %q, audit %q", d.Response().Warnings, d.Response().AuditAnnotations)
			}
		})
	}
}

// TestExistingIsAboutRefusals holds that what is only warned about is warned about
// each time.
func TestExistingIsAboutRefusals(t *testing.T) {
	t.Parallel()
	set := compile(t, strings.Replace(own(`validations: [{expression: "false", message: old}]`), "[Deny]", "[Warn, Audit]", 1))
	response := decide(t, set, review(t, configMap, updating(t, configMap)))
	if len(response.Warnings) != 1 || strings.Contains(response.Warnings[0], "before") || response.AuditAnnotations["validation_failure"] == "" {
		t.Errorf("warnings %q, audit %q", response.Warnings, response.AuditAnnotations)
	}
}

// TestExistingIsInTime holds that a look at what was before counts, in time and
// in cost.
func TestExistingIsInTime(t *testing.T) {
	t.Parallel()
	rules := own(`validations: [` + strings.Repeat(`{expression: "object.data.l.all(x, x == 1)"}, `, 10) + `{expression: "true"}]`)
	list := strings.TrimSuffix(strings.Repeat("2,", 300), ",")
	object := `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {l: [` + list + `]}}`
	old := strings.Replace(object, "name: c,", "name: c, labels: {a: b},", 1)
	budget := func(n string) *policy.Set {
		return compile(t, documents(rules, `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, requestCostBudget: `+n+`}`))
	}
	d := budget("1000000").Decide(context.Background(), policy.Input{Request: review(t, object, updating(t, old)), Violations: true})
	if !d.Response().Allowed || len(d.Violations) != 10 {
		t.Fatalf("%d violations, %s", len(d.Violations), message(d.Response()))
	}
	// Both looks cost the same: twice as much as one is enough, and less is not.
	cost := budget("1000000").Decide(context.Background(), policy.Input{Request: review(t, object), Explain: true}).Evaluations[0].Cost
	for budgeted, want := range map[int64]string{2*cost + 1: "allowed", 2*cost - 1: "cannot decide"} {
		if got := verdict(budget(fmt.Sprint(budgeted)).Decide(context.Background(), policy.Input{Request: review(t, object, updating(t, old))}).Response()); got != want {
			t.Errorf("with %d: %s", budgeted, got)
		}
	}
}
