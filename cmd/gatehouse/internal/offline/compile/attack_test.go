package compile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// configOf returns the configuration of documents.
func configOf(t testing.TB, documents string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "documents.yaml"), []byte(documents), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// attackRequest is a request of TestAttacks: objects are YAML, "" for none.
type attackRequest struct {
	resource, group, sub, object, old string
	operation                         admissionv1.Operation
	name                              string
	user                              string
	// denied is whether Gatehouse denies it.
	denied bool
}

func (a attackRequest) request(t testing.TB) admission.Request {
	t.Helper()
	read := func(text string) map[string]any {
		if text == "" {
			return nil
		}
		var out map[string]any
		if err := yaml.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	object, old := read(a.object), read(a.old)
	main := object
	if main == nil {
		main = old
	}
	version, _ := main["apiVersion"].(string)
	kind, _ := main["kind"].(string)
	operation := a.operation
	switch {
	case operation != "":
	case object == nil:
		operation = admissionv1.Delete
	case old != nil:
		operation = admissionv1.Update
	default:
		operation = admissionv1.Create
	}
	gvk := schema.FromAPIVersionAndKind(version, kind)
	resource := a.resource
	if resource == "" {
		resource = strings.ToLower(kind) + "s"
	}
	req := ask(operation, gvk, resource, object, old)
	req.SubResource, req.RequestSubResource = a.sub, a.sub
	if a.group != "" {
		req.Resource.Group = a.group
	}
	if a.sub == "exec" {
		req.Resource = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
		req.RequestResource = &req.Resource
		req.Namespace = "shop"
	}
	if gvk.Kind == "Namespace" && operation != admissionv1.Create {
		req.Namespace = req.Name // as the API server has it
	}
	if a.name != "" {
		req.Name = a.name
	}
	if a.user != "" {
		req.UserInfo.Username = a.user
	}
	req.Options = runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)}
	return req
}

const attackRules = "resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]"

// attackPolicy returns an AdmissionPolicy named p.
func attackPolicy(match, more string) string {
	return "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints: {" + match + "}\n" + more + "\n"
}

// attackException returns a PolicyException from p.
func attackException(rules, match string) string {
	return "---\napiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: x, namespace: gatehouse-system}\nspec:\n  reason: because\n  policies: [{name: p" + rules + "}]\n  match: {" + match + "}\n"
}

// TestAttacks has requests by which somebody would get past a compiled policy, or be refused by it, unlike by its source. Where the two
// decide otherwise, the report has named the rule.
func TestAttacks(t *testing.T) {
	t.Parallel()
	const (
		deny     = "  validationActions: [Deny]\n"
		images   = deny + "  validations: [{expression: 'object.spec.containers.all(c, c.image.startsWith(\"r/\"))', message: images}]\n"
		owner    = deny + "  validations: [{expression: 'has(object.metadata.labels) && \"owner\" in object.metadata.labels', message: owner}]\n"
		namespac = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {env: prod}}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: lab}\n---\n"
		widgets  = "---\napiVersion: gatehouse.dev/v1alpha1\nkind: PolicyConfiguration\nworkloads: [{group: example.com, kind: Widget, resource: widgets, template: spec.template}]\n"
	)
	pod := func(labels, image string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {" + labels + "}}, spec: {containers: [{name: app, image: " + image + "}]}}"
	}
	widget := func(template string) string {
		return "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}, spec: {template: " + template + "}}"
	}
	deployment := func(template string) string {
		return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: " + template + "}}"
	}
	template := func(labels, image string) string {
		return "{metadata: {labels: {" + labels + "}}, spec: {containers: [{name: app, image: " + image + "}]}}"
	}
	roleOf := func(verb string) string {
		var b strings.Builder
		b.WriteString("{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r, namespace: shop}, rules: [")
		for i := range 4000 {
			fmt.Fprintf(&b, "{apiGroups: [''], resources: [r%d], verbs: [get]}, ", i)
		}
		return b.String() + "{apiGroups: [''], resources: [r], verbs: [" + verb + "]}]}"
	}
	manyContainers := func(security string) string {
		var b strings.Builder
		b.WriteString("{spec: {hostNetwork: false, containers: [")
		for i := range 900 {
			fmt.Fprintf(&b, "{name: c%d, image: x, securityContext: {privileged: false}}, ", i)
		}
		return b.String() + "{name: last, image: x, securityContext: " + security + "}]}}"
	}
	for name, c := range map[string]struct {
		documents string
		requests  []attackRequest
	}{
		"labelled into a match condition": {
			attackPolicy(attackRules, images+"  matchConditions: [{name: prod, expression: 'object.metadata.?labels.?env.orValue(\"\") == \"prod\"'}]"),
			[]attackRequest{
				{object: pod("env: test", "x")},
				{object: pod("env: prod", "x"), old: pod("env: test", "x"), denied: true},
				{object: pod("env: prod, a: b", "x"), old: pod("env: prod", "x")},
				{object: deployment(template("env: prod", "x")), old: deployment(template("env: test", "x")), denied: true},
				{object: deployment(template("env: prod, a: b", "x")), old: deployment(template("env: prod", "x"))},
			},
		},
		"labelled into a binding": {
			attackPolicy(attackRules, strings.TrimPrefix(images, deny)) + "---\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {env: prod}}}}\n",
			[]attackRequest{{object: pod("env: prod", "x"), old: pod("env: test", "x"), denied: true}, {object: pod("env: prod, a: b", "x"), old: pod("env: prod", "x")}},
		},
		"labelled into a policy": {
			attackPolicy(attackRules+", objectSelector: {matchLabels: {env: prod}}", images),
			[]attackRequest{{object: pod("env: prod", "x"), old: pod("env: test", "x"), denied: true}, {object: pod("env: prod, a: b", "x"), old: pod("env: prod", "x")}},
		},
		"a namespace labelled into a policy": {
			attackPolicy(strings.Replace(attackRules, "pods", "namespaces", 1)+", namespaceSelector: {matchLabels: {env: prod}}", owner),
			[]attackRequest{
				{object: "{apiVersion: v1, kind: Namespace, metadata: {name: till, labels: {env: prod}}}", old: "{apiVersion: v1, kind: Namespace, metadata: {name: till}}", denied: true},
				{object: "{apiVersion: v1, kind: Namespace, metadata: {name: till, labels: {env: prod, a: b}}}", old: "{apiVersion: v1, kind: Namespace, metadata: {name: till, labels: {env: prod}}}"},
			},
		},
		"a namespace labelled into a binding": {
			attackPolicy(strings.Replace(attackRules, "pods", "namespaces", 1), strings.TrimPrefix(owner, deny)) + "---\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {env: prod}}}}\n",
			[]attackRequest{{object: "{apiVersion: v1, kind: Namespace, metadata: {name: till, labels: {env: prod}}}", old: "{apiVersion: v1, kind: Namespace, metadata: {name: till}}", denied: true}},
		},
		"two bindings of one name": {
			attackPolicy(attackRules, images) + "---\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicyBinding\nmetadata: {name: p}\nspec: {policyName: p, validationActions: [Warn]}\n",
			[]attackRequest{{object: pod("", "x"), denied: true}},
		},
		"a binding of the name of another kind": {
			attackPolicy(attackRules, images) + "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: q}\nspec:\n  matchConstraints: {" + attackRules + "}\n  validations: [{expression: 'object.metadata.name != \"web\"'}]\n" +
				"---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: p.gatehouse.dev}\nspec: {policyName: q, validationActions: [Deny]}\n",
			[]attackRequest{{object: pod("", "x"), denied: true}},
		},
		"a binding that is too long for its templates": {
			strings.Replace(attackPolicy(attackRules, images), "name: p}", "name: "+strings.Repeat("a.", 120)+"b}", 1),
			[]attackRequest{{object: pod("", "x"), denied: true}, {object: deployment(template("", "x")), denied: true}},
		},
		"pods by name": {
			attackPolicy(strings.Replace(attackRules, "resources:", "resourceNames: [web], resources:", 1), images),
			[]attackRequest{{object: pod("", "x"), denied: true}, {object: deployment(template("", "x"))}},
		},
		"exceptions by short names": {
			attackPolicy(attackRules, deny+"  validations: [{name: reg, expression: 'object.spec.containers.all(c, c.image.startsWith(\"r/\"))', message: images}]\n") + attackException(", rules: [reg]", "namespaces: [shop]"),
			[]attackRequest{{object: pod("", "x")}, {object: deployment(template("", "x"))}},
		},
		"an exception from an audit annotation": {
			attackPolicy(attackRules, images+"  auditAnnotations: [{key: k, valueExpression: 'string(object.metadata.labels.owner)'}]") + attackException(", rules: ['auditAnnotations[0]']", "namespaces: [shop]"),
			[]attackRequest{{object: pod("", "r/x")}},
		},
		"an exception from a policy with an audit annotation that fails": {
			attackPolicy(attackRules, images+"  auditAnnotations: [{key: k, valueExpression: 'string(object.metadata.labels.owner)'}]") + attackException("", "namespaces: [shop]"),
			[]attackRequest{{object: pod("", "r/x")}, {object: pod("", "x")}},
		},
		"only finalizers": {
			attackPolicy(strings.Replace(attackRules, "CREATE, UPDATE", "UPDATE", 1), images),
			[]attackRequest{
				{object: pod("", "x"), old: strings.Replace(pod("", "x"), "name: web,", "name: web, finalizers: [a.b/c],", 1)}, {object: pod("a: b", "x"), old: pod("", "x"), denied: true},
			},
		},
		"only finalizers under a policy for some": {
			attackPolicy(attackRules+", objectSelector: {matchLabels: {env: prod}}", images),
			[]attackRequest{{object: pod("env: prod", "x"), old: strings.Replace(pod("env: prod", "x"), "name: web,", "name: web, finalizers: [a.b/c],", 1)}},
		},
		"labels that are null": {
			attackPolicy(attackRules+", objectSelector: {matchExpressions: [{key: skip, operator: DoesNotExist}]}", "  failurePolicy: Ignore\n"+images) + widgets,
			[]attackRequest{
				{object: widget("{metadata: {labels: null}, spec: {containers: [{name: app, image: x}]}}"), denied: true},
				{object: widget("{metadata: null, spec: {containers: [{name: app, image: x}]}}"), denied: true},
				{object: widget("{spec: {containers: [{name: app, image: x}]}}"), denied: true},
			},
		},
		"labels that are null under an exception": {
			attackPolicy(attackRules, "  failurePolicy: Ignore\n"+images) + attackException("", "objectSelector: {matchLabels: {skip: 'yes'}}") + widgets,
			[]attackRequest{{object: widget("{metadata: {labels: null}, spec: {containers: [{name: app, image: x}]}}"), denied: true}, {object: widget("{metadata: null, spec: {containers: [{name: app, image: x}]}}"), denied: true}},
		},
		"templates that are none": {
			attackPolicy(attackRules, images) + widgets,
			[]attackRequest{
				{object: widget("null")},
				{object: widget("[]")},
				{object: widget("x")},
				{object: widget("{}"), denied: true},
				{object: "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}}"},
				{object: "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}, spec: null}"},
				{object: "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}, spec: []}"},
				{object: widget(template("", "x")), old: widget("null"), denied: true},
				{object: widget(template("", "x")), old: widget("x"), denied: true},
				{object: widget(template("", "x")), denied: true},
				{object: "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {template: " + template("", "x") + "}}", denied: true},
			},
		},
		"templates of custom workloads under a standard": {
			attackPolicy(attackRules, deny+"  podSecurity: {level: restricted, version: v1.36}\n") + widgets,
			[]attackRequest{
				{object: widget("{spec: {securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, volumes: [{name: v, emptyDir: null, flexVolume: {driver: x}}], containers: [{name: app, image: x, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}"), denied: true},
				{object: widget("{spec: {securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, volumes: [{name: v, unknown: {}}], containers: [{name: app, image: x, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}"), denied: true},
				{object: widget("{spec: {securityContext: {runAsUser: '0', runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: app, image: x, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}"), denied: true},
				{object: widget("{spec: {securityContext: {runAsUser: 0.0, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: app, image: x, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}"), denied: true},
				{object: widget("{spec: {securityContext: {RunAsUser: 0, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, hostnetwork: true, containers: [{name: app, image: x, securityContext: {Privileged: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}")},
				{object: widget("{spec: {securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: null, initContainers: {a: b}}}"), denied: true},
				{object: widget("{spec: {securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: []}}")},
				{object: widget("{metadata: {annotations: null}, spec: {securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, volumes: null, initContainers: null, containers: []}}")},
				{object: widget("{metadata: {annotations: null}, spec: null}")},
			},
		},
		"an exception for namespaces by their labels": {
			namespac + attackPolicy(strings.Replace(attackRules, "pods", "pods, namespaces", 1), owner) + attackException("", "namespaceSelector: {matchLabels: {env: prod}}"),
			[]attackRequest{
				{object: "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: prod}}}", denied: true},
				{object: "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: prod}}}", old: "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: prod, owner: a}}}", denied: true},
				{object: pod("a: b", "x")},
			},
		},
		"an exception for a namespace by its name": {
			namespac + attackPolicy(strings.Replace(attackRules, "pods", "'*'", 1), owner) + attackException("", "namespaces: [shop]"),
			[]attackRequest{
				{object: "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}", old: "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {owner: a}}}", denied: true}, {object: pod("a: b", "x")},
			},
		},
		"a connection under an exception by labels": {
			attackPolicy("resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec]}]", deny+"  validations: [{expression: 'request.userInfo.username == \"root\"', message: exec}]\n") +
				attackException("", "objectSelector: {matchExpressions: [{key: a, operator: DoesNotExist}]}"),
			[]attackRequest{{object: "{apiVersion: v1, kind: PodExecOptions, command: [sh]}", resource: "pods", sub: "exec", operation: admissionv1.Connect, name: "web", denied: true}},
		},
		"a connection under an exception by name": {
			attackPolicy("resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec]}]", deny+"  validations: [{expression: 'request.userInfo.username == \"root\"', message: exec}]\n") + attackException("", "names: [web*]"),
			[]attackRequest{{object: "{apiVersion: v1, kind: PodExecOptions, command: [sh]}", sub: "exec", operation: admissionv1.Connect, name: "web"}, {object: "{apiVersion: v1, kind: PodExecOptions, command: [sh]}", sub: "exec", operation: admissionv1.Connect, name: "other", denied: true}},
		},
		"deletion under exceptions": {
			attackPolicy("resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [DELETE], resources: [pods]}]", deny+"  validations: [{expression: 'request.userInfo.username == \"root\"', message: deletion}]\n") +
				attackException("", "objectSelector: {matchLabels: {free: 'yes'}}"),
			[]attackRequest{{old: pod("free: 'yes'", "x")}, {old: pod("free: 'no'", "x"), denied: true}, {old: pod("", "x"), denied: true}},
		},
		"generated names": {
			attackPolicy(attackRules, images) + attackException("", "names: ['web*', exact-]"),
			[]attackRequest{
				{object: "{apiVersion: v1, kind: Pod, metadata: {generateName: web-, namespace: shop}, spec: {containers: [{name: app, image: x}]}}"},
				{object: "{apiVersion: v1, kind: Pod, metadata: {generateName: exact-, namespace: shop}, spec: {containers: [{name: app, image: x}]}}", denied: true},
				{object: "{apiVersion: v1, kind: Pod, metadata: {generateName: we, namespace: shop}, spec: {containers: [{name: app, image: x}]}}", denied: true},
				{object: "{apiVersion: apps/v1, kind: Deployment, metadata: {generateName: web-, namespace: shop}, spec: {template: " + template("", "x") + "}}"},
				{object: "{apiVersion: apps/v1, kind: Deployment, metadata: {generateName: other-, namespace: shop}, spec: {template: " + template("", "x") + "}}", denied: true},
				{object: "{apiVersion: v1, kind: Pod, metadata: {name: other, generateName: web-, namespace: shop}, spec: {containers: [{name: app, image: x}]}}", denied: true},
			},
		},
		"a long list under Ignore": {
			attackPolicy("resourceRules: [{apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [roles]}]",
				"  failurePolicy: Ignore\n"+deny+"  validations: [{expression: 'object.rules.all(r, !(\"*\" in r.verbs))', message: star}]\n"),
			[]attackRequest{{object: roleOf("'*'"), denied: true}, {object: roleOf("'*'"), old: roleOf("get"), denied: true}},
		},
		"many containers under Ignore": {
			attackPolicy(attackRules, "  failurePolicy: Ignore\n"+deny+"  validations: [{expression: 'object.spec.containers.all(c, c.?securityContext.?privileged.orValue(false) == false)', message: privileged}]\n"),
			[]attackRequest{
				{object: deployment(manyContainers("{privileged: true}")), old: deployment(manyContainers("{privileged: false}")), denied: true},
				{object: strings.Replace(deployment(manyContainers("{privileged: true}")), "hostNetwork: false", "hostNetwork: true", 1), old: deployment(manyContainers("{privileged: true}")), denied: true},
				{object: deployment(manyContainers("{privileged: true}"))},
			}[:2],
		},
		"many containers under a standard and Ignore": {
			attackPolicy(attackRules, "  failurePolicy: Ignore\n"+deny+"  podSecurity: {level: baseline, version: v1.36}\n"),
			[]attackRequest{
				{object: deployment(manyContainers("{privileged: true}")), denied: true},
				{object: deployment(manyContainers("{privileged: true}")), old: deployment(manyContainers("{privileged: false}")), denied: true},
				{object: strings.Replace(deployment(manyContainers("{privileged: true}")), "hostNetwork: false", "hostNetwork: true", 1), old: deployment(manyContainers("{privileged: true}")), denied: true},
			},
		},
		"power by another field": {
			attackPolicy(attackRules, deny+"  validations: [{expression: 'object.spec.?hostNetwork.orValue(false) == false', message: host}]\n"),
			func() (out []attackRequest) {
				of := func(more string) string {
					return deployment("{metadata: {annotations: {a: b}}, spec: {hostNetwork: true, " + more + "containers: [{name: app, image: x}]}}")
				}
				for _, more := range []string{
					"hostPID: true, ", "volumes: [{name: v, hostPath: {path: /}}], ", "serviceAccountName: root, ", "initContainers: [{name: i, image: y}], ", "securityContext: {runAsUser: 0}, ", "securityContext: {sysctls: [{name: a, value: b}]}, ",
					"shareProcessNamespace: true, ", "runtimeClassName: x, ", "nodeName: n, ", "tolerations: [{operator: Exists}], ", "ephemeralContainers: [{name: e, image: e}], ", "priorityClassName: system-node-critical, ", "unknown: {}, ", "hostAliases: [{ip: 1.1.1.1}], ",
				} {
					out = append(out, attackRequest{object: of(more), old: of(""), denied: more != "unknown: {}, "})
				}
				return out
			}(),
		},
		"variables in disguise": {
			attackPolicy(attackRules, "  failurePolicy: Ignore\n"+deny+"  variables: [{name: named, expression: 'object.metadata.?name.orValue(\"\")'}]\n  validations: [{expression: 'dyn(variables).named == \"free\"', message: named}]\n"),
			[]attackRequest{{object: pod("", "x"), denied: true}, {object: deployment(template("", "x")), denied: true}},
		},
		"loops that name their elements object": {
			attackPolicy(attackRules, "  failurePolicy: Ignore\n"+deny+"  validations: [{expression: '[{\"spec\": 1}].sortBy(object, object.spec).size() == 0', message: sorted}]\n"),
			[]attackRequest{{object: pod("", "x"), denied: true}, {object: deployment(template("", "x")), denied: true}},
		},
		"subresources": {
			attackPolicy("resourceRules: [{apiGroups: ['', apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ['*/*']}]", deny+"  validations: [{expression: '!has(object.metadata.labels) || !(\"bad\" in object.metadata.labels)', message: bad}]\n"),
			[]attackRequest{
				{object: pod("bad: x", "x"), old: pod("", "x"), sub: "status", denied: true},
				{object: pod("bad: x", "z"), old: pod("bad: x", "x"), sub: "status"},
				{object: "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: web, namespace: shop, labels: {bad: x}}, spec: {replicas: 2}}", resource: "deployments", group: "apps", old: "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: web, namespace: shop}, spec: {replicas: 2}}", sub: "scale", denied: true},
				{object: deployment(template("bad: x", "x")), old: deployment(template("", "x")), sub: "status"},
				{object: deployment(template("bad: x", "x")), old: deployment(template("", "x")), denied: true},
			},
		},
		"ephemeral containers under a standard": {
			attackPolicy("resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers]}]", deny+"  existingViolations: Deny\n  podSecurity: {level: baseline, version: v1.36}\n"),
			[]attackRequest{
				{object: strings.Replace(pod("", "x"), "spec: {", "spec: {ephemeralContainers: [{name: e, image: e, securityContext: {privileged: true}}], ", 1), old: pod("", "x"), sub: "ephemeralcontainers", denied: true},
				{object: strings.Replace(pod("", "x"), "spec: {", "spec: {ephemeralContainers: [{name: e, image: e}], ", 1), old: pod("", "x"), sub: "ephemeralcontainers"},
				{object: strings.Replace(pod("", "x"), "spec: {", "spec: {hostNetwork: true, ", 1), old: strings.Replace(pod("a: b", "x"), "spec: {", "spec: {hostNetwork: true, ", 1)},
				{object: strings.Replace(pod("", "y"), "spec: {", "spec: {hostNetwork: true, ", 1), old: strings.Replace(pod("a: b", "x"), "spec: {", "spec: {hostNetwork: true, ", 1), denied: true},
				{object: strings.Replace(pod("", "x"), "spec: {", "spec: {hostNetwork: true, ", 1), old: strings.Replace(pod("", "x"), "metadata: {", "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/app: runtime/default}, ", 1)},
			},
		},
		"users of templates": {
			attackPolicy(attackRules, deny+"  validations: [{expression: 'request.userInfo.username == \"root\" || object.spec.?hostNetwork.orValue(false) == false', message: host}, {expression: 'object.spec.containers.size() < 2'}]\n"),
			[]attackRequest{
				{object: deployment("{spec: {hostNetwork: true, containers: [{name: a, image: x}]}}"), old: deployment("{spec: {hostNetwork: true, containers: [{name: a, image: x}]}}"), denied: true},
				{object: deployment("{spec: {hostNetwork: true, containers: [{name: a, image: x}]}}"), user: "root"},
			},
		},
		"warnings about what was there": {
			attackPolicy(attackRules, "  validationActions: [Warn]\n"+strings.TrimPrefix(images, deny)),
			[]attackRequest{{object: pod("a: b", "x"), old: pod("", "x"), denied: true}, {object: deployment(template("", "x")), old: deployment(template("", "x"))}, {object: deployment(template("a: b", "x")), old: deployment(template("", "x")), denied: true}},
		},
		"one container for another": {
			attackPolicy(strings.Replace(attackRules, "pods", "podtemplates", 1), deny+"  validations: [{expression: 'object.template.spec.containers.all(c, c.image.startsWith(\"r/\"))', message: images}, {expression: 'object.template.spec.containers.exists(c, c.name == \"app\")'}, {expression: 'object.template.spec.containers[0].name == \"app\"'}, {expression: 'object.template.spec.containers.filter(c, c.image == \"x\").size() < 2'}]\n"),
			func() (out []attackRequest) {
				of := func(containers string) string {
					return "{apiVersion: v1, kind: PodTemplate, metadata: {name: web, namespace: shop}, template: {spec: {containers: [" + containers + "]}}}"
				}
				a, b, x, y := "{name: app, image: r/a}", "{name: b, image: r/b}", "{name: x, image: x}", "{name: z, image: x}"
				lists := []string{a, a + "," + b, a + "," + x, x + "," + a, x, a + "," + x + "," + y, b + "," + x, a + "," + y}
				for _, now := range lists {
					for _, before := range lists {
						out = append(out, attackRequest{object: of(now), old: of(before)})
					}
				}
				return out
			}(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, configOf(t, c.documents))
			for i, one := range c.requests {
				req := one.request(t)
				if name != "one container for another" && (len(p.violated(p.ours, req)) > 0) != one.denied {
					t.Errorf("request %d: the test is wrong: Gatehouse says %q", i, p.violated(p.ours, req))
				}
				rules := slices.DeleteFunc(slices.Concat(p.unnamed(req), p.passed(req)), func(rule string) bool {
					return strings.HasPrefix(rule, "error: not a pod") && p.out.Worst() != Native // the report says that templates stay
				})
				if len(rules) > 0 {
					difference := p.difference(req)
					t.Errorf("request %d: %q\n%s", i, rules, difference[:min(len(difference), 1500)])
				}
			}
			if t.Failed() {
				for _, item := range p.out.Items {
					t.Log(item.Kind, item.Name, item.Rule, item.Status, item.Reasons)
				}
				for k := range p.out.Documents {
					if d := &p.out.Documents[k]; d.Policy != nil {
						text, _ := yaml.Marshal(d.Policy.Spec)
						t.Logf("%s\n%s", d.Policy.Name, text[:min(len(text), 3000)])
					}
				}
			}
		})
	}
}

// passed returns the rules by which Gatehouse denies the request and the API server does not, unless the report says that
// such violations pass, or that the rule, or its templates if it is one, stays with Gatehouse.
func (p *pair) passed(req admission.Request) (rules []string) {
	native := p.violated(p.native, req)
	d := p.ours.Decide(context.Background(), policy.Input{Request: req, Violations: true})
	for i := range d.Violations {
		v := &d.Violations[i]
		rule := fmt.Sprintf("%s/%s %s %v", v.Kind, v.Policy, v.Rule, v.Actions)
		if v.Outcome != policy.Violated && v.Outcome != policy.Failed || slices.Contains(native, rule) {
			continue
		}
		if !slices.ContainsFunc(p.out.Items, func(item *Item) bool {
			isOf := item.Kind == v.Kind && item.Name == v.Policy && (item.Rule == v.Rule || strings.HasPrefix(v.Rule, item.Rule+"."))
			return isOf && (item.Status == Stays || slices.ContainsFunc(item.Reasons, func(reason string) bool {
				return strings.Contains(reason, "pass") || v.Template != "" && strings.Contains(reason, "templates")
			}))
		}) {
			rules = append(rules, rule)
		}
	}
	return rules
}
