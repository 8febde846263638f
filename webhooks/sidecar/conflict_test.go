package sidecar_test

import (
	"encoding/json"
	"strings"
	"testing"
)

const declines = ` (hint: decline the profile with the annotation sidecar.gatehouse.dev/inject: "-a")`

// TestConflicts goes through everything in which a pod and a profile can differ,
// and what the profile may say about it: refuse the pod, leave the profile out, or
// keep what the pod has and add the rest.
func TestConflicts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, profile, pod string
		path, message      string // what is said in any case
		hint               string
		kept               string // the pod, where its own is kept
	}{
		{
			name: "label", profile: "template: {metadata: {labels: {a: b, c: d}}}", pod: "metadata: {labels: {a: x}}\nspec: {}",
			path: "metadata.labels.a", message: `sidecar profile "a": the pod has "x", but the profile sets "b"`, hint: declines,
			kept: "metadata: {labels: {a: x, c: d}}\nspec: {}",
		},
		{
			name: "number", profile: "template: {spec: {activeDeadlineSeconds: 5, nodeSelector: {c: d}}}", pod: "spec: {activeDeadlineSeconds: 7}",
			path: "spec.activeDeadlineSeconds", message: `sidecar profile "a": the pod has 7, but the profile sets 5`, hint: declines,
			kept: "spec: {activeDeadlineSeconds: 7, nodeSelector: {c: d}}",
		},
		{
			name: "keyed element", profile: "template: {spec: {dnsConfig: {options: [{name: ndots, value: '2'}, {name: c}]}}}", pod: "spec: {dnsConfig: {options: [{name: x}, {name: ndots, value: '5'}]}}",
			path: "spec.dnsConfig.options[1]", message: `sidecar profile "a": the pod has a different entry with the same name`, hint: declines,
			kept: "spec: {dnsConfig: {options: [{name: x}, {name: ndots, value: '5'}, {name: c}]}}",
		},
		{
			name: "kind of value", profile: "template: {spec: {securityContext: {fsGroup: 5}, nodeSelector: {c: d}}}", pod: "spec: {securityContext: [x]}",
			path: "spec.securityContext", message: `sidecar profile "a": the pod has a different value`, hint: declines,
			kept: "spec: {securityContext: [x], nodeSelector: {c: d}}",
		},
		{
			name: "port", profile: "template: {spec: {containers: [{name: a, image: a, ports: [{containerPort: 80}, {containerPort: 81}]}]}}",
			pod:  "spec: {containers: [{name: app, ports: [{containerPort: 80, protocol: TCP}]}]}",
			path: "spec.containers[0].ports[0].containerPort", message: `containerPort 80/TCP is also declared by container "a" of sidecar profile "a"`,
			hint: strings.Replace(declines, "decline", "change the port, or decline", 1),
			kept: "spec: {containers: [{name: app, ports: [{containerPort: 80, protocol: TCP}]}, {name: a, image: a, ports: [{containerPort: 81}]}]}",
		},
		{
			name: "only port", profile: "template: {spec: {containers: [{name: a, image: a, ports: [{containerPort: 80, hostPort: 90}]}]}}",
			pod:  "spec: {containers: [{name: app, ports: [{containerPort: 8080, hostPort: 90}]}]}",
			path: "spec.containers[0].ports[0].hostPort", message: `hostPort 90/TCP is also declared by container "a" of sidecar profile "a"`,
			hint: strings.Replace(declines, "decline", "change the port, or decline", 1),
			kept: "spec: {containers: [{name: app, ports: [{containerPort: 8080, hostPort: 90}]}, {name: a, image: a}]}",
		},
		{
			name: "volume", profile: "template: {spec: {volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}]}}", pod: "spec: {volumes: [{name: v, hostPath: {path: /}}]}",
			path: "spec.volumes[0].name", message: `volume "v" differs from the volume of the same name that sidecar profile "a" adds`,
			hint: strings.Replace(declines, "decline", "rename the volume, make it equal, or decline", 1),
			kept: "spec: {volumes: [{name: v, hostPath: {path: /}}, {name: w, emptyDir: {}}]}",
		},
		{
			name: "mount path", profile: "template: {spec: {volumes: [{name: v, emptyDir: {}}]}}\nappContainers: [{template: {volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /w}]}}]",
			pod:  "spec: {containers: [{name: app, volumeMounts: [{name: own, mountPath: /v}]}], volumes: [{name: own}]}",
			path: "spec.containers[0].volumeMounts[0]", message: `sidecar profile "a": the pod has a different entry with the same mountPath`, hint: declines,
			kept: "spec: {containers: [{name: app, volumeMounts: [{name: own, mountPath: /v}, {name: v, mountPath: /w}]}], volumes: [{name: own}, {name: v, emptyDir: {}}]}",
		},
		{
			name: "user", profile: "distinctUsers: [a]\ntemplate: {spec: {containers: [{name: a, image: a, securityContext: {runAsUser: 1337}}]}}",
			pod:  "spec: {containers: [{name: app, securityContext: {runAsUser: 1337}}]}",
			path: "spec.containers[0].securityContext.runAsUser", message: `container "app" runs as user 1337, which is reserved for container "a" of sidecar profile "a"`,
			hint: strings.Replace(declines, "decline", "run the container as another user, or decline", 1),
			kept: "spec: {containers: [{name: app, securityContext: {runAsUser: 1337}}, {name: a, image: a, securityContext: {runAsUser: 1337}}]}",
		},
	} {
		refused := "refused: " + tc.path + ": " + tc.message + tc.hint
		kept := json.RawMessage(toJSON(t, tc.kept))
		for _, c := range []decisionCase{
			{Name: "refuse by default", Says: refused},
			{Name: "refuse", Says: refused},
			{Name: "skip", Reasons: "a=conflict", Says: `warning: sidecar profile "a" is not applied: ` + tc.path + ": " + tc.message},
			{Name: "keep", Want: kept, Says: "warning: " + tc.path + ": " + tc.message + "; the pod keeps its value"},
		} {
			action := map[string]string{"refuse": "onConflict: Refuse\n", "skip": "onConflict: Skip\n", "keep": "onConflict: Keep\n"}[c.Name]
			c.Profiles = map[string]json.RawMessage{"a": json.RawMessage(toJSON(t, action+tc.profile))}
			c.Pod = json.RawMessage(toJSON(t, tc.pod))
			t.Run(tc.name+": "+c.Name, c.run)
		}
	}
}
