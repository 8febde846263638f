package sidecar_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// written returns a pod as the API server writes it between two calls, and false for
// what is no pod to it.
func written(t testing.TB, text []byte) ([]byte, bool) {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		return nil, false
	}
	return asJSON(t, pod), true
}

// writtenTwice decides about a pod twice, as the API server writes it each time:
// the second call has nothing to do, and what is taken out leaves what was.
func writtenTwice(t testing.TB, set *sidecar.Set, in sidecar.Input) sidecar.Decision {
	t.Helper()
	d := set.Decide(t.Context(), in)
	if d.Patches == nil {
		return d
	}
	pod := in.Request.Object.Raw
	patched := patchedBy(t, pod, d.Patches)
	out, ok := written(t, patched)
	if !ok {
		t.Fatalf("%s is no pod any more: %s", pod, patched)
	}
	in.Request.Object.Raw = out
	if second := set.Decide(t.Context(), in); second.Patches != nil || second.Err != nil || len(second.Refusals) > 0 {
		t.Errorf("the second call about %s\ndoes %s\nand says %s", out, asJSON(t, second.Patches), said(&second))
	}
	removal, err := sidecar.Remove(out)
	if err != nil || len(removal.Left) > 0 {
		t.Errorf("removal from\n%s\nleaves %q, %v", out, removal.Left, err)
		return d
	}
	restored, _ := written(t, patchedBy(t, out, removal.Patches))
	if want, _ := written(t, pod); !reflect.DeepEqual(treeOf(t, restored), treeOf(t, want)) {
		t.Errorf("removal from\n%s\nmakes\n%s\nand not\n%s", out, restored, want)
	}
	return d
}

// TestValuesThatAreNotWrittenBack: the API server leaves out what says nothing
// and writes quantities in its own way, and the second call finds what the first
// has added all the same.
func TestValuesThatAreNotWrittenBack(t *testing.T) {
	t.Parallel()
	const app = "spec: {containers: [{name: app, image: app}]}"
	for _, tc := range []struct {
		name, profile, pod, want, says string
	}{
		{
			name: "tolerations", profile: `template: {spec: {tolerations: [{key: a, operator: Exists, value: "", effect: null}, {key: b, operator: Exists, tolerationSeconds: 0, effect: NoExecute}]}}`,
			want: "spec: {containers: [{name: app, image: app}], tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists, tolerationSeconds: 0, effect: NoExecute}]}",
		},
		{
			name: "an equal toleration", profile: `template: {spec: {tolerations: [{key: a, operator: Exists, value: ""}], nodeSelector: {a: ""}}}`,
			pod:  "spec: {containers: [{name: app, image: app}], tolerations: [{key: a, operator: Exists}]}",
			want: `spec: {containers: [{name: app, image: app}], tolerations: [{key: a, operator: Exists}], nodeSelector: {a: ""}}`,
		},
		{
			name: "envFrom", profile: `appContainers: [{template: {envFrom: [{prefix: "", configMapRef: {name: a, optional: false}}, {secretRef: {name: b}, configMapRef: null}]}}]`,
			want: "spec: {containers: [{name: app, image: app, envFrom: [{configMapRef: {name: a, optional: false}}, {secretRef: {name: b}}]}]}",
		},
		{
			name:    "affinity",
			profile: `template: {spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, namespaces: [], namespaceSelector: {}, labelSelector: {matchLabels: {}, matchExpressions: []}}]}, nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1}, {weight: 2, preference: {matchFields: []}}]}}}}`,
			want:    "spec: {containers: [{name: app, image: app}], affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, namespaceSelector: {}, labelSelector: {}}]}, nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {}}, {weight: 2, preference: {}}]}}}",
		},
		{
			name:    "fields of the pod",
			profile: `template: {metadata: {labels: {a: ""}}, spec: {hostPID: false, hostname: "", nodeSelector: {}, hostAliases: [], securityContext: {runAsNonRoot: false, supplementalGroups: []}, automountServiceAccountToken: false, dnsConfig: {}}}`,
			want:    `{metadata: {labels: {a: ""}}, spec: {containers: [{name: app, image: app}], securityContext: {runAsNonRoot: false}, automountServiceAccountToken: false, dnsConfig: {}}}`,
		},
		{
			name:    "fields of the pod's own containers",
			profile: `appContainers: [{template: {tty: false, stdin: false, command: [], env: [], workingDir: "", lifecycle: {}, readinessProbe: {exec: {command: [a]}, initialDelaySeconds: 0}, securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [], drop: [ALL]}}}}]`,
			want:    "spec: {containers: [{name: app, image: app, lifecycle: {}, readinessProbe: {exec: {command: [a]}}, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}",
		},
		{
			name:    "containers and volumes",
			profile: `template: {spec: {initContainers: [{name: side, image: side, restartPolicy: Always, tty: false, args: ["", "a"], env: [{name: A, value: ""}], ports: [{containerPort: 1, name: "", hostPort: 0}], volumeMounts: [{name: v, mountPath: /v, readOnly: false}], securityContext: {}}], volumes: [{name: v, emptyDir: {medium: "", sizeLimit: 1024Mi}}, {name: w, emptyDir: {}}]}}`,
			want:    `spec: {initContainers: [{name: side, image: side, restartPolicy: Always, args: ["", "a"], env: [{name: A}], ports: [{containerPort: 1}], volumeMounts: [{name: v, mountPath: /v}], securityContext: {}}], containers: [{name: app, image: app}], volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}, {name: w, emptyDir: {}}]}`,
		},
		{
			name: "quantities", profile: `appContainers: [{template: {resources: {requests: {cpu: "100u", memory: 1024Mi}, limits: {cpu: 0.5, example.com/a: 2000m}}}}]`,
			want: `spec: {containers: [{name: app, image: app, resources: {requests: {cpu: 1m, memory: 1Gi}, limits: {cpu: 500m, example.com/a: "2"}}}]}`,
		},
		{
			name:    "what placeholders come to",
			profile: "parameters: [{name: effect, type: string, default: ''}, {name: memory, type: quantity, default: 1024Mi}]\ntemplate: {spec: {tolerations: [{key: a, operator: Exists, effect: '${params.effect}'}], initContainers: [{name: side, image: side, restartPolicy: Always, resources: {requests: {memory: '${params.memory}'}}}]}}",
			want:    "spec: {initContainers: [{name: side, image: side, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}], containers: [{name: app, image: app}], tolerations: [{key: a, operator: Exists}]}",
		},
		{
			name: "an equal mount", profile: "template: {spec: {volumes: [{name: v, emptyDir: {}}]}}\nappContainers: [{template: {tty: true, volumeMounts: [{name: v, mountPath: /v, readOnly: false, subPath: ''}]}}]",
			pod:  "spec: {containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: {}}]}",
			want: "spec: {containers: [{name: app, image: app, volumeMounts: [{name: v, mountPath: /v}], tty: true}], volumes: [{name: v, emptyDir: {}}]}",
		},
		{
			name: "equal quantities", profile: `template: {spec: {nodeSelector: {a: b}, resources: {requests: {cpu: 1000m}}}}`,
			pod:  `spec: {containers: [{name: app, image: app}], resources: {requests: {cpu: "1"}}}`,
			want: `spec: {containers: [{name: app, image: app}], resources: {requests: {cpu: "1"}}, nodeSelector: {a: b}}`,
		},
		{
			name: "equal quantities that nobody has brought into their form", profile: `template: {spec: {nodeSelector: {a: b}, resources: {requests: {cpu: 1, memory: 1e3}}}}`,
			pod:  `spec: {containers: [{name: app, image: app}], resources: {requests: {cpu: 1000m, memory: 1k}}}`,
			want: `spec: {containers: [{name: app, image: app}], resources: {requests: {cpu: 1000m, memory: 1k}}, nodeSelector: {a: b}}`,
		},
		{
			name: "a quantity that nobody can compare", profile: `template: {spec: {nodeSelector: {a: b}, resources: {requests: {cpu: 1}}}}`,
			pod:  `spec: {containers: [{name: app, image: app}], resources: {requests: {cpu: 1e999999999}}}`,
			says: `refused: spec.resources.requests.cpu: sidecar profile "a": the pod has "1e999999999", but the profile sets "1"` + declines,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.pod == "" {
				tc.pod = app
			}
			set := compile(t, optOut("a", tc.profile))
			in := input(t, tc.pod)
			d := writtenTwice(t, set, in)
			check(t, "said", said(&d), tc.says)
			if tc.says == "" {
				checkPod(t, string(patchedBy(t, in.Request.Object.Raw, d.Patches)), tc.want)
			}
		})
	}
}

// TestRepeatedElements: a list that is merged element by element has none twice.
func TestRepeatedElements(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ profile, want string }{
		"pull secrets": {"template: {spec: {imagePullSecrets: [{name: a}, {name: b}, {name: a}]}}", "spec.template.spec.imagePullSecrets[2]: has the same name as spec.template.spec.imagePullSecrets[0]"},
		"DNS options": {
			"template: {spec: {dnsConfig: {options: [{name: ndots, value: '1'}, {name: ndots, value: '2'}]}}}",
			"spec.template.spec.dnsConfig.options[1]: has the same name as spec.template.spec.dnsConfig.options[0]",
		},
		"tolerations":  {"template: {spec: {tolerations: [{key: a, operator: Exists}, {operator: Exists, key: a}]}}", "spec.template.spec.tolerations[1]: is the same as spec.template.spec.tolerations[0]"},
		"host names":   {"template: {spec: {hostAliases: [{ip: 1.1.1.1, hostnames: [a, b, a]}]}}", "spec.template.spec.hostAliases[0].hostnames[2]: is the same as spec.template.spec.hostAliases[0].hostnames[0]"},
		"ports":        {"appContainers: [{template: {ports: [{containerPort: 1, name: a}, {containerPort: 1, protocol: TCP}]}}]", "spec.appContainers[0].template.ports[1]: has the same containerPort and protocol as spec.appContainers[0].template.ports[0]"},
		"capabilities": {"appContainers: [{template: {securityContext: {capabilities: {drop: [ALL, ALL]}}}}]", "spec.appContainers[0].template.securityContext.capabilities.drop[1]: is the same as spec.appContainers[0].template.securityContext.capabilities.drop[0]"},
		"placeholders": {"parameters: [{name: a, type: string, default: x}]\ntemplate: {spec: {imagePullSecrets: [{name: '${params.a}'}, {name: '${params.a}'}]}}", "spec.template.spec.imagePullSecrets[1]: has the same name as spec.template.spec.imagePullSecrets[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{profile(t, "test.yaml", optOut("a", tc.profile))}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestVolumeOfOursThatOthersHaveChanged: beside something that the profile has
// added, a volume of its name is the profile's whatever has become of it.
func TestVolumeOfOursThatOthersHaveChanged(t *testing.T) {
	t.Parallel()
	set := compile(t, optOut("a", "template: {spec: {volumes: [{name: v, emptyDir: {}}]}}\nappContainers: [{template: {volumeMounts: [{name: v, mountPath: /v}]}}]"))
	_, patched := inject(t, set, "spec: {containers: [{name: app}]}")
	changed := strings.Replace(patched, `"emptyDir":{}`, `"emptyDir":{"medium":"Memory"}`, 1)
	d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(changed)))
	if d.Patches != nil || said(&d) != "" || reasons(&d) != "a=already-there" {
		t.Errorf("the second call about %s does %v and says %s", changed, d.Patches, said(&d))
	}
	// The claim alone is not believed.
	forged := strings.Replace(changed, `"mountPath":"/v"`, `"mountPath":"/w"`, 1)
	d = set.Decide(t.Context(), sidecar.ForPod("shop", []byte(forged)))
	check(t, "reasons", reasons(&d), "a=refused")
}
