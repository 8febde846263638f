package podvalidity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestTogetherTheyWouldBeInvalid adds to pods what is sound in itself and goes together with most pods, but not with
// these: they stay valid, or stay as they are.
func TestTogetherTheyWouldBeInvalid(t *testing.T) {
	t.Parallel()
	validator := newValidator(t)
	const side = `initContainers: [{name: side, image: example/side, restartPolicy: Always, `
	for _, tc := range []struct {
		name     string
		in       part
		profile  string
		own, pod string
		// same says that what has the same name is merged.
		same bool
	}{
		{name: "two handlers of a probe", in: app, profile: `livenessProbe: {exec: {command: [ok]}}`, own: `"livenessProbe":{"httpGet":{"port":80}}`},
		{name: "two handlers of a hook", in: app, profile: `lifecycle: {preStop: {exec: {command: [ok]}}}`, own: `"lifecycle":{"preStop":{"httpGet":{"port":80}}}`},
		{name: "file of another seccomp profile", in: app, profile: `securityContext: {seccompProfile: {type: Localhost, localhostProfile: a}}`, own: `"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}}`},
		{name: "file of another AppArmor profile", in: app, profile: `securityContext: {appArmorProfile: {type: Localhost, localhostProfile: a}}`, own: `"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}`},
		{name: "privileged, and no escalation", in: app, profile: `securityContext: {allowPrivilegeEscalation: false}`, own: `"securityContext":{"privileged":true}`},
		{name: "no escalation, and privileged", in: app, profile: `securityContext: {privileged: true}`, own: `"securityContext":{"allowPrivilegeEscalation":false}`},
		{name: "SYS_ADMIN, and no escalation", in: app, profile: `securityContext: {allowPrivilegeEscalation: false}`, own: `"securityContext":{"capabilities":{"add":["CAP_SYS_ADMIN"]}}`},
		{name: "no escalation, and SYS_ADMIN", in: app, profile: `securityContext: {capabilities: {add: [SYS_ADMIN]}}`, own: `"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}`},
		{name: "limit, and a larger request", in: app, profile: `resources: {requests: {memory: 1Gi}}`, own: `"resources":{"limits":{"memory":"1Mi"},"requests":{"memory":"1Mi"}}`},
		{name: "limit alone, and a larger request", in: app, profile: `resources: {requests: {memory: 1Gi}}`, own: `"resources":{"limits":{"memory":"1Mi"}}`},
		{name: "request, and a smaller limit", in: app, profile: `resources: {limits: {memory: 1Mi}}`, own: `"resources":{"requests":{"memory":"1Gi"}}`},
		{name: "device, and a mount in its place", in: app, profile: `volumeMounts: [{name: scratch, mountPath: /a}]`, own: `"volumeDevices":[{"name":"own","devicePath":"/a"}]`, pod: `"volumes":[{"name":"own","persistentVolumeClaim":{"claimName":"a"}}]`},
		{name: "mount, and a device in its place", in: app, profile: `volumeDevices: [{name: block, devicePath: /a}]`, own: `"volumeMounts":[{"name":"own","mountPath":"/a"}]`, pod: `"volumes":[{"name":"own","emptyDir":{}}]`},
		{name: "three DNS servers, and a fourth", in: spec, profile: `dnsConfig: {nameservers: [10.0.0.9]}`, pod: `"dnsConfig":{"nameservers":["10.0.0.1","10.0.0.2","10.0.0.3"]}`},
		{name: "32 DNS searches, and another", in: spec, profile: `dnsConfig: {searches: [another.example]}`, pod: `"dnsConfig":{"searches":["` + strings.Join(numbered(32), `","`) + `"]}`},
		{name: "processes of the host, and shared ones", in: spec, profile: `shareProcessNamespace: true`, pod: `"hostPID":true`},
		{name: "a node, and a scheduling gate", in: spec, profile: `schedulingGates: [{name: example.com/a}]`, pod: `"nodeName":"a"`},
		{name: "a short life, and a long sleep", in: spec, profile: side + `lifecycle: {preStop: {sleep: {seconds: 20}}}}]`, pod: `"terminationGracePeriodSeconds":5`},
		{name: "resources of the pod, and more of the sidecar", in: spec, profile: side + `resources: {requests: {cpu: 2}}}]`, pod: `"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"1"}}`},
		{name: "the host's network, and its sysctls", in: spec, profile: `securityContext: {sysctls: [{name: net.core.somaxconn, value: "1"}]}`, pod: `"hostNetwork":true`},
		{name: "the host's network, and another host port", in: spec, profile: side + `ports: [{containerPort: 80, hostPort: 81}]}]`, pod: `"hostNetwork":true`},
		{name: "processes of the host, and users of its own", in: spec, profile: `hostUsers: false`, pod: `"hostPID":true`},
		{name: "the host's IPC, and users of its own", in: spec, profile: `hostUsers: false`, pod: `"hostIPC":true`},
		{name: "the host's network, and users of its own", in: spec, profile: `hostUsers: false`, pod: `"hostNetwork":true`},
		{name: "the name of a port", in: app, profile: `ports: [{name: metrics, containerPort: 9100}]`, own: `"ports":[{"name":"metrics","containerPort":8080,"protocol":"TCP"}]`},
		{name: "the name of a port of a container that is merged", in: container, same: true, profile: `ports: [{name: metrics, containerPort: 9100}]`, pod: `"containers":[{"name":"app","image":"a"},{"name":"side","image":"a","ports":[{"name":"metrics","containerPort":8080,"protocol":"TCP"}]}]`},
		{name: "an init container, and a native sidecar's probe", in: native, same: true, profile: `startupProbe: {exec: {command: [ok]}}`, pod: `"initContainers":[{"name":"side","image":"a","restartPolicy":"Never"}]`},
		{name: "resources of the pod, and more of its container", in: app, profile: `resources: {requests: {memory: 2Gi}}`, pod: `"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"1Gi"}}`},
		{name: "resources of the pod, and more of one that is merged", in: native, same: true, profile: `resources: {requests: {memory: 2Gi}}`, pod: `"initContainers":[{"name":"side","image":"a","restartPolicy":"Always"}],"resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"1Gi"}}`},
		{name: "a short life, and a long sleep of its container", in: app, profile: `lifecycle: {preStop: {sleep: {seconds: 20}}}`, pod: `"terminationGracePeriodSeconds":5`},
		{name: "a long sleep, and a short life", in: spec, profile: `terminationGracePeriodSeconds: 5`, own: `"lifecycle":{"preStop":{"sleep":{"seconds":20}}}`, pod: `"terminationGracePeriodSeconds":30`},
		{name: "what a privileged container mounts, and one that shares it", in: sharing, own: `"securityContext":{"privileged":true},"volumeMounts":[{"name":"own","mountPath":"/a","mountPropagation":"Bidirectional"}]`, pod: `"volumes":[{"name":"own","emptyDir":{}}]`},
		{name: "all of /proc, and the users of the host", in: native, profile: `securityContext: {procMount: Unmasked}`},
		{name: "all of /proc for the pod's own container, and the users of the host", in: app, profile: `securityContext: {procMount: Unmasked}`},
		{name: "all of /proc, and users of its own", in: app, profile: `securityContext: {procMount: Unmasked}`, pod: `"hostUsers":false`},
		{name: "an annotation about a container that is not there", in: annotations, profile: `container.apparmor.security.beta.kubernetes.io/nope: runtime/default`},
		{name: "Windows, and a user", in: native, profile: `securityContext: {runAsUser: 5}`, pod: `"os":{"name":"windows"}`},
		{name: "Windows, and a group of files", in: spec, profile: `securityContext: {fsGroup: 5}`, pod: `"os":{"name":"windows"}`},
		{name: "annotations as long as they may be, and more", in: annotations, profile: `b: c`, pod: `"ANNOTATION":"` + strings.Repeat("x", 256<<10-len("a")) + `"`},
	} {
		for _, conflict := range []v1alpha1.ConflictAction{v1alpha1.RefuseConflict, v1alpha1.SkipConflict, v1alpha1.KeepConflict} {
			t.Run(fmt.Sprintf("%s, %s", tc.name, conflict), func(t *testing.T) {
				all := profiles(t, "profile.yaml", tc.in.profile(tc.profile))
				all[0].Spec.OnConflict, all[0].Spec.HostNetwork = conflict, v1alpha1.InjectPod
				if tc.same {
					all[0].Spec.OnSameName = v1alpha1.KeepSameName
				}
				set, err := compile(all)
				if err != nil {
					t.Fatal(err)
				}
				join := func(first, second string) string { return strings.Trim(first+","+second, ",") }
				metadata, more := `"name":"checkout"`, tc.pod
				if long, ok := strings.CutPrefix(more, `"ANNOTATION":`); ok {
					metadata, more = metadata+`,"annotations":{"a":`+long+`}`, ""
				}
				if !strings.HasPrefix(more, `"containers"`) {
					more = join(`"containers":[{`+join(`"name":"app","image":"example/app"`, tc.own)+`}]`, more)
				}
				pod := []byte(`{"metadata":{` + metadata + `},"spec":{` + more + `,"serviceAccountName":"default"}}`)
				if errs := validator.Errors(pod); len(errs) > 0 {
					t.Fatalf("%q before: %.500s", errs, pod)
				}
				d := set.Decide(t.Context(), sidecar.ForPod("shop", pod))
				if d.Err != nil {
					t.Error(d.Err)
				}
				if len(d.Patches) == 0 {
					return
				}
				out := patched(t, pod, d.Patches)
				if errs := validator.Errors(out); len(errs) > 0 {
					t.Errorf("%.500q after: %.1000s", errs, out)
				}
			})
		}
	}
}

// numbered are so many names of domains.
func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("d%d.example", i)
	}
	return all
}
