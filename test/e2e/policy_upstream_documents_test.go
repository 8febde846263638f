package e2e

import (
	"fmt"
	"slices"
	"strings"
)

// upstreamPolicy is a policy that is about what resource rules say and, unless they say how objects are selected, about
// the objects with its name in the label "upstream".
func upstreamPolicy(name, constraints, spec, binding string) string {
	if !strings.Contains(constraints, "objectSelector") {
		constraints = fmt.Sprintf("objectSelector: {matchLabels: {upstream: %s}}, %s", name, constraints)
	}
	return fmt.Sprintf(`
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: upstream-%[1]s}
spec:
  matchConstraints: {%[2]s}
%[3]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: upstream-%[1]s}
spec: {policyName: upstream-%[1]s, matchResources: {namespaceSelector: {matchLabels: {upstream: compared}}}, %[4]s}
`, name, constraints, spec, binding)
}

// upstreamObjects are what the policies look up. The API server gets the same, but for the namespace.
const upstreamObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: ceiling-a, namespace: upstream-own, labels: {ceiling: "true"}}
data: {most: "10"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ceiling-b, namespace: upstream-own, labels: {ceiling: "true"}}
data: {most: "20"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: no-ceiling, namespace: upstream-own}
data: {most: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: strict, namespace: upstream-shared}
data: {most: "1"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: upstream-writer}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [create, forbidden]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: upstream-deleter}
rules: [{apiGroups: [""], resources: [secrets], verbs: [delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: upstream-frobnicator}
rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [x], verbs: [frobnicate]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: upstream-reader}
rules: [{nonResourceURLs: [/upstream/*], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: upstream-bypass}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [bypass]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: upstream-writers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: upstream-writer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: upstream}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: upstream-deleters}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: upstream-deleter}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: carl}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: upstream-frobnicators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: upstream-frobnicator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: upstream-readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: upstream-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}, {kind: ServiceAccount, name: robot, namespace: upstream-shared}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: upstream-bypassers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: upstream-bypass}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
`

// thingDefinition is of a kind without a schema.
const thingDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.upstream.example.com}
spec:
  group: upstream.example.com
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

// upstreamNamespaces is what Gatehouse is told of the namespaces.
const upstreamNamespaces = `
---
apiVersion: v1
kind: Namespace
metadata: {name: upstream-own, labels: {upstream: compared}}
---
apiVersion: v1
kind: Namespace
metadata: {name: upstream-shared}
`

// texts is an expression that shows values of any type.
func texts(expressions ...string) string {
	return "string(" + strings.Join(expressions, ") + ' ' + string(") + ")"
}

func upstreamDocuments() string {
	const (
		created    = `resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]`
		configMaps = "  paramKind: {apiVersion: v1, kind: ConfigMap}\n"
		deny       = "validationActions: [Deny]"
		ceilings   = ", paramRef: {selector: {matchLabels: {ceiling: 'true'}}, parameterNotFoundAction: Deny}"
	)
	connect := func(resource string) string {
		return `objectSelector: {}, resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [` + resource + `]}]`
	}
	subresource := func(resource string) string {
		return `objectSelector: {}, resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [` + resource + `]}]`
	}
	scalers := func(policy string) string {
		return `matchPolicy: ` + policy + `, resourceRules: [{apiGroups: [autoscaling], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [horizontalpodautoscalers]}]`
	}
	metadata := []string{
		"has(object.metadata.creationTimestamp)", "has(object.metadata.uid)", "has(object.metadata.generation)", "has(object.metadata.managedFields)",
		"has(object.metadata.annotations)", "has(object.metadata.resourceVersion)",
	}
	const none = `
  validations: [{expression: "params == null", message: never}]`
	return strings.Join([]string{
		upstreamPolicy("ceilings", created, configMaps+`
  validations: [{expression: "int(object.data.size) <= int(params.data.most)", messageExpression: "'above the ' + params.data.most + ' of ' + params.metadata.name"}]`, deny+ceilings),
		upstreamPolicy("elsewhere", created, configMaps+`
  validations: [{expression: "size(object.data) <= int(params.data.most)", messageExpression: "'at most ' + params.data.most + ' in ' + params.metadata.namespace"}]`,
			deny+", paramRef: {name: strict, namespace: upstream-shared, parameterNotFoundAction: Deny}"),
		upstreamPolicy("cluster", created, `
  paramKind: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole}
  validations: [{expression: "!(object.data.verb in params.rules[0].verbs)", messageExpression: "object.data.verb + ' is in ' + params.metadata.name"}]`,
			deny+", paramRef: {name: upstream-writer, parameterNotFoundAction: Deny}"),
		upstreamPolicy("cluster-missing", created, `
  paramKind: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole}
  validations: [{expression: "false"}]`, deny+", paramRef: {name: upstream-nothing, parameterNotFoundAction: Deny}"),
		upstreamPolicy("cluster-namespaced", created, `
  paramKind: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole}
  validations: [{expression: "false"}]`, deny+", paramRef: {name: upstream-writer, namespace: upstream-shared, parameterNotFoundAction: Allow}"),
		upstreamPolicy("missing", created, configMaps+none, "validationActions: [Warn], paramRef: {selector: {matchLabels: {ceiling: none}}, parameterNotFoundAction: Deny}"),
		upstreamPolicy("missing-allowed", created, configMaps+none, deny+", paramRef: {selector: {matchLabels: {ceiling: none}}, parameterNotFoundAction: Allow}"),
		upstreamPolicy("missing-ignored", created, "  failurePolicy: Ignore\n"+configMaps+none, deny+", paramRef: {selector: {matchLabels: {ceiling: none}}, parameterNotFoundAction: Deny}"),
		upstreamPolicy("unbound-params", created, configMaps+`
  validations: [{expression: "params == null || params.data.most == '1'", message: never}, {expression: "object.data.a == params.data.most", message: never}]`, deny),

		upstreamPolicy("rights", created, `
  validations:
  - {expression: "authorizer.group('').resource('secrets').namespace(namespaceObject.metadata.name).check('delete').allowed()", messageExpression: "request.userInfo.username + ' may not delete secrets'", reason: Forbidden}
  - {expression: "authorizer.requestResource.check('frobnicate').allowed()", message: may not frobnicate}
  - {expression: "authorizer.path('/upstream/x').check('get').allowed()", message: may not read}
  - {expression: "authorizer.serviceAccount('upstream-shared', 'robot').path('/upstream/x').check('get').allowed()", message: the robot may not read}
  - {expression: "!authorizer.group('apps').resource('deployments').subresource('scale').name('x').check('get').errored()", message: cannot tell}`, deny),
		upstreamPolicy("trusted", created, `
  matchConditions: [{name: not-trusted, expression: "!authorizer.group('').resource('configmaps').check('bypass').allowed()"}]
  validations: [{expression: "false", messageExpression: "request.userInfo.username + ' is not trusted'"}]`, deny),

		upstreamPolicy("chains", created, `
  variables:
  - {name: text, expression: "object.data.?x.orValue('0')"}
  - {name: number, expression: "int(variables.text)"}
  - {name: double, expression: "variables.number * 2"}
  - {name: lazy, expression: "1 / int(object.data.zero)"}
  - {name: names, expression: "object.data.map(k, k)"}
  validations:
  - {expression: "variables.double < 10", messageExpression: "'the double is ' + string(variables.double) + ' of ' + variables.text"}
  - {expression: "object.data.mode != 'lazy' || variables.lazy > 0", messageExpression: "'lazy: ' + string(variables.lazy)"}
  - {expression: "object.data.mode != 'names' || variables.names.exists(n, n == 'right')", messageExpression: "string(variables.names.size()) + ' names and none is right, ' + string(variables.number)"}`, deny),

		upstreamPolicy("messages", created, `
  validations:
  - {expression: "object.data.case != 'lines'", messageExpression: "'a\\nb'", message: not in lines}
  - {expression: "object.data.case != 'blank'", messageExpression: "'   '"}
  - {expression: "object.data.case != 'long'", messageExpression: "string(object.data.text)", message: not that long}
  - {expression: "object.data.case != 'nearly-long'", messageExpression: "string(object.data.text)", message: not that long}
  - {expression: "object.data.case != 'spaces'", messageExpression: "'  in the middle  '"}
  - {expression: "object.data.case != 'error'", messageExpression: "string(object.data.missing)", message: no such message}
  - {expression: "object.data.case != 'unicode'", messageExpression: "'grüße ✓ ' + object.data.text"}
  - {expression: "  object.data.case != 'static'  ", message: "  static, with spaces  ", reason: RequestEntityTooLarge}
  - expression: |
      object.data.case != 'folded' &&
        object.data.case != 'folded too'`, deny),

		upstreamPolicy("conditions", created, `
  matchConditions: [{name: a, expression: "object.data.a == '1'"}, {name: b, expression: "object.data.b == '1'"}]
  validations: [{expression: "false", message: matched}]`, deny),
		upstreamPolicy("conditions-ignored", created, `
  failurePolicy: Ignore
  matchConditions: [{name: a, expression: "object.data.a == '1'"}, {name: b, expression: "object.data.b == '1'"}]
  validations: [{expression: "false", message: matched}]`, deny),

		upstreamPolicy("noted", created, configMaps+`
  auditAnnotations:
  - {key: size, valueExpression: "string(object.data.size())"}
  - {key: ceiling, valueExpression: "string(params.metadata.name)"}
  - {key: blank, valueExpression: "object.data.size() > 100 ? 'large' : ''"}
  validations: [{expression: "object.data.size() <= 1", messageExpression: "'more than one in ' + object.metadata.name"}, {expression: "!('b' in object.data)", message: no b}]`,
			"validationActions: [Warn, Audit]"+ceilings),
		upstreamPolicy("noted-badly", created, `
  auditAnnotations: [{key: missing, valueExpression: "string(object.data.missing)"}]
  validations: [{expression: "true"}]`, "validationActions: [Audit]"),
		upstreamPolicy("noted-badly-ignored", created, `
  failurePolicy: Ignore
  auditAnnotations: [{key: missing, valueExpression: "string(object.data.missing)"}]
  validations: [{expression: "!('b' in object.data)", message: no b}]`, deny),

		upstreamPolicy("attached", connect("pods/attach"), `
  validations: [{expression: "!has(object.stdin) || !object.stdin", messageExpression: "'not to ' + request.name + '/' + object.container + ' as ' + request.kind.kind + string(has(request.options)) + string(oldObject == null)"}]`, deny),
		upstreamPolicy("forwarded", connect("pods/portforward"), `
  validations: [{expression: "object.ports.all(p, p > 1024)", messageExpression: "'ports of ' + object.kind + ': ' + string(object.ports[0])"}]`, deny),
		upstreamPolicy("proxied", connect("pods/proxy, services/proxy"), `
  validations: [{expression: "!object.path.startsWith('/admin')", messageExpression: "'not ' + object.path + ' of ' + request.resource.resource"}]`, deny),
		upstreamPolicy("selected-connections", `objectSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}, resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/portforward]}]`, `
  validations: [{expression: "false", message: options have no labels}]`, deny),

		upstreamPolicy("deleted", `resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]`, `
  validations:
  - {expression: "object == null && oldObject.data.keep != 'yes'", messageExpression: "'keep ' + oldObject.metadata.name + ', ' + request.operation"}
  - {expression: "!has(request.options.propagationPolicy) || request.options.propagationPolicy != 'Orphan'", messageExpression: "request.options.kind + ' ' + request.options.propagationPolicy"}`, deny),
		upstreamPolicy("evicted", subresource("pods/eviction"), `
  validations: [{expression: "object.metadata.name != 'stays'", messageExpression: "request.kind.group + ' ' + object.kind + ' of ' + request.name + ' by ' + request.resource.resource + '/' + request.subResource"}]`, deny),
		upstreamPolicy("bound", subresource("pods/binding"), `
  validations: [{expression: "object.target.name != 'forbidden'", messageExpression: "'not to ' + object.target.name + ', ' + request.name"}]`, deny),
		upstreamPolicy("tokens", subresource("serviceaccounts/token"), `
  validations: [{expression: "!('elsewhere' in object.spec.audiences)", messageExpression: "'no token of ' + request.name + ' for ' + object.spec.audiences.join(', ')"}]`, deny),

		upstreamPolicy("requests", `resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]`, `
  validations:
  - expression: object.data.pass == 'yes'
    messageExpression: "`+texts(
			"request.operation", "request.kind.group", "request.kind.version", "request.kind.kind", "request.requestKind.kind", "request.resource.resource",
			"request.requestResource.version", "has(request.subResource)", "has(request.requestSubResource)", "request.name", "request.namespace",
			"request.userInfo.username", "request.userInfo.groups.join('+')", "request.userInfo.?uid.orValue('-')",
			"request.userInfo.?extra[?'upstream.example/x'].orValue(['-']).join('+')", "request.dryRun", "request.options.kind", "request.options.apiVersion",
			"request.options.?fieldManager.orValue('-')", "oldObject == null")+`"`, deny),
		upstreamPolicy("shapes", `resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods, services, secrets]}]`, `
  validations:
  - expression: object.kind != 'Pod'
    messageExpression: "`+texts(slices.Concat(metadata, []string{
			"has(object.status)", "has(object.status.phase)", "has(object.spec.containers[0].resources)",
			"object.spec.containers[0].resources.limits.cpu", "object.spec.containers[0].resources.limits.memory", "has(object.spec.containers[0].resources.requests)",
			"has(object.spec.securityContext)", "has(object.spec.nodeName)", "object.spec.?priority.orValue(-1)", "object.spec.terminationGracePeriodSeconds",
			"object.spec.containers[0].livenessProbe.httpGet.port", "has(object.spec.containers[0].args)", "object.spec.tolerations.size()",
			"has(object.spec.hostNetwork)", "has(object.spec.hostUsers)",
		})...)+`"
  - expression: object.kind != 'Service'
    messageExpression: "`+texts(slices.Concat(metadata, []string{
			"object.spec.ports.map(p, string(p.targetPort) + (type(p.targetPort) == int ? ' number ' : ' text ') + string(p.port)).join(' ')",
			"has(object.spec.clusterIP)", "has(object.status.loadBalancer)",
		})...)+`"
  - expression: object.kind != 'Secret'
    messageExpression: "`+texts(slices.Concat(metadata, []string{"object.data.a", "object.data.b", "has(object.stringData)", "object.type"})...)+`"`, deny),

		upstreamPolicy("things", `resourceRules: [{apiGroups: [upstream.example.com], apiVersions: ["*"], operations: [CREATE], resources: ["*"]}]`, `
  validations:
  - expression: object.spec.count < 5
    messageExpression: "`+texts("object.spec.count", "object.spec.big", "object.spec.ratio", "object.spec.ratio > 1", "object.spec.list[0].a", "has(object.spec.nothing)",
			"type(object.spec.count) == int", "type(object.spec.ratio) == double", "object.spec['with-dash']", "object.spec.namespace")+`"`, deny),
		upstreamPolicy("excluded", `resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: ["*"], resources: ["*/*"], scope: Namespaced}],
    excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], resourceNames: [free]}, {apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [secrets]}]`, `
  validations: [{expression: "has(request.name) && request.name == 'good'", messageExpression: "request.operation + ' ' + request.resource.resource + ' ' + string(has(request.name)) + ' ' + request.?subResource.orValue('-')"}]`, deny),
		upstreamPolicy("debugged", `objectSelector: {}, resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods/ephemeralcontainers]}]`, `
  validations: [{expression: "object.spec.ephemeralContainers.all(c, c.image.startsWith('registry.example/'))", messageExpression: "request.kind.kind + ' ' + object.spec.ephemeralContainers[0].image + ' ' + string(has(oldObject.spec.ephemeralContainers))"}]`, deny),

		upstreamPolicy("scalers", scalers("Equivalent"), `
  validations: [{expression: "object.spec.targetCPUUtilizationPercentage >= 50", messageExpression: "string(object.spec.targetCPUUtilizationPercentage) + ' in ' + object.apiVersion + ', asked as ' + request.requestKind.version + ', ' + string(oldObject == null ? 'new' : oldObject.apiVersion)"}]`, deny),
		upstreamPolicy("scalers-exact", scalers("Exact"), `
  validations: [{expression: "object.spec.targetCPUUtilizationPercentage >= 50", messageExpression: "'exactly ' + object.apiVersion"}]`, deny),
	}, "")
}
