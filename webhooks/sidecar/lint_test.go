package sidecar_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// side returns a template of one native sidecar, with more members.
func side(more string) string {
	return "template: {spec: {initContainers: [" + native("side", more) + "]}}"
}

// TestLint shows every diagnostic there is about profiles, each check for itself:
// what TestFindings shows in documents.
func TestLint(t *testing.T) {
	t.Parallel()
	labels := "template: {metadata: {labels: {l: m}}}"
	long := strings.Repeat("long-name.", 24) + "x"
	var b strings.Builder
	for _, tc := range []struct {
		name     string
		profiles []string // called a, b, … unless they have names
	}{
		{"nothing is wrong", []string{labels}},
		{"a name with a meaning", []string{"name: 'true'\n" + labels}},
		{"a name that leaves no room for annotations", []string{"name: " + long + "\nparameters: [{name: p, type: string}]\n" + labels}},
		{"a long name without parameters", []string{"name: " + long + "\n" + labels}},
		{"words", []string{"hostNetwork: skip\npodsThatEnd: Ignore\nonConflict: keep\nonSameName: Skip\nplacement: {initContainers: Frist, containers: Behind}\n" + labels}},
		{"percentages", []string{"rollout: {percent: 101}\n" + labels, "rollout: {percent: -1}\n" + labels}},
		{"conditions", []string{"match: {matchConditions: [{name: '', expression: 'true'}, {name: c, expression: 'true'}, {name: c, expression: 'pod.spec.x'}, {name: d, expression: params.p}, {name: e, expression: '1'}]}\nparameters: [{name: p, type: boolean, default: true}]\n" + labels}},
		{"conditions that are never true", []string{"match: {matchConditions: [{name: a, expression: 'false'}, {name: b, expression: '1 == 2 && has(pod.metadata.labels)'}, {name: c, expression: 'has(pod.metadata.labels) || false'}]}\n" + labels}},
		{"presets", []string{"presets: [{name: mesh, configMap: {namespace: infra, name: mesh}}, {name: mesh, configMap: {namespace: '', name: Mesh}}]\n" + labels}},
		{"parameters", []string{"parameters: [{name: P, type: string}, {name: q, type: text}, {name: r, type: integer, default: x}]\n" + labels}},
		{"placeholders", []string{"template: {metadata: {labels: {a: '${params.none}', b: '${pod.metadata.name', c: '${pod.spec.nothing}', d: '${1}'}}}"}},

		{"nothing is added", []string{"hostNetwork: Inject", "template: {}", "template: {spec: {}}", "template: {spec: {containers: [], volumes: null}}", "share: [{container: none, env: [A]}]"}},
		{"a template that is no object", []string{"template: {spec: []}", "template: {spec: text}", "template: {spec: {containers: {}, volumes: text, initContainers: null}}", "template: {spec: {containers: [text, null]}}"}},
		{"fields that do not exist", []string{"template: {spec: {contaners: [], containers: [{name: a, image: a, imag: b}], volumes: [{name: v, emptydir: {}}]}}"}},
		{"values of another type", []string{"template: {spec: {priority: high, containers: [{name: a, image: a, ports: [{containerPort: http}]}], volumes: [{name: v, emptyDir: []}]}}"}},
		{"fields of pods that exist", []string{"template: {spec: {hostNetwork: true, nodeName: here, ephemeralContainers: [{name: e, image: e}]}}"}},
		{"labels and annotations", []string{`template: {metadata: {labels: {"a b": c, d: "e f"}, annotations: {"g h": i, sidecar.gatehouse.dev/inject: "true", a.sidecar.gatehouse.dev/x: z, kubernetes.io/config.mirror: z}}}`}},

		{"additions", []string{side("") + "\nappContainers: [{template: {}}, {template: []}, {names: [x, w], except: [x], template: {name: app}}, {template: {env: [{name: A}, {name: A}]}}, {template: {volumeMounts: [{name: none, mountPath: /x}]}}, {template: {imag: x}}]"}},
		{"additions to several containers", []string{
			"appContainers: [{template: {ports: [{containerPort: 80, hostPort: 80}]}}, {names: [a, b], template: {ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]}}, {names: [c], template: {ports: [{containerPort: 82, hostPort: 82}]}}]",
		}},
		{"when containers of others are restarted", []string{"appContainers: [{initContainers: true, template: {restartPolicy: Always}}, {template: {restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}}]"}},
		{"huge pages", []string{"appContainers: [{template: {resources: {limits: {hugepages-2Mi: 2Mi}}}}, {template: {resources: {requests: {cpu: 1}, limits: {hugepages-2Mi: 2Mi}}}}]"}},
		{"name servers", []string{"template: {spec: {dnsPolicy: None}}", "template: {spec: {dnsPolicy: None, dnsConfig: {nameservers: [10.0.0.1]}}}", "parameters: [{name: p, type: enum, enum: [None, Default], default: None}]\ntemplate: {spec: {dnsPolicy: '${params.p}'}}"}},
		{"shares", []string{side("") + "\nshare: [{container: sid, volumeMounts: true}, {container: side}, {container: side, env: [A], readOnly: true}, {container: side, env: [A]}]"}},
		{"distinct users", []string{"distinctUsers: [side, none]\n" + side(""), "distinctUsers: [side]\n" + strings.ReplaceAll(side(", securityContext: {runAsUser: 5}"), "name: side", "name: side2")}},

		{"names", []string{"template: {spec: {initContainers: [{name: a, image: a}, {image: b}], containers: [{name: a, image: a}, {name: A_B, image: a}], volumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}, {emptyDir: {}}]}}"}},
		{"images and policies", []string{side(", imagePullPolicy: Sometimes") + "", "template: {spec: {initContainers: [{name: b, image: ' ', restartPolicy: Often}]}}"}},
		{"native sidecars and init containers", []string{"template: {spec: {initContainers: [{name: a, image: a, restartPolicy: Always}, {name: b, image: b, startupProbe: {exec: {command: [x]}}, livenessProbe: {exec: {command: [x]}}, readinessProbe: {exec: {command: [x]}}, lifecycle: {preStop: {exec: {command: [x]}}}}]}}"}},
		{"ports", []string{side(", ports: [{containerPort: 0}, {containerPort: 70000, hostPort: -1}, {containerPort: 80, protocol: HTTP}, {containerPort: 81, hostPort: 81}, {containerPort: 82, hostPort: 81}]")}},
		{"mounts", []string{"template: {spec: {initContainers: [" + native("a", ", volumeMounts: [{name: v}, {name: v, mountPath: /v}, {name: v, mountPath: /v}, {name: v, mountPath: //v/}, {name: w, mountPath: /w, subPath: ../x, subPathExpr: /x}], volumeDevices: [{name: d, devicePath: /d}]") + "], volumes: [{name: v, emptyDir: {}}]}}"}},
		{"devices", []string{"template: {spec: {initContainers: [" + native("a", ", volumeMounts: [{name: v, mountPath: /v}], volumeDevices: [{name: v, devicePath: /d}, {name: p, devicePath: /d}, {name: p, devicePath: /v}]") + "], volumes: [{name: v, emptyDir: {}}, {name: p, persistentVolumeClaim: {claimName: p}}]}}"}},
		{"volumes", []string{"template: {spec: {volumes: [{name: none}, {name: two, emptyDir: {}, hostPath: {path: /}}]}}"}},
		{"environment", []string{side(", env: [{value: x}, {name: 'A=B'}, {name: C, value: c}, {name: C}, {name: D, value: d, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: E, valueFrom: {}}, {name: F, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: s, key: k}}}], envFrom: [{}, {prefix: P, secretRef: {name: s}}, {configMapRef: {name: s}, secretRef: {name: s}}]")}},
		{"security", []string{side(", securityContext: {runAsNonRoot: true, runAsUser: 0, privileged: true, allowPrivilegeEscalation: false, seccompProfile: {type: None}}")}},
		{"resources", []string{side(", resources: {requests: {cpu: 2, memory: '-1', ephemeral-storage: 1Gi}, limits: {cpu: 1, ephemeral-storage: 1Gi}}")}},
		{"probes", []string{strings.Replace(side(", livenessProbe: {}, readinessProbe: {successThreshold: 2, terminationGracePeriodSeconds: 5, exec: {command: [x]}, tcpSocket: {port: 1}}, lifecycle: {preStop: {}, postStart: {exec: {command: [x]}, sleep: {seconds: 1}}}"), "startupProbe: {", "startupProbe: {successThreshold: 2, ", 1)}},

		{"replaced profiles", []string{"rollout: {percent: 1, replaces: none}\n" + labels, "rollout: {percent: 1, replaces: b}\n" + labels, "rollout: {percent: 1, replaces: f}\n" + labels, "rollout: {percent: 1, replaces: f}\n" + labels, "rollout: {percent: 1, replaces: c}\n" + labels, labels}},
		{"placement", []string{"placement: {before: [a, none, bb], after: [nobody]}\n" + labels, "name: bbb\n" + labels}},
		{"one name and one port", []string{side(", ports: [{containerPort: 80}]"), strings.Replace(side(", ports: [{containerPort: 80}]"), "initContainers", "volumes: [{name: v, emptyDir: {}}], initContainers", 1), "template: {spec: {volumes: [{name: v, emptyDir: {}}]}}"}},
		{"one name in the place of the other", []string{side(", ports: [{containerPort: 80}]"), "rollout: {percent: 1, replaces: a}\n" + side(", ports: [{containerPort: 80}]")}},
	} {
		fmt.Fprintf(&b, "# %s\n%s\n", tc.name, lint(t, tc.profiles))
	}
	golden(t, "lint.txt", b.String())
}

// lint returns the diagnostics about profiles, a line each.
func lint(t *testing.T, bodies []string) string {
	t.Helper()
	spec := sidecar.Spec{ConfigMaps: objects{}}
	for i, body := range bodies {
		name := string(rune('a' + i))
		if own, rest, named := strings.Cut(body, "\n"); named && strings.HasPrefix(own, "name: ") {
			name, body = strings.TrimPrefix(own, "name: "), rest
		}
		spec.Profiles = append(spec.Profiles, profile(t, "p.yaml", optOut(name, body)))
	}
	set, err := sidecar.Compile(spec)
	found := diagnostic.List{}
	if err != nil && !errors.As(err, &found) {
		t.Fatal(err)
	}
	if err == nil {
		found = set.Warnings()
	}
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s: %s\n", f.Severity, strings.TrimPrefix(f.String(), "p.yaml: SidecarProfile/"))
	}
	return b.String()
}
