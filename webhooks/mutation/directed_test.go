package mutation_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// one returns a policy and a binding of it. The mutations are expressions: those that begin with "[" are JSON patches.
func one(name, more string, mutations ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: %s}\nspec:\n", name)
	if !strings.Contains(more, "matchConstraints:") {
		b.WriteString("  matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}]}\n")
	}
	if !strings.Contains(more, "reinvocationPolicy:") {
		b.WriteString("  reinvocationPolicy: Never\n")
	}
	binding := ""
	if before, after, found := strings.Cut(more, "\nBINDING\n"); found {
		more, binding = before, after
	}
	for line := range strings.Lines(more) {
		b.WriteString("  " + line)
	}
	b.WriteString("\n  mutations:\n")
	for _, m := range mutations {
		kind, field := "ApplyConfiguration", "applyConfiguration"
		if strings.HasPrefix(m, "[") {
			kind, field = "JSONPatch", "jsonPatch"
		}
		fmt.Fprintf(&b, "  - patchType: %s\n    %s:\n      expression: %q\n", kind, field, m)
	}
	fmt.Fprintf(&b, "---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: %s-b}\nspec:\n  policyName: %s\n", name, name)
	for line := range strings.Lines(binding) {
		b.WriteString("  " + line)
	}
	return b.String() + "\n---\n"
}

const namespaces = `apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a, kubernetes.io/metadata.name: shop}, annotations: {owner: ann}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: p1, namespace: shop, labels: {params: "yes"}}
data: {value: one}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: p2, namespace: shop, labels: {params: "yes"}}
data: {value: two}
---
`

const pod = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web, a~b: x, example.com/tier: front}, annotations: {count: "1"}}
spec:
  nodeSelector: {disk: ssd}
  tolerations: [{key: a, operator: Exists}]
  initContainers: [{name: init, image: busybox}]
  containers:
  - name: main
    image: nginx
    args: [a, b]
    env: [{name: A, value: "1"}, {name: B, value: "2"}]
    ports: [{containerPort: 80}, {containerPort: 81, protocol: UDP}]
    resources: {limits: {cpu: "1", memory: 1Gi}}
    securityContext: {capabilities: {add: [NET_ADMIN]}}
    livenessProbe: {httpGet: {port: http}}
  - {name: side, image: "side:1"}
  volumes: [{name: v, emptyDir: {}}]
`

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx}]}
`

const scale = `apiVersion: autoscaling/v1
kind: Scale
metadata: {name: web, namespace: shop}
spec: {replicas: 3}
`

const widget = `apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: shop, managedFields: [{manager: m, operation: Update, apiVersion: example.com/v1, time: "2026-01-01T00:00:00Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:size": {}}}}]}
spec:
  parts: [{name: a, tags: [x]}, {name: b, weight: 2}]
  tags: [one]
  fixed: {a: "1"}
  any: {deep: {er: [1, 2.5]}}
  template: {apiVersion: v1, kind: Pod, metadata: {labels: {a: b}}, spec: {x: 1}}
`

func scaleOf(r *admission.Request) {
	r.Resource.Group, r.Resource.Version, r.Resource.Resource, r.SubResource = "apps", "v1", "deployments", "scale"
	r.Operation = admissionv1.Update
	r.OldObject = r.Object
}

// cases are policies and objects whose results are held against upstream's.
func cases() []struct {
	name, documents, object, old string
	change                       func(*admission.Request)
} {
	return []struct {
		name, documents, object, old string
		change                       func(*admission.Request)
	}{
		{name: "labels", documents: one("a", "", label), object: pod},
		{name: "no change", documents: one("a", "", `Object{}`), object: pod},
		{name: "new map", documents: one("a", "", label), object: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\n"},
		{name: "init container is added", documents: one("a", "", `Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "more", image: "x"}]}}`), object: pod},
		{name: "container is merged", documents: one("a", "", `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`), object: pod},
		{name: "atomic list", documents: one("a", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "main", args: ["x"]}]}}`), object: pod},
		{name: "atomic list, ignored", documents: one("a", "failurePolicy: Ignore", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "main", args: ["x"]}]}}`, label), object: pod},
		{name: "atomic struct", documents: one("a", "", `Object{spec: Object.spec{nodeSelector: {"a": "b"}}}`), object: pod},
		{name: "capabilities", documents: one("a", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "main", securityContext: Object.spec.containers.securityContext{capabilities: Object.spec.containers.securityContext.capabilities{add: ["X"]}}}]}}`), object: pod},
		{name: "key is missing", documents: one("a", "", `Object{spec: Object.spec{containers: [Object.spec.containers{image: "x"}]}}`), object: pod},
		{name: "half a key, defaulted", documents: one("a", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "main", ports: [Object.spec.containers.ports{containerPort: 80, name: "web"}]}]}}`), object: pod},
		{name: "key twice", documents: one("a", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "x", image: "x"}, Object.spec.containers{name: "x", image: "y"}]}}`), object: pod},
		{name: "unknown field", documents: one("a", "", `Object{spec: Object.spec{nonsense: 1}}`), object: pod},
		{name: "wrong type", documents: one("a", "", `Object{spec: Object.spec{hostNetwork: "yes"}}`), object: pod},
		{name: "wrong type name", documents: one("a", "", `Object{spec: Object.metadata{labels: {"a": "b"}}}`), object: pod},
		{name: "optional field", documents: one("a", "", `Object{metadata: Object.metadata{?labels: has(object.metadata.nothing) ? optional.of({"a": "b"}) : optional.none(), ?annotations: object.metadata.?labels}}`), object: pod},
		{name: "a part of the object", documents: one("a", "", `Object{metadata: object.metadata}`) + one("b", "", `Object{metadata: Object.metadata{annotations: object.metadata.labels}}`), object: pod},
		{name: "a part of the object, after a condition", documents: one("a", "matchConditions: [{name: c, expression: 'true'}]", `Object{metadata: Object.metadata{annotations: object.metadata.labels}}`), object: pod},
		{name: "a struct of the object", documents: one("a", "", `Object{spec: Object.spec{containers: [object.spec.containers[0]]}}`), object: pod},
		{name: "a struct of the object, after a condition", documents: one("a", "matchConditions: [{name: c, expression: 'true'}]", `Object{spec: Object.spec{containers: [object.spec.containers[0]]}}`), object: pod},
		{name: "a struct in a patch, after a condition", documents: one("a", "matchConditions: [{name: c, expression: 'true'}]", `[JSONPatch{op: "add", path: "/spec/containers/-", value: object.spec.containers[1]}, JSONPatch{op: "replace", path: "/spec/containers/2/name", value: "third"}]`), object: pod},
		{name: "int or string", documents: one("a", "", `Object{spec: Object.spec{strategy: Object.spec.strategy{rollingUpdate: Object.spec.strategy.rollingUpdate{maxSurge: 3, maxUnavailable: "10%"}}}}`), object: deployment},
		{name: "quantities", documents: one("a", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "main", resources: Object.spec.containers.resources{requests: {"cpu": "1000m", "memory": "0.5Gi"}}}]}}`), object: pod},
		{name: "quantity is a number", documents: one("a", "", `Object{spec: Object.spec{containers: [Object.spec.containers{name: "main", resources: Object.spec.containers.resources{limits: {"cpu": 2}}}]}}`), object: pod},
		{name: "null field", documents: one("a", "", `Object{spec: Object.spec{nodeName: null}}`), object: pod},
		{name: "empty list", documents: one("a", "", `Object{spec: Object.spec{containers: []}}`), object: pod},
		{name: "set", documents: one("a", "", `Object{metadata: Object.metadata{finalizers: ["x/y"]}}`), object: strings.Replace(pod, "namespace: shop,", "namespace: shop, finalizers: [a/b],", 1)},
		{name: "patch", documents: one("a", "", `[JSONPatch{op: "add", path: "/metadata/labels/z", value: "1"}, JSONPatch{op: "remove", path: "/spec/containers/1"}, JSONPatch{op: "replace", path: "/spec/containers/0/args/0", value: "z"}]`), object: pod},
		{name: "patch escapes keys", documents: one("a", "", `[JSONPatch{op: "replace", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/tier"), value: "back"}, JSONPatch{op: "remove", path: "/metadata/labels/" + jsonpatch.escapeKey("a~b")}]`), object: pod},
		{name: "patch moves and copies", documents: one("a", "", `[JSONPatch{op: "copy", from: "/metadata/labels/app", path: "/metadata/labels/copy"}, JSONPatch{op: "move", from: "/metadata/annotations/count", path: "/metadata/annotations/m"}]`), object: pod},
		{name: "patch test fails", documents: one("a", "", `[JSONPatch{op: "add", path: "/metadata/labels/z", value: "1"}, JSONPatch{op: "test", path: "/metadata/name", value: "other"}]`), object: pod},
		{name: "patch of what is missing", documents: one("a", "", `[JSONPatch{op: "remove", path: "/metadata/labels/none"}]`, `[JSONPatch{op: "add", path: "/metadata/labels/z", value: "1"}]`), object: pod},
		{name: "patch of what is missing, ignored", documents: one("a", "failurePolicy: Ignore", `[JSONPatch{op: "remove", path: "/metadata/labels/none"}]`, `[JSONPatch{op: "add", path: "/metadata/labels/z", value: "1"}]`), object: pod},
		{name: "patch adds unknown field", documents: one("a", "failurePolicy: Ignore", `[JSONPatch{op: "add", path: "/spec/nonsense", value: 1}]`), object: pod},
		{name: "patch has wrong type", documents: one("a", "failurePolicy: Ignore", `[JSONPatch{op: "add", path: "/spec/hostNetwork", value: "yes"}]`), object: pod},
		{name: "patch has object", documents: one("a", "", `[JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "w", emptyDir: Object.spec.volumes.emptyDir{}}}]`), object: pod},
		{name: "patch has wrong object", documents: one("a", "", `[JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "w", emptyDir: Object.spec.other{}}}]`), object: pod},
		{name: "patch has map and list", documents: one("a", "", `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"a": "b"}}, JSONPatch{op: "add", path: "/spec/containers/1/args", value: ["x", string(1)]}]`), object: pod},
		{name: "patch has numbers", documents: one("a", "", `[JSONPatch{op: "add", path: "/spec/terminationGracePeriodSeconds", value: 5}, JSONPatch{op: "add", path: "/spec/priority", value: 1.5}]`), object: pod},
		{name: "patch has no value", documents: one("a", "", `[JSONPatch{op: "add", path: "/metadata/labels/z"}]`), object: pod},
		{name: "patch has unknown operation", documents: one("a", "", `[JSONPatch{op: "turn", path: "/metadata/labels/z", value: "1"}]`), object: pod},
		{name: "patch quotes", documents: one("a", "", `[JSONPatch{op: "add", path: "/metadata/annotations/k\u00e9\u2028<>", value: "<é\n>"}]`), object: pod},
		{name: "patch of all containers", documents: one("a", "", `[] + object.spec.containers.map(c, JSONPatch{op: "add", path: "/metadata/annotations/" + c.name, value: c.image})`), object: pod},
		{name: "patch removes defaults", documents: one("a", "", `[JSONPatch{op: "remove", path: "/spec/containers/0/image"}, JSONPatch{op: "remove", path: "/spec/tolerations"}]`), object: pod},
		{name: "list order", documents: one("a", "", `Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: "x", operator: "Exists"}]}}`), object: pod},
		{name: "two policies on one list", documents: one("b", "", `[JSONPatch{op: "add", path: "/spec/containers/0/args/-", value: "b"}]`) + one("a", "", `[JSONPatch{op: "add", path: "/spec/containers/0/args/-", value: "a"}]`), object: pod},
		{name: "mutations see those before", documents: one("a", "variables: [{name: v, expression: \"string(size(object.metadata.labels))\"}]", `Object{metadata: Object.metadata{labels: {"n1": variables.v}}}`, `Object{metadata: Object.metadata{labels: {"n2": variables.v}}}`), object: pod},
		{name: "variables fail", documents: one("a", "variables: [{name: v, expression: \"object.none\"}]", `Object{metadata: Object.metadata{labels: {"n1": variables.v}}}`, label), object: pod},
		{name: "match condition sees those before", documents: one("a", "", label) + one("b", "matchConditions: [{name: c, expression: \"object.metadata.labels[?'x'] == optional.of('y')\"}]", `Object{metadata: Object.metadata{labels: {"z": "z"}}}`), object: pod},
		{name: "match condition is false", documents: one("a", "matchConditions: [{name: c, expression: \"object.none == 1\"}, {name: d, expression: 'false'}]", label), object: pod},
		{name: "match condition fails", documents: one("a", "matchConditions: [{name: c, expression: \"object.none == 1\"}]", label), object: pod},
		{name: "match condition fails, ignored", documents: one("a", "failurePolicy: Ignore\nmatchConditions: [{name: c, expression: \"object.none == 1\"}]", label), object: pod},
		{name: "match condition sees no namespace", documents: one("a", "matchConditions: [{name: c, expression: \"namespaceObject == null\"}]", label), object: pod},
		{name: "selector by the object before", documents: one("a", "", `Object{metadata: Object.metadata{labels: {"x": "y"}}}`) + one("b", "matchConstraints: {objectSelector: {matchLabels: {x: y}}, resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}", `Object{metadata: Object.metadata{labels: {"z": "z"}}}`), object: pod},
		{name: "selector the second time", documents: one("a", "", `Object{metadata: Object.metadata{labels: {"x": "y"}}}`) + one("b", "reinvocationPolicy: IfNeeded\nmatchConstraints: {objectSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}, resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}", `Object{metadata: Object.metadata{labels: {"n": string(size(object.metadata.labels))}}}`), object: pod},
		{name: "reinvoked after another", documents: one("a", "reinvocationPolicy: IfNeeded", `Object{metadata: Object.metadata{annotations: {"count": string(int(object.metadata.annotations.count) + 1)}}}`) + one("b", "", label), object: pod},
		{name: "reinvoked alone", documents: one("a", "reinvocationPolicy: IfNeeded", `Object{metadata: Object.metadata{annotations: {"count": string(int(object.metadata.annotations.count) + 1)}}}`), object: pod},
		{name: "reinvoked last", documents: one("a", "", label) + one("b", "reinvocationPolicy: IfNeeded", `Object{metadata: Object.metadata{annotations: {"count": string(int(object.metadata.annotations.count) + 1)}}}`), object: pod},
		{name: "reinvoked without a change", documents: one("a", "reinvocationPolicy: IfNeeded", `Object{}`), object: pod},
		{name: "reinvoked, fails the second time", documents: one("a", "reinvocationPolicy: IfNeeded", `[JSONPatch{op: "remove", path: "/metadata/annotations/count"}]`), object: pod},
		{name: "namespace", documents: one("a", "", `Object{metadata: Object.metadata{labels: {"team": namespaceObject.metadata.labels.team, "ns": request.namespace}}}`), object: pod},
		{name: "namespace selector", documents: one("a", "matchConstraints: {namespaceSelector: {matchLabels: {team: b}}, resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}", label), object: pod},
		{name: "user and authorizer", documents: one("a", "", `Object{metadata: Object.metadata{annotations: {"by": request.userInfo.username, "may": string(authorizer.group("").resource("secrets").check("get").allowed())}}}`), object: pod},
		{name: "params", documents: one("a", "paramKind: {apiVersion: v1, kind: ConfigMap}\nBINDING\nparamRef: {name: p1, parameterNotFoundAction: Deny}", `Object{metadata: Object.metadata{labels: {"p": params.data.value}}}`), object: pod},
		{name: "several params", documents: one("a", "paramKind: {apiVersion: v1, kind: ConfigMap}\nBINDING\nparamRef: {selector: {matchLabels: {params: 'yes'}}, parameterNotFoundAction: Deny}", `[JSONPatch{op: "add", path: "/spec/containers/0/args/-", value: params.data.value}]`), object: pod},
		{name: "no params", documents: one("a", "paramKind: {apiVersion: v1, kind: ConfigMap}\nBINDING\nparamRef: {name: none, parameterNotFoundAction: Deny}", label), object: pod},
		{name: "no params, allowed", documents: one("a", "paramKind: {apiVersion: v1, kind: ConfigMap}\nBINDING\nparamRef: {name: none, parameterNotFoundAction: Allow}", label), object: pod},
		{name: "no paramRef", documents: one("a", "paramKind: {apiVersion: v1, kind: ConfigMap}", `Object{metadata: Object.metadata{labels: {"p": params == null ? "null" : "some"}}}`), object: pod},
		{name: "binding matches less", documents: one("a", "\nBINDING\nmatchResources: {objectSelector: {matchLabels: {app: other}}}", label), object: pod},
		{name: "scale", documents: one("a", "", `[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas + 1}]`), object: scale, change: scaleOf},
		{name: "status", documents: one("a", "", `Object{status: Object.status{observedGeneration: 7}}`), object: deployment, old: deployment, change: func(r *admission.Request) { r.SubResource = "status" }},
		{name: "old object", documents: one("a", "", `Object{metadata: Object.metadata{labels: {"old": oldObject.metadata.name}}}`), object: deployment, old: deployment},
		{name: "no old object", documents: one("a", "", `Object{metadata: Object.metadata{labels: {"old": oldObject == null ? "none" : "some"}}}`), object: deployment},
		{name: "no namespace", documents: one("a", "", `Object{metadata: Object.metadata{labels: {"ns": namespaceObject == null ? "none" : "some"}}}`), object: "apiVersion: v1\nkind: Namespace\nmetadata: {name: new}\n"},
		{name: "cluster-scoped", documents: one("a", "", label), object: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\nrules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"},
		{name: "kind without schema", documents: one("a", "failurePolicy: Ignore", label), object: "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t, namespace: shop}\nspec: {a: 1}\n"},
		{name: "kind without schema, patch", documents: one("a", "failurePolicy: Ignore", `[JSONPatch{op: "add", path: "/spec/b", value: 1}]`), object: "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t, namespace: shop}\nspec: {a: 1}\n"},
		{name: "custom resource", documents: one("a", "", label, `Object{spec: Object.spec{size: object.spec.size + 1}}`), object: widget},
		{name: "custom resource, part is added", documents: one("a", "", `Object{spec: Object.spec{parts: [Object.spec.parts{name: "c"}, Object.spec.parts{name: "a", weight: 9}], tags: ["two", "one"]}}`), object: widget},
		{name: "custom resource, atomic", documents: one("a", "", `Object{spec: Object.spec{fixed: {"b": "2"}, parts: [Object.spec.parts{name: "a", tags: ["y"]}]}}`), object: widget},
		{name: "custom resource, unknown field", documents: one("a", "", `Object{spec: Object.spec{none: 1}}`), object: widget},
		{name: "custom resource, any field", documents: one("a", "", `Object{spec: Object.spec{any: Object.spec.any{more: 1.5}, port: "http"}}`), object: widget},
		{name: "custom resource, embedded", documents: one("a", "", `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {"c": "d"}}}}}`), object: widget},
		{name: "custom resource, patch", documents: one("a", "", `[JSONPatch{op: "add", path: "/spec/parts/-", value: {"name": "z"}}, JSONPatch{op: "remove", path: "/spec/size"}, JSONPatch{op: "add", path: "/spec/unknown", value: true}]`), object: widget},
		{name: "custom resource, patch removes kind", documents: one("a", "", `[JSONPatch{op: "remove", path: "/kind"}]`), object: widget},
		{name: "custom resource, after a condition", documents: one("a", "matchConditions: [{name: c, expression: 'object.spec.size == 3'}]", `[JSONPatch{op: "add", path: "/spec/parts/-", value: object.spec.parts[0]}]`), object: widget},
		{name: "options of a connection", documents: one("a", "", label), object: "apiVersion: v1\nkind: PodExecOptions\ncontainer: main\n", change: func(r *admission.Request) { r.Operation = admissionv1.Connect }},
		{name: "options of a connection, patch", documents: one("a", "", `[JSONPatch{op: "replace", path: "/container", value: "side"}]`), object: "apiVersion: v1\nkind: PodExecOptions\ncontainer: main\n", change: func(r *admission.Request) { r.Operation = admissionv1.Connect }},
		{name: "cost limit", documents: one("a", "", `Object{metadata: Object.metadata{labels: {"n": string(lists.range(300).map(i, lists.range(300).map(j, lists.range(300))).size())}}}`, label), object: pod},
		{name: "cost limit of variables", documents: one("a", "failurePolicy: Ignore\nvariables: [{name: v, expression: \"lists.range(300).map(i, lists.range(300).map(j, lists.range(300))).size()\"}]", `Object{metadata: Object.metadata{labels: {"n": string(variables.v)}}}`, label), object: pod},
		{name: "secret", documents: one("a", "", `Object{data: {"b": "Yg=="}}`, `[JSONPatch{op: "add", path: "/data/c", value: "Yw=="}]`), object: "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\ndata: {a: YQ==}\n"},
	}
}

func TestDirected(t *testing.T) {
	t.Parallel()
	for _, tc := range cases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := difference(t, documents(t, tc.documents+namespaces), request(t, tc.object, tc.old, tc.change)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
