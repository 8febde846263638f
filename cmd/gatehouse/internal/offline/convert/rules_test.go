package convert_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
			"null rules", `match: {any: [{resources: {kinds: [ClusterRole]}}]}
validate: {deny: {conditions: {any: [{key: "{{ contains(request.object.rules[].verbs[], '*') }}", operator: Equals, value: true}]}}}`,
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get]}]}",
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get, "*"]}]}`,
		},
		{"a custom resource", `match: {any: [{resources: {kinds: [x.io/v1/Thing]}}]}
validate: {pattern: {spec: {host: "?*.io", port: ">80"}}}`, "{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {host: a.io, port: 81}}", "{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {host: a.com, port: 81}}\n{apiVersion: x.io/v1, kind: Thing, metadata: {name: a}, spec: {host: a.io, port: 80}}"},
		{"CEL", `celPreconditions: [{name: c, expression: "object.metadata.name != 'b'"}]
validate: {cel: {expressions: [{expression: "!has(object.spec.hostPID)", message: m}]}}`, "{}\n{metadata: {name: b}, spec: {hostPID: true}}", `{hostPID: true}`},
	}
}

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
			set := compile(t, out, "").Policy
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
		{
			"a loop", `mutate: {foreach: [{list: request.object.spec.containers, patchStrategicMerge: {metadata: {annotations: {"x/{{ element.name }}": "y"}}}}]}`,
			`{metadata: {name: x}, spec: {containers: [{name: a}, {name: b}]}}`, `annotations: {x/a: "y", x/b: "y"}`,
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
		{"context:\n  - name: x\n    apiCall: {urlPath: /api/v1/nodes}\nvalidate: {pattern: {spec: {hostPID: true}}}", "a request to the API server or a service", 10},
		{"match:\n  any:\n    - clusterRoles: [admin]\n      resources: {kinds: [Pod]}\nvalidate: {pattern: {spec: {hostPID: true}}}", "roles of the user", 10},
		{"validate:\n  pattern:\n    spec:\n      +(hostPID): true", "the anchor +( ) in a rule that validates", 11},
		{"generate: {kind: ConfigMap}", "a rule that generates objects", 8},
		{"verifyImages: [{}]", "the verification of image signatures", 8},
		{"validate: {pattern: {spec: {hostPID: true}}}\nunheard: true", "unknown field", 1},
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
		{"ValidatingPolicy", "  validations: [{expression: \"object.metadata.labels.orValue({}).size() > 0\"}]", "object.metadata.labels.orValue(…), of a field that is not optional"},
		{"ValidatingPolicy", "  variables: [{name: l, expression: \"object.metadata.?labels\"}]\n  validations: [{expression: \"variables.l.orValue({}).size() > 0\"}]", ""},
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
        container.?image.orValue("").startsWith("r/") &&
        !container.?securityContext.?privileged.orValue(true)
      )
    message: not …
    messageExpression: '"not " + object.metadata.name'
    name: r
`
	if got := string(out.Documents[0].Text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
