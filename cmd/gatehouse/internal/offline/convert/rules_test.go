package convert_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// read returns the objects of a file of manifests.
func read(t *testing.T, text string) []*manifest.Object {
	t.Helper()
	const name = "policy.yaml"
	workloads, err := manifest.NewWorkloads()
	if err != nil {
		t.Fatal(err)
	}
	objects := manifest.Read(name, []byte(text), workloads).Objects
	for _, o := range objects {
		if o.Unreadable != nil {
			t.Fatalf("%s: %s\n%s", name, o.Unreadable, text)
		}
	}
	return objects
}

// compile compiles converted documents, with further ones.
func compile(t *testing.T, out *convert.Output, more string) *webhooks.Snapshot {
	t.Helper()
	text := more
	for _, d := range out.Documents {
		text += "\n---\n" + string(d.Text)
	}
	c, found := config.InspectPaths(nil, map[string][]byte{"converted.yaml": []byte(text)})
	snapshot, all := config.Compile(c, found)
	if err := all.Err(); err != nil {
		t.Fatalf("%s\n%s", err, text)
	}
	return snapshot
}

// clusterPolicy returns a ClusterPolicy with a rule about pods, of which validate and further fields are given.
func clusterPolicy(rule string) string {
	if !strings.Contains(rule, "match:") {
		rule += "\nmatch: {any: [{resources: {kinds: [Pod]}}]}"
	}
	return "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p, annotations: {policies.kyverno.io/title: P, other/x: x}}\nspec:\n" +
		"  validationFailureAction: Enforce\n  rules:\n    - name: r\n" + indent(rule, "      ")
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by) + "\n"
}

// clusterRole returns a ClusterRole with a field.
func clusterRole(field string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, " + field + "}"
}

// rows are rules with objects that they allow and that they deny. Objects are pods of which the spec is given, or the whole.
func rows() []struct{ name, rule, allowed, denied string } {
	return []struct{ name, rule, allowed, denied string }{
		{"a key that is absent fails", `validate: {pattern: {spec: {hostNetwork: false}}}`, `{hostNetwork: false}`, "{}\n{hostNetwork: true}"},
		{"=( ) only if present", `validate: {pattern: {spec: {=(hostNetwork): false}}}`, "{}\n{hostNetwork: false}", `{hostNetwork: true}`},
		{
			"X( ) must be absent", `validate: {pattern: {spec: {=(volumes): [{X(hostPath): "null"}]}}}`, "{}\n{volumes: [{name: a, emptyDir: {}}]}",
			`{volumes: [{name: a, emptyDir: {}}, {name: b, hostPath: {path: /x}}]}`,
		},
		{
			"( ) skips the element", `validate: {pattern: {spec: {containers: [{(name): "a*", image: "r/*"}]}}}`,
			"{containers: [{name: b, image: x}]}\n{containers: [{name: a, image: r/x}, {name: b, image: x}]}", `{containers: [{name: ab, image: x}]}`,
		},
		{
			"( ) in a map skips the rule", `validate: {pattern: {metadata: {labels: {(app): web}}, spec: {hostNetwork: false}}}`,
			"{metadata: {name: a, labels: {app: x}}}\n{metadata: {name: a, labels: {app: web}}, spec: {hostNetwork: false}}",
			"{metadata: {name: a}}\n{metadata: {name: a, labels: {app: web}}}",
		},
		{"<( ) skips the rule", `validate: {pattern: {spec: {<(hostNetwork): true, hostPID: false}}}`, "{hostNetwork: false}\n{hostPID: false}", "{}\n{hostNetwork: true, hostPID: true}"},
		{"^( ) one element", `validate: {pattern: {spec: {^(containers): [{name: a}]}}}`, `{containers: [{name: a}, {name: b}]}`, `{containers: [{name: b}]}`},
		{
			"wildcards", `validate: {pattern: {spec: {containers: [{image: "*:*&!*:latest"}]}}}`, `{containers: [{name: a, image: "x:1"}]}`,
			"{containers: [{name: a, image: x}]}\n{containers: [{name: a, image: \"x:latest\"}]}",
		},
		{"? is one character", `validate: {pattern: {spec: {nodeName: "n?-*"}}}`, "{nodeName: n1-}\n{nodeName: nx-y}", "{nodeName: n-1}\n{nodeName: xn1-}\n{}"},
		{"alternatives", `validate: {pattern: {spec: {dnsPolicy: "None | Cluster*"}}}`, "{dnsPolicy: None}\n{dnsPolicy: ClusterFirst}", "{dnsPolicy: Default}\n{}"},
		{
			"quantities", `validate: {pattern: {spec: {containers: [{resources: {limits: {memory: "<=1Gi"}}}]}}}`,
			"{containers: [{name: a, resources: {limits: {memory: 1024Mi}}}]}\n{containers: [{name: a, resources: {limits: {cpu: 1}}}]}", `{containers: [{name: a, resources: {limits: {memory: 2G}}}]}`,
		},
		{"a range", `validate: {pattern: {spec: {priority: 10-20}}}`, "{priority: 10}\n{priority: 20}", "{priority: 9}\n{priority: 21}\n{}"},
		{"outside of a range", `validate: {pattern: {spec: {priority: 10!-20}}}`, "{priority: 9}\n{}", "{priority: 10}"},
		{"durations", `validate: {pattern: {metadata: {annotations: {ttl: ">=1m"}}}}`, `{metadata: {name: a, annotations: {ttl: 60s}}}`, "{metadata: {name: a, annotations: {ttl: 59s}}}\n{metadata: {name: a, annotations: {ttl: x}}}"},
		{"a scalar over a list", `validate: {pattern: {spec: {=(containers): [{=(command): "!sh"}]}}}`, `{containers: [{name: a, command: [bash]}]}`, `{containers: [{name: a, command: [bash, sh]}]}`},
		{"labels by wildcards", `validate: {pattern: {metadata: {labels: {"app.io/*": "?*"}}}}`, `{metadata: {name: a, labels: {app.io/x: y}}}`, "{metadata: {name: a, labels: {x: y}}}\n{metadata: {name: a}}"},
		{"anyPattern", `validate: {anyPattern: [{spec: {hostPID: true}}, {spec: {hostIPC: true}}]}`, "{hostPID: true}\n{hostIPC: true}", `{}`},
		{
			"deny any", `validate: {deny: {conditions: {any: [{key: "{{ request.object.spec.containers[].image }}", operator: AnyIn, value: ["x:*"]}]}}}`,
			`{containers: [{name: a, image: "y:1"}]}`, `{containers: [{name: a, image: "y:1"}, {name: b, image: "x:1"}]}`,
		},
		{
			"deny all", `validate: {deny: {conditions: {all: [{key: "{{ length(request.object.spec.containers) }}", operator: GreaterThan, value: 1}, {key: "{{ request.object.metadata.labels.a || '' }}", operator: NotEquals, value: b}]}}}`,
			"{containers: [{name: a}]}\n{metadata: {name: a, labels: {a: b}}, spec: {containers: [{name: a}, {name: b}]}}", `{containers: [{name: a}, {name: b}]}`,
		},
		{
			"a computed list with wildcards", "match: {any: [{resources: {kinds: [ClusterRole]}}]}\n" + `validate: {deny: {conditions: {any: [{key: nodes/proxy, operator: AnyIn, value: "{{ request.object.rules[].resources[] }}"}]}}}`,
			clusterRole("rules: [{verbs: [get], resources: [nodes]}, {verbs: [get], nonResourceURLs: [/]}]") + "\n" + clusterRole("rules: null"),
			clusterRole("rules: [{resources: [pods]}, {resources: ['*']}]") + "\n" + clusterRole("rules: [{resources: [nodes/*]}]") + "\n" + clusterRole("rules: [{resources: [nodes/proxy]}]"),
		},
		{
			"In compares a list exactly", `validate: {deny: {conditions: {any: [{key: "{{ request.object.spec.containers[].image }}", operator: NotIn, value: ["r/*"]}]}}}`,
			"{containers: [{name: a, image: 'r/*'}]}", "{containers: [{name: a, image: r/x}]}",
		},
		{
			"a key is no pattern", "match: {any: [{resources: {kinds: [ClusterRole]}}]}\n" + `validate: {foreach: [{list: "request.object.rules[].resources[]", preconditions: {all: [{key: '*', operator: Equals, value: "{{ element }}"}]}, deny: {}}]}`,
			clusterRole("rules: [{resources: [pods, a.b]}]"), clusterRole("rules: [{resources: [pods, '*']}]"),
		},
		{
			"length of a list that is missing fails", `validate: {deny: {conditions: {any: [{key: "{{ request.object.spec.volumes[].hostPath | length(@) }}", operator: GreaterThan, value: 0}]}}}`,
			"{volumes: []}\n{volumes: [{name: a}]}", "{}\n{volumes: [{name: a, hostPath: {path: /}}]}",
		},
		{
			"a default after length does not help", "validate: {deny: {conditions: {any: [{key: \"{{ length(request.object.spec.volumes[?hostPath]) || `0` }}\", operator: GreaterThan, value: 0}]}}}",
			"{volumes: []}", "{}\n{volumes: [{name: a, hostPath: {path: /}}]}",
		},
		{
			"preconditions about the length of a list that is missing fail", `preconditions: {all: [{key: "{{ request.object.spec.volumes[].hostPath | length(@) }}", operator: GreaterThan, value: 0}]}
validate: {pattern: {spec: {hostPID: true}}}`, "{volumes: []}\n{volumes: [{name: a, hostPath: {path: /}}], hostPID: true}", "{}\n{volumes: [{name: a, hostPath: {path: /}}]}",
		},
		{
			"contains of a list that is missing fails", "match: {any: [{resources: {kinds: [ClusterRole]}}]}\n" + `validate: {deny: {conditions: {all: [{key: "{{ contains(request.object.rules[].resources[], 'secrets') || contains(request.object.rules[].resources[], '*') }}", operator: Equals, value: true}, {key: "{{ contains(request.object.rules[].verbs[], '*') }}", operator: Equals, value: true}]}}}`,
			clusterRole("rules: [{resources: [pods], verbs: ['*']}]") + "\n" + clusterRole("rules: []"), clusterRole("rules: null") + "\n" + clusterRole("rules: [{resources: ['*'], verbs: ['*']}]"),
		},
		{"a default", `validate: {deny: {conditions: {any: [{key: "{{ request.object.spec.terminationGracePeriodSeconds || ` + "`30`" + ` }}", operator: LessThan, value: 30}]}}}`, "{}\n{terminationGracePeriodSeconds: 30}", `{terminationGracePeriodSeconds: 29}`},
		{"a filter", `validate: {deny: {conditions: {any: [{key: "{{ request.object.spec.volumes[?hostPath].name || ` + "`[]`" + ` | length(@) }}", operator: GreaterThan, value: 0}]}}}`, "{}\n{volumes: [{name: a}]}", `{volumes: [{name: a, hostPath: {path: /}}]}`},
		{"what is missing fails", `validate: {deny: {conditions: {any: [{key: "{{ request.object.metadata.labels.a }}", operator: Equals, value: x}]}}}`, `{metadata: {name: a, labels: {a: y}}}`, "{}\n{metadata: {name: a, labels: {a: x}}}"},
		{
			"what is missing fails beside others", `validate: {deny: {conditions: {all: [{key: "{{ request.object.metadata.labels.a }}", operator: Equals, value: x}, {key: "{{ request.object.metadata.name }}", operator: Equals, value: b}]}}}`,
			`{metadata: {name: a, labels: {a: x}}}`, "{}\n{metadata: {name: b, labels: {a: x}}}",
		},
		{"preconditions about what is missing fail beside others", `preconditions: {all: [{key: "{{ request.object.metadata.labels.a }}", operator: Equals, value: x}, {key: "{{ request.object.metadata.name }}", operator: Equals, value: b}]}
validate: {pattern: {spec: {hostPID: true}}}`, `{metadata: {name: a, labels: {a: x}}}`, "{}\n{metadata: {name: b, labels: {a: x}}}"},
		{
			"elements of which something is missing", `validate: {foreach: [{list: request.object.spec.containers, preconditions: {any: [{key: "{{ element.image }}", operator: Equals, value: x}, {key: "{{ element.name }}", operator: Equals, value: a}]}, deny: {}}]}`,
			"{containers: [{name: a}]}", "{containers: [{name: a, image: y}]}\n{containers: [{name: b, image: x}]}",
		},
		{
			"a global anchor within a field that may be absent", `validate: {pattern: {spec: {=(securityContext): {<(runAsUser): ">0"}, ^(containers): [{image: "r/*"}]}}}`,
			"{securityContext: {runAsUser: 0}, containers: [{name: a, image: x}]}\n{containers: [{name: a, image: r/x}]}", "{securityContext: {runAsUser: 1}, containers: [{name: a, image: x}]}",
		},
		{"a label whose pattern is no text", `validate: {pattern: {metadata: {labels: {a: null, b: "?*"}}}}`, "{metadata: {name: a, labels: {a: x, b: c}}}", "{metadata: {name: a, labels: {a: x}}}"},
		{
			"a list with what is computed", `validate: {deny: {conditions: {any: [{key: "{{ request.object.spec.containers[].name }}", operator: AnyNotIn, value: ["{{ request.object.metadata.name }}", b]}]}}}`,
			`{containers: [{name: a}, {name: b}]}`, `{containers: [{name: c}]}`,
		},
		{
			"foreach with deny", `validate: {foreach: [{list: "request.object.spec.[containers, initContainers][]", preconditions: {all: [{key: "{{ element.image }}", operator: Equals, value: "r/*"}]}, deny: {conditions: {any: [{key: "{{ element.name }}", operator: Equals, value: a}]}}}]}`,
			"{containers: [{name: a, image: x}]}\n{containers: [{name: b, image: r/x}]}", "{containers: [{name: b}], initContainers: [{name: a, image: r/x}]}",
		},
		{"foreach with a pattern", `validate: {foreach: [{list: request.object.spec.containers, pattern: {image: "r/*"}}]}`, `{containers: [{name: a, image: r/x}]}`, `{containers: [{name: a, image: x}]}`},
		{"context", `context: [{name: allowed, variable: {value: [a, b]}}]
validate: {deny: {conditions: {any: [{key: "{{ request.object.spec.containers[].name }}", operator: AnyNotIn, value: "{{ allowed }}"}]}}}`, `{containers: [{name: a}]}`, `{containers: [{name: a}, {name: c}]}`},
		{"preconditions", `preconditions: {all: [{key: "{{ request.object.metadata.labels.a || '' }}", operator: Equals, value: b}]}
validate: {pattern: {spec: {hostPID: true}}}`, "{}\n{metadata: {name: a, labels: {a: b}}, spec: {hostPID: true}}", `{metadata: {name: a, labels: {a: b}}}`},
		{"exclude", `exclude: {any: [{resources: {namespaces: ["kube-*"]}}, {subjects: [{kind: User, name: root}]}]}
validate: {pattern: {spec: {hostPID: true}}}`, `{metadata: {name: a, namespace: kube-x}}`, `{metadata: {name: a, namespace: x}}`},
		{"names and selectors", `match: {any: [{resources: {kinds: [Pod], names: ["a*"], selector: {matchLabels: {x: "?*"}}}}]}
validate: {pattern: {spec: {hostPID: true}}}`, "{metadata: {name: a}}\n{metadata: {name: b, labels: {x: y}}}", `{metadata: {name: a, labels: {x: y}}}`},
		{
			"pod templates", `validate: {pattern: {spec: {containers: [{image: "r/*"}]}}}`,
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: r/x}]}}}}",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: x}]}}}}",
		},
		{"Pod Security", `validate: {podSecurity: {level: baseline, version: latest}}`, `{containers: [{name: a, image: x}]}`, `{hostNetwork: true, containers: [{name: a, image: x}]}`},
		{"other kinds", `match: {any: [{resources: {kinds: [ConfigMap]}}]}
validate: {pattern: {data: {a: "?*"}}}`, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: b}}\n{}", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {b: c}}`},
		{
			"stars in a computed list", `match: {any: [{resources: {kinds: [ClusterRole]}}]}
validate: {deny: {conditions: {all: [{key: nodes/proxy, operator: AnyIn, value: "{{ request.object.rules[].resources[] }}"}]}}}`,
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get], resources: [nodes]}]}",
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get], resources: ["*"]}]}
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get], resources: [nodes/proxy]}]}`,
		},
		{
			"a star that equals a computed value", `match: {any: [{resources: {kinds: [ClusterRole]}}]}
validate: {foreach: [{list: "request.object.rules[].resources[]", deny: {conditions: {all: [{key: "*", operator: Equals, value: "{{element}}"}]}}}]}`,
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get], resources: [nodes]}]}",
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get], resources: [nodes, "*"]}]}`,
		},
		{
			"null rules", `match: {any: [{resources: {kinds: [ClusterRole]}}]}
validate: {deny: {conditions: {any: [{key: "{{ contains(request.object.rules[].verbs[], '*') }}", operator: Equals, value: true}]}}}`,
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get]}]}",
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get, "*"]}]}`,
		},
		{"a custom resource", `match: {any: [{resources: {kinds: [x.io/v1/Thing]}}]}
validate: {pattern: {spec: {host: "?*.io", port: ">80"}}}`, "{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {host: a.io, port: 81}}", "{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {host: a.com, port: 81}}\n{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {host: a.io, port: 80}}"},
		{
			"a pattern about the object in a loop", `validate: {foreach: [{list: request.object.spec.volumes, elementScope: false, pattern: {spec: {restartPolicy: Never}}}]}`,
			"{restartPolicy: Never, volumes: [{name: a}]}\n{restartPolicy: Always}", `{restartPolicy: Always, volumes: [{name: a}]}`,
		},
		{
			"a pattern about the object in a loop over texts", `validate: {foreach: [{list: "request.object.spec.containers[].image", anyPattern: [{spec: {restartPolicy: Never}}]}]}`,
			"{restartPolicy: Never, containers: [{name: a, image: b}]}", `{restartPolicy: Always, containers: [{name: a, image: b}]}`,
		},
		{
			"a pattern about the outer element", `validate: {foreach: [{list: request.object.spec.containers, foreach: [{list: "element.ports", elementScope: false, pattern: {image: "r/*"}}]}]}`,
			"{containers: [{name: a, image: r/x, ports: [{containerPort: 1}]}, {name: b, image: x}]}", `{containers: [{name: a, image: x, ports: [{containerPort: 1}]}]}`,
		},
		{"a frozen namespace", `match: {any: [{resources: {kinds: ["*"], namespaceSelector: {matchLabels: {freeze: "true"}}}}]}
validate: {deny: {}}`, frozen + "\n" + role + "\n{metadata: {name: a, namespace: default}}", "{metadata: {name: a, namespace: frozen}}"},
		{"all but a frozen namespace", `match: {any: [{resources: {kinds: ["*"], namespaceSelector: {matchExpressions: [{key: freeze, operator: DoesNotExist}]}}}]}
validate: {deny: {}}`, frozen + "\n{metadata: {name: a, namespace: frozen}}", role + "\n{metadata: {name: a, namespace: default}}"},
		{"frozen namespaces and pods", `match: {any: [{resources: {kinds: [Namespace, Pod], namespaceSelector: {matchLabels: {freeze: "true"}}}}]}
validate: {deny: {}}`, frozen + "\n{metadata: {name: a, namespace: default}}", "{metadata: {name: a, namespace: frozen}}"},
		{"a frozen namespace among alternatives", `match: {any: [{resources: {kinds: ["*"], namespaceSelector: {matchLabels: {freeze: "true"}}}}, {resources: {kinds: [Secret]}}]}
validate: {deny: {}}`, frozen + "\n" + role + "\n{metadata: {name: a, namespace: default}}", "{metadata: {name: a, namespace: frozen}}\n{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: default}}"},
		{"excluded namespaces", `match: {any: [{resources: {kinds: [Namespace, Pod]}}]}
exclude: {any: [{resources: {namespaceSelector: {matchLabels: {freeze: "true"}}}}]}
validate: {deny: {}}`, "{metadata: {name: a, namespace: frozen}}", frozen + "\n{metadata: {name: a, namespace: default}}"},
		{"namespaces by their names, and pods in them", `match: {any: [{resources: {kinds: [Namespace, Pod], namespaces: [f*]}}]}
validate: {deny: {}}`, "{metadata: {name: f, namespace: default}}", frozen + "\n{metadata: {name: a, namespace: frozen}}"},
		{
			"values of several types", "match: {any: [{resources: {kinds: [x.io/v1/Thing]}}]}\nvalidate: {pattern: {spec: {open: false, =(size): 3, =(none): null}}}",
			"{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {open: false, size: 3}}\n{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {open: false, size: \"3\", none: \"\"}}",
			"{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {open: true}}\n{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {open: false, size: 4}}",
		},
		{
			"a condition with values of several types", "match: {any: [{resources: {kinds: [x.io/v1/Thing]}}]}\nvalidate: {deny: {conditions: {any: [{key: \"{{ request.object.spec.open }}\", operator: AnyIn, value: [false, \"no\", 0]}]}}}",
			"{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {open: true}}",
			"{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {open: false}}\n{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {open: \"no\"}}\n{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {open: 0}}",
		},
		{
			"an object that is missing", `validate: {deny: {conditions: {all: [{key: "{{ request.object.spec.affinity.nodeAffinity || '' }}", operator: Equals, value: ''}]}}}`,
			"{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}]}}}", "{}\n{affinity: {}}",
		},
		{
			"a list that may be empty", `validate: {deny: {conditions: {any: [{key: "{{ request.object.spec.tolerations || '' }}", operator: NotEquals, value: ''}]}}}`,
			"{}\n{tolerations: []}", "{tolerations: [{key: a}]}",
		},
		{"a constant with wildcards", `context: [{name: set, variable: {value: [A=a, B=b]}}]
validate: {deny: {conditions: {all: [{key: "C=*", operator: AnyNotIn, value: "{{ set }}"}, {key: "A=*", operator: AnyIn, value: "{{ set }}"}, {key: "{{ request.object.metadata.name }}", operator: Equals, value: b}]}}}`, "{}", "{metadata: {name: b}}"},
		{"a ConfigMap by its path", `context: [{name: cm, apiCall: {urlPath: /api/v1/namespaces/default/configmaps/settings, jmesPath: data.name}}]
validate: {deny: {conditions: {any: [{key: "{{ request.object.metadata.name }}", operator: NotEquals, value: "{{ cm }}"}]}}}`, "{metadata: {name: good}}", "{metadata: {name: bad}}"},
		{"a ConfigMap in CEL", `validate: {cel: {variables: [{name: cm, expression: "resource.Get('v1', 'configmaps', 'default', 'settings')"}], expressions: [{expression: "object.metadata.name == variables.cm.data.name"}]}}`, "{metadata: {name: good}}", "{metadata: {name: bad}}"},
		{"a field that is taken for optional", `validate: {cel: {expressions: [{expression: "object.spec.nodeName.orValue('none') == 'none'"}]}}`, "{}", "{nodeName: a}"},
		{"CEL", `celPreconditions: [{name: c, expression: "object.metadata.name != 'b'"}]
validate: {cel: {expressions: [{expression: "!has(object.spec.hostPID)", message: m}]}}`, "{}\n{metadata: {name: b}, spec: {hostPID: true}}", `{hostPID: true}`},
	}
}

// Objects that are not in a namespace, and what the policies of the tests look up.
const (
	frozen       = `{apiVersion: v1, kind: Namespace, metadata: {name: frozen, labels: {freeze: "true"}}}`
	role         = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: []}"
	surroundings = frozen + "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: default}}\n---\n" +
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}, data: {name: good}}\n"
)

// TestVerdicts converts rules, and has objects decided by the result.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	resources := request.NewResources(nil)
	for _, row := range rows() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			out := convert.Convert(read(t, clusterPolicy(row.rule)), convert.Options{})
			if len(out.Results) != 1 || out.Results[0].Status == convert.Not {
				t.Fatalf("not converted: %+v", out.Results)
			}
			set := compile(t, out, surroundings).Policy
			for verdict, objects := range map[bool]string{true: row.allowed, false: row.denied} {
				for object := range strings.Lines(objects) {
					d := set.Decide(t.Context(), policy.Input{Request: mustRequest(t, resources, object)})
					if got := d.Response().Allowed; got != verdict {
						t.Errorf("allowed: %v, want %v: %s\n%v\n%s", got, verdict, object, d.Violations, out.Documents[0].Text)
					}
				}
			}
		})
	}
}

// mustRequest returns the creation of an object: of a pod, the spec may be given alone.
func mustRequest(t *testing.T, resources *request.Resources, object string) admission.Request {
	t.Helper()
	switch {
	case strings.Contains(object, "apiVersion:"):
	case strings.Contains(object, "metadata:"):
		object = "{apiVersion: v1, kind: Pod, " + strings.TrimPrefix(strings.TrimSpace(object), "{")
	default:
		object = fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: %s}", strings.TrimSpace(object))
	}
	raw, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	r, err := resources.Build(request.Spec{Object: raw, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMutations converts rules that mutate, and has a pod changed by the result.
func TestMutations(t *testing.T) {
	t.Parallel()
	resources := request.NewResources(nil)
	for _, row := range []struct{ name, rule, pod, want string }{
		{"a label", `mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}`, `{metadata: {name: x}}`, `labels: {a: b}`},
		{"a field that is absent", `mutate: {patchStrategicMerge: {spec: {+(nodeName): a}}}`, `{metadata: {name: x}, spec: {nodeName: b}}`, `nodeName: b`},
		{
			"an element by a condition", `mutate: {patchStrategicMerge: {spec: {containers: [{(image): "r/*", imagePullPolicy: Always}]}}}`,
			`{metadata: {name: x}, spec: {containers: [{name: a, image: x, imagePullPolicy: Never}, {name: b, image: r/x, imagePullPolicy: Never}]}}`,
			`containers: [{image: x, imagePullPolicy: Never, name: a}, {image: r/x, imagePullPolicy: Always, name: b}]`,
		},
		{"an atomic list", `mutate: {patchStrategicMerge: {spec: {nodeSelector: {a: b}}}}`, `{metadata: {name: x}}`, `nodeSelector: {a: b}`},
		{"operations", "mutate:\n  patchesJson6902: |-\n    - {op: add, path: /metadata/annotations/a~1b, value: \"{{ request.namespace }}\"}", `{metadata: {name: x}}`, `annotations: {a/b: default}`},
		{"elements that are missing", "mutate:\n  patchesJson6902: |-\n    - {op: add, path: /spec/tolerations/-, value: {key: a}}\n    - {op: add, path: /spec/readinessGates/0/conditionType, value: b}", `{metadata: {name: x}}`, `readinessGates: [{conditionType: b}]`},
		{
			"a loop", `mutate: {foreach: [{list: request.object.spec.containers, patchStrategicMerge: {metadata: {annotations: {"x/{{ element.name }}": "y"}}}}]}`,
			`{metadata: {name: x}, spec: {containers: [{name: a}, {name: b}]}}`, `annotations: {x/a: "y", x/b: "y"}`,
		},
		{
			"replacement in a loop", "mutate:\n  foreach:\n    - list: request.object.spec.tolerations[]\n      preconditions: {all: [{key: \"{{ element.key }}\", operator: Equals, value: a}]}\n      patchesJson6902: |-\n        - {op: replace, path: \"/spec/tolerations/{{elementIndex}}\", value: {key: z}}",
			`{metadata: {name: x}, spec: {tolerations: [{key: a}, {key: c}]}}`, `tolerations: [{key: z}, {key: c}]`,
		},
		{
			"removal in a loop", "mutate:\n  foreach:\n    - list: request.object.spec.volumes\n      order: Descending\n      preconditions: {all: [{key: \"{{ element.name }}\", operator: AnyIn, value: [a, b]}]}\n      patchesJson6902: |-\n        - {op: remove, path: \"/spec/volumes/{{elementIndex}}\"}",
			`{metadata: {name: x}, spec: {volumes: [{name: a}, {name: c}, {name: b}]}}`, `volumes: [{name: c}]`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			out := convert.Convert(read(t, clusterPolicy(row.rule)), convert.Options{})
			if out.Results[0].Status == convert.Not {
				t.Fatalf("not converted: %+v", out.Results)
			}
			r := mustRequest(t, resources, row.pod)
			if d := admit.Mutate(t.Context(), compile(t, out, "").Mutation, &r, true); d.Err != nil || d.Refusal != nil {
				t.Fatalf("%v %v\n%s", d.Err, d.Refusal, out.Documents[0].Text)
			}
			text, err := yaml.JSONToYAML(r.Object.Raw)
			if err != nil {
				t.Fatal(err)
			}
			want, err := yaml.YAMLToJSON([]byte(row.want))
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.YAMLToJSON(text)
			if err != nil || !strings.Contains(string(got), strings.Trim(string(want), "{}")) {
				t.Errorf("got %s, want %s in it\n%s", got, want, out.Documents[0].Text)
			}
		})
	}
}

// TestNotConverted wants what has no translation to be named with its line.
func TestNotConverted(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		rule, construct string
		line            int
	}{
		{"validate:\n  deny:\n    conditions:\n      all:\n        - key: \"{{ time_now_utc() }}\"\n          operator: Equals\n          value: x", "the JMESPath function time_now_utc()", 12},
		{"validate:\n  deny:\n    conditions:\n      all:\n        - key: \"a*\"\n          operator: AnyNotIn\n          value: \"{{ request.object.spec.containers[].name }}\"", "wildcards beside a value that is computed", 12},
		{"exclude: {any: [{resources: {kinds: [Pod]}}]}\nvalidate: {pattern: {spec: {hostPID: true}}}", "a rule that never applies: its conditions never hold", 10},
		{"context:\n  - name: x\n    apiCall: {urlPath: /api/v1/nodes}\nvalidate: {pattern: {spec: {hostPID: true}}}", "a request to the API server or a service", 10},
		{"match:\n  any:\n    - clusterRoles: [admin]\n      resources: {kinds: [Pod]}\nvalidate: {pattern: {spec: {hostPID: true}}}", "roles of the user", 10},
		{"validate:\n  pattern:\n    spec:\n      +(hostPID): true", "the anchor +( ) in a rule that validates", 11},
		{"generate: {kind: ConfigMap}", "a rule that generates objects", 8},
		{"verifyImages: [{}]", "the verification of image signatures", 8},
		{"validate: {pattern: {spec: {hostPID: true}}}\nunheard: true", "unknown field", 9},
		{"mutate:\n  targets: [{kind: Pod}]\n  patchStrategicMerge: {}", "the mutation of other objects", 9},
		{"validate:\n  pattern: {spec: {nodeName: \"{{ nothing }}\"}}", `the variable "nothing"`, 9},
		{"validate: {pattern: {metadata: {labels: {a: \"{{ request.\\\"object\\\".metadata.name }}\"}}}}", "which is the workload and not the pod", 7},
	} {
		out := convert.Convert(read(t, clusterPolicy(row.rule)), convert.Options{})
		if len(out.Results) != 1 || out.Results[0].Status != convert.Not || len(out.Documents) > 0 {
			t.Errorf("%s: converted: %+v", row.rule, out.Results)
			continue
		}
		if p := out.Results[0].Problems[0]; !strings.Contains(p.Construct, row.construct) || p.Line != row.line || p.Instead == "" {
			t.Errorf("%s: %+v, want %q in line %d", row.rule, p, row.construct, row.line)
		}
	}
}

// TestNotConvertedCEL wants expressions to be named that fail or do nothing outside of Kyverno.
func TestNotConvertedCEL(t *testing.T) {
	t.Parallel()
	const match = "  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n"
	for _, row := range []struct{ kind, rest, construct string }{
		{"ValidatingPolicy", "  variables: [{name: l, expression: \"object.metadata.?labels\"}]\n  validations: [{expression: \"variables.l.orValue({}).size() > 0\"}]", ""},
		{"ValidatingPolicy", "  variables: [{name: l, expression: \"resource.Get('v1', 'secrets', 'a', 'b')\"}]\n  validations: [{expression: \"true\"}]", "resource.Get(), which Kyverno adds to CEL"},
		{"ValidatingPolicy", "  validations: [{expression: \"object.spec.containers.all(c, image(c.image).registry() == 'a')\"}]", "image(), which Kyverno adds to CEL"},
		{"ValidatingPolicy", "  validations: [{expression: \"yaml.parse(object.metadata.name) == null\"}]", "yaml.parse(), which Kyverno adds to CEL"},
		{"ValidatingPolicy", "  validations: [{expression: \"object.spec.containers.all(c, c.image in exceptions.allowedImages)\"}]", "exceptions.allowedImages, which Kyverno adds to CEL"},
		{"ValidatingPolicy", "  validations: [{expression: \"a + b == c\"}]", "a policy that is not valid in Kubernetes: spec.validations[0].expression: 1:1 in \"a + b == c\": \"a\" is not declared"},
		{"ValidatingPolicy", "  evaluation: {mode: Envoy}\n  validations: [{expression: \"true\"}]", "a policy that is about no objects of Kubernetes"},
		{"MutatingPolicy", "  variables: [{name: v, expression: \"object.metadata.name\"}]\n  matchConditions: [{name: a, expression: \"variables.v == 'b'\"}]\n  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/metadata/labels\"}]'}}, {patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}}]", ""},
		{"MutatingPolicy", "  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/metadata/labels\", value: {}}]'}}, {patchType: JSONPatch, jsonPatch: {expression: '[]'}}]", "an empty object that is added for a later mutation"},
		{"MutatingPolicy", "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{spec: Object.spec{volumes: object.spec.volumes + [Object.spec.volumes{name: \"a\"}]}}'}}]", "a list of elements that there are, and of new ones"},
	} {
		text := "apiVersion: policies.kyverno.io/v1\nkind: " + row.kind + "\nmetadata: {name: p, namespace: of}\nspec:\n" + match + row.rest
		out := convert.Convert(read(t, text), convert.Options{})
		if r := out.Results[0]; row.construct == "" && (r.Status == convert.Not || strings.Contains(string(out.Documents[0].Text), "request.namespace")) {
			t.Errorf("%s: %+v", row.rest, r)
		} else if row.construct != "" && (r.Status != convert.Not || !strings.Contains(r.Problems[0].Construct, row.construct)) {
			t.Errorf("%s: %+v, want %q", row.rest, r, row.construct)
		}
	}
}

// TestPartial wants parts to be left out only if that is asked for, and only such that the policy refuses more without.
func TestPartial(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		rule string
		want convert.Status
	}{
		{`exclude: {any: [{clusterRoles: [admin]}, {resources: {namespaces: [x]}}]}
validate: {pattern: {spec: {hostPID: true}}}`, convert.Different},
		{`exclude: {all: [{clusterRoles: [admin]}, {resources: {namespaces: [x]}}]}
validate: {pattern: {spec: {hostPID: true}}}`, convert.Not},
		{`match: {any: [{clusterRoles: [admin], resources: {kinds: [Pod]}}]}
validate: {pattern: {spec: {hostPID: true}}}`, convert.Not},
	} {
		objects := read(t, clusterPolicy(row.rule))
		if out := convert.Convert(objects, convert.Options{}); out.Results[0].Status != convert.Not {
			t.Errorf("%s: converted without --partial", row.rule)
		}
		if out := convert.Convert(objects, convert.Options{Partial: true}); out.Results[0].Status != row.want {
			t.Errorf("%s: %+v, want %s", row.rule, out.Results[0], row.want)
		}
	}
}

// TestDocument wants a policy that people want to keep.
func TestDocument(t *testing.T) {
	t.Parallel()
	rule := `validate: {message: "not {{ request.object.metadata.name }}", pattern: {spec: {containers: [{(name): "a*", image: "r/*", securityContext: {privileged: false}}]}}}`
	out := convert.Convert(read(t, clusterPolicy(rule)), convert.Options{Actions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}})
	const want = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata:
  annotations:
    policies.kyverno.io/title: P
  name: p
spec:
  matchConstraints:
    resourceRules:
    - apiGroups:
      - ""
      apiVersions:
      - v1
      operations:
      - CREATE
      - UPDATE
      resources:
      - pods
      - pods/ephemeralcontainers
  validationActions:
  - Warn
  validations:
  - expression: |-
      object.spec.containers.all(container,
        !container.name.startsWith("a") ||
        has(container.image) &&
        container.image.startsWith("r/") &&
        has(container.securityContext) &&
        has(container.securityContext.privileged) &&
        !container.securityContext.privileged
      )
    message: not …
    messageExpression: '"not " + object.metadata.name'
    name: r
`
	if got := string(out.Documents[0].Text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestPodsAndOthers wants templates of workloads to be left alone by a rule about pods and other kinds, and that Kyverno refuses deletions to be named.
func TestPodsAndOthers(t *testing.T) {
	t.Parallel()
	out := convert.Convert(read(t, `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  validationFailureAction: Enforce
  rules: [{name: r, match: {any: [{resources: {kinds: [Pod, Namespace]}}]}, validate: {cel: {expressions: [{expression: "has(object.metadata.labels)"}]}}}]
`), convert.Options{})
	if got := strings.Join(out.Results[0].Differences, "\n"); !strings.Contains(got, "Kyverno refuses to delete what violates the rule, too") {
		t.Error(got)
	}
	if got := string(out.Documents[0].Text); !strings.Contains(got, "workloadTemplates: Ignore") {
		t.Error(got)
	}
}

// TestCELPolicies wants the differences of policies in CEL to be kept or named.
func TestCELPolicies(t *testing.T) {
	t.Parallel()
	const pods = "  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}\n"
	for _, row := range []struct{ name, rest, text, difference string }{
		{"existing violations", pods + "  validations: [{expression: \"has(object.spec.nodeName)\"}]", "existingViolations: Deny", ""},
		{"the name of a condition", pods + "  matchConditions: [{name: \"Has a name?\", expression: \"true\"}]\n  validations: [{expression: \"true\"}]", "name: has-a-name", ""},
		{"a ConfigMap", pods + "  variables: [{name: c, expression: 'resource.Get(\"v1\", \"configmaps\", \"default\", \"settings\")'}]\n  validations: [{expression: \"variables.c.data.a == 'b'\"}]", "parameterNotFoundAction: Deny", ""},
		{"a Namespace", pods + "  validations: [{expression: \"resource.Get('v1', 'namespaces', '', object.metadata.namespace).metadata.name == 'b'\"}]", "namespaceObject.metadata.name == 'b'", ""},
		{
			"a condition with a variable", pods + "  variables: [{name: ns, expression: 'resource.Get(\"v1\", \"namespaces\", \"\", object.metadata.namespace)'}]\n  matchConditions: [{name: a, expression: \"variables.ns.metadata.name != 'b'\"}, {name: c, expression: \"true\"}]\n  validations: [{expression: \"false\"}]",
			"- expression: '!((variables.ns.metadata.name != ''b'')) || (false)'", "",
		},
		{
			"some workloads", "  autogen: {podControllers: {controllers: [deployments, jobs]}}\n" + pods + "  validations: [{expression: \"true\"}]", "kind: AdmissionPolicy",
			"the pod templates of all workloads are checked, and not those of deployments, jobs alone",
		},
		{"no workloads", "  autogen: {podControllers: {controllers: []}}\n" + pods + "  validations: [{expression: \"true\"}]", "kind: ValidatingAdmissionPolicy", ""},
		{"pods of a name", strings.Replace(pods, "resources:", "resourceNames: [a], resources:", 1) + "  validations: [{expression: \"true\"}]", "kind: ValidatingAdmissionPolicy", ""},
		{
			"a field that is taken for optional", pods + "  validations: [{expression: \"!object.metadata.labels.orValue({}).exists(k, k == 'a')\"}]", "!object.metadata.?labels.orValue({})",
			"object.metadata.labels is optional: Kyverno fails to evaluate it where it is missing",
		},
	} {
		out := convert.Convert(read(t, "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: p}\nspec:\n"+row.rest), convert.Options{})
		text := ""
		for _, d := range out.Documents {
			text += string(d.Text)
		}
		if r := out.Results[0]; r.Status == convert.Not || !strings.Contains(text, row.text) || strings.Join(r.Differences, "\n") != row.difference {
			t.Errorf("%s: %+v\n%s", row.name, r, text)
		}
	}
}

// TestResources wants the resources of kinds from what defines them, and no guesses that are likely to be wrong.
func TestResources(t *testing.T) {
	t.Parallel()
	const crd = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: oxen.x.io}\n" +
		"spec: {group: x.io, scope: Cluster, names: {kind: Ox, plural: oxen}, versions: [{name: v1, served: true, storage: true}]}\n"
	cluster := map[schema.GroupVersionKind]request.Resource{{Group: "y.io", Version: "v1", Kind: "Status"}: {Name: "states"}}
	for kind, want := range map[string]string{
		"SecurityContextConstraints": `"security.openshift.io"] ["*"] ["securitycontextconstraints"]`, "security.openshift.io/v1/SecurityContextConstraints": `"security.openshift.io"] ["v1"]`,
		"DNS": `"operator.openshift.io"] ["*"] ["dnses"]`, "Redis": `"redis.redis.opstreelabs.in"] ["*"] ["redis"]`, "monitoring.coreos.com/v1/Prometheus": `["prometheuses"]`,
		"x.io/v1/Ox": `["x.io"] ["v1"] ["oxen"]`, "Ox": `["x.io"] ["v1"] ["oxen"]`, "Status": `["y.io"] ["v1"] ["states"]`, "y.io/*/Status": `["states"]`,
		"gateway.networking.k8s.io/v1/Gateway": `["gateways"]`, "GatewayClass": `["gatewayclasses"]`, "NetworkPolicy": `["networkpolicies"]`,
		"z.io/v1/Settings": "", "Chaos": "", "Box": "", "Nothing*": "", "Pod/status": `["pods/status"]`, "x.io/v1/Ox/status": `["oxen/status"]`,
	} {
		rule := fmt.Sprintf("match: {any: [{resources: {kinds: [%q]}}]}\nvalidate: {deny: {conditions: {any: [{key: \"{{ request.name }}\", operator: Equals, value: a}]}}}", kind)
		out := convert.Convert(read(t, clusterPolicy(rule)+crd), convert.Options{Kinds: cluster})
		if want == "" {
			if r := out.Results[0]; r.Status != convert.Not || !strings.Contains(r.Problems[0].Construct, "whose resource is not known") {
				t.Errorf("%s: %+v", kind, r)
			}
			continue
		}
		var found []string
		for _, d := range out.Documents {
			var of struct {
				Spec struct {
					MatchConstraints admissionregistrationv1.MatchResources `json:"matchConstraints"`
				} `json:"spec"`
			}
			if err := yaml.Unmarshal(d.Text, &of); err != nil {
				t.Fatal(err)
			}
			for _, r := range of.Spec.MatchConstraints.ResourceRules {
				found = append(found, fmt.Sprintf("%q %q %q", r.APIGroups, r.APIVersions, r.Resources))
			}
		}
		if !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("%s: %v, want %s\n%+v", kind, found, want, out.Results)
		}
	}
}

// TestNeighbours wants a rule that has no translation to take no others with it, and what refuses everything to be named.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	text := clusterPolicy("validate: {deny: {}}") + `    - {name: valid, match: {any: [{resources: {kinds: [Pod]}}]}, validate: {pattern: {spec: {hostPID: true}}}}
    - {name: invalid, match: {any: [{resources: {kinds: [Pod]}}]}, validate: {cel: {expressions: [{expression: "a == b"}]}}}
    - {name: never, match: {any: [{resources: {kinds: [Namespace], namespaceSelector: {matchLabels: {a: b}}}}]}, validate: {deny: {}}}
    - {name: misspelt, match: {any: [{resources: {kindz: [Pod]}}]}, validate: {deny: {}}}
    - {name: of-a-type, match: {any: [{resources: {kinds: Pod}}]}, validate: {deny: {}}}
`
	out := convert.Convert(read(t, text), convert.Options{})
	if len(out.Documents) != 2 || out.Documents[0].Name != "p-r" || out.Documents[1].Name != "p-valid" {
		t.Errorf("%+v", out.Documents)
	}
	for i, want := range []string{"every request that it matches violates the rule", "", `"a" is not declared`, "a rule that never applies", "match.any[0].resources.kindz: unknown field", "match.any[0].resources.kinds: "} {
		if r := out.Results[i]; !strings.Contains(fmt.Sprintf("%+v", r), want) || (r.Status == convert.Not) != (i > 1) {
			t.Errorf("%+v, want %q", r, want)
		}
	}
}

// TestNamespacedPolicies wants a policy of a namespace that names none to be one of default, and said so.
func TestNamespacedPolicies(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Replace(clusterPolicy("validate: {pattern: {spec: {hostNetwork: true}}}"), "kind: ClusterPolicy", "kind: Policy", 1),
		strings.Replace(noPods, "kind: ", "kind: Namespaced", 1),
	} {
		out := convert.Convert(read(t, text), convert.Options{})
		if r := out.Results[0]; r.Status != convert.Different || r.Differences[0] != `it has no namespace: it is converted for "default"` || out.Documents[0].Name != "default-p" {
			t.Fatalf("%+v", out)
		}
		set, resources := compile(t, out, "").Policy, request.NewResources(nil)
		for object, want := range map[string]bool{"{metadata: {name: a}, spec: {}}": false, "{metadata: {name: a, namespace: other}, spec: {}}": true} {
			if d := set.Decide(t.Context(), policy.Input{Request: mustRequest(t, resources, object)}); d.Response().Allowed != want {
				t.Errorf("%s: %v\n%s", object, d.Violations, out.Documents[0].Text)
			}
		}
	}
}

// TestListOrValue wants it to be said that a value of which no type is known is taken for a single one.
func TestListOrValue(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"example.com/v1/Widget": true, "Pod": false} {
		out := convert.Convert(read(t, clusterPolicy("match: {any: [{resources: {kinds: ["+kind+"]}}]}\n"+
			`validate: {deny: {conditions: {all: [{key: "{{ request.object.spec.nodeName }}", operator: AnyIn, value: [a, b]}]}}}`)), convert.Options{})
		if got := slices.Contains(out.Results[0].Differences, "nodeName is taken for a single value, and not for a list"); got != want || out.Results[0].Status == convert.Not {
			t.Errorf("%s: %+v", kind, out.Results[0])
		}
	}
}
