package sidecar_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestAppContainers says what is added to which of the pod's own containers.
func TestAppContainers(t *testing.T) {
	t.Parallel()
	const (
		pod  = "spec: {initContainers: [{name: setup}, {name: helper, restartPolicy: Always}], containers: [{name: app}, {name: web}]}"
		env  = "template: {env: [{name: A, value: a}]}"
		with = ", env: [{name: A, value: a}]"
	)
	table := func(name, additions, pod, want string, says ...string) injection {
		return injection{name: name, profiles: []string{optOut("a", "appContainers: ["+additions+"]")}, pod: pod, want: want, says: says}
	}
	app := func(container string) string { return "spec: {containers: [" + container + "]}" }
	runAll(t, []injection{
		table("all containers", "{"+env+"}", pod, "spec: {initContainers: [{name: setup}, {name: helper, restartPolicy: Always}], containers: [{name: app"+with+"}, {name: web"+with+"}]}"),
		table("init containers too", "{initContainers: true, "+env+"}", pod, "spec: {initContainers: [{name: setup"+with+"}, {name: helper, restartPolicy: Always"+with+"}], containers: [{name: app"+with+"}, {name: web"+with+"}]}"),
		table("by name", "{names: [web, nobody], "+env+"}", pod, "spec: {initContainers: [{name: setup}, {name: helper, restartPolicy: Always}], containers: [{name: app}, {name: web"+with+"}]}"),
		table("an init container by name needs the switch", "{names: [setup], "+env+"}", pod, ""),
		table("with exceptions", "{except: [web, setup], initContainers: true, "+env+"}", pod, "spec: {initContainers: [{name: setup}, {name: helper, restartPolicy: Always"+with+"}], containers: [{name: app"+with+"}, {name: web}]}"),
		table("none of that name", "{names: [nobody], "+env+"}", pod, ""),
		table("a container without a name", "{"+env+"}", app("{image: x}"), ""),

		table("environment variables are never overridden", "{template: {env: [{name: A, value: a}, {name: B, value: b}]}}", app("{name: app, env: [{name: C, value: c}, {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}"),
			app("{name: app, env: [{name: C, value: c}, {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, value: b}]}")),
		table("an environment variable is one value", "{template: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}}", app("{name: app, env: [{name: A, value: x}]}"), ""),
		table("sources of variables", "{template: {envFrom: [{configMapRef: {name: a}}, {secretRef: {name: b}}]}}", app("{name: app, envFrom: [{secretRef: {name: b}}]}"), app("{name: app, envFrom: [{secretRef: {name: b}}, {configMapRef: {name: a}}]}")),
		table("ports by number and protocol", "{template: {ports: [{containerPort: 53}, {containerPort: 53, protocol: UDP}, {containerPort: 54}]}}", app("{name: app, ports: [{containerPort: 53, protocol: TCP, name: dns}]}"),
			app("{name: app, ports: [{containerPort: 53, protocol: TCP, name: dns}, {containerPort: 53, protocol: UDP}, {containerPort: 54}]}")),
		table("resources", "{template: {resources: {limits: {cpu: 1, memory: 1Gi}, requests: {memory: 1Gi}}}}", app("{name: app, resources: {limits: {cpu: 2}}}"), app("{name: app, resources: {limits: {cpu: 2, memory: 1Gi}, requests: {memory: 1Gi}}}")),
		table("a resource of which the pod says one is not completed", "{template: {resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1, memory: 1Gi}}}}", app("{name: app, resources: {limits: {cpu: 500m}, requests: {memory: 2Gi}}}"), ""),
		table("security context", "{template: {securityContext: {runAsNonRoot: true, readOnlyRootFilesystem: true, capabilities: {drop: [ALL, NET_RAW]}}}}", app("{name: app, securityContext: {readOnlyRootFilesystem: false, capabilities: {drop: [NET_RAW], add: [SYS_TIME]}}}"),
			app("{name: app, securityContext: {readOnlyRootFilesystem: false, capabilities: {drop: [NET_RAW, ALL], add: [SYS_TIME]}, runAsNonRoot: true}}")),
		table("fields that are set are kept", "{template: {imagePullPolicy: Always, workingDir: /w}}", app("{name: app, imagePullPolicy: Never}"), app("{name: app, imagePullPolicy: Never, workingDir: /w}")),
		table("defaults of the API server count for nothing", "{template: {terminationMessagePolicy: FallbackToLogsOnError, terminationMessagePath: /x}}", app("{name: app, terminationMessagePolicy: File, terminationMessagePath: /dev/termination-log}"), app("{name: app, terminationMessagePolicy: FallbackToLogsOnError, terminationMessagePath: /x}")),
		table("a command is one value", "{template: {command: [wrap, run], args: [x]}}", app("{name: app, command: [run]}"), app("{name: app, command: [run], args: [x]}")),
		table("unknown fields stay", "{"+env+"}", app("{future: {a: 1}, name: app, env: [{name: Z, future: 1}]}"), app("{future: {a: 1}, name: app, env: [{name: Z, future: 1}, {name: A, value: a}]}")),

		table("two entries about one container", "{names: [app], "+env+"}, {template: {env: [{name: A, value: z}, {name: B, value: b}]}}", app("{name: app}, {name: web}"),
			app("{name: app, env: [{name: A, value: a}, {name: B, value: b}]}, {name: web, env: [{name: A, value: z}, {name: B, value: b}]}")),
		table("two entries, and a list that is there", "{"+env+"}, {template: {env: [{name: B, value: b}], workingDir: /w}}, {template: {env: [{name: C, value: c}]}}", app("{name: app, env: []}"),
			app("{name: app, env: [{name: A, value: a}, {name: B, value: b}, {name: C, value: c}], workingDir: /w}")),
	})
}

// TestAppContainersMount: what is mounted must be a volume of the template, and
// where something else is mounted there is a conflict; the same is none.
func TestAppContainersMount(t *testing.T) {
	t.Parallel()
	profile := optOut("a", "template: {spec: {volumes: [{name: v, emptyDir: {}}, {name: d, persistentVolumeClaim: {claimName: d}}]}}\nappContainers: [{template: {volumeMounts: [{name: v, mountPath: /v}], volumeDevices: [{name: d, devicePath: /dev/v}]}}]")
	pod := func(container string) string { return "spec: {containers: [" + container + "]}" }
	const all = "volumeMounts: [{name: v, mountPath: /v}], volumeDevices: [{name: d, devicePath: /dev/v}]"
	want := func(container string) string {
		return "spec: {containers: [" + container + "], volumes: [{name: v, emptyDir: {}}, {name: d, persistentVolumeClaim: {claimName: d}}]}"
	}
	runAll(t, []injection{
		{name: "nothing mounted", profiles: []string{profile}, pod: pod("{name: app}"), want: want("{name: app, " + all + "}")},
		{name: "mounted already", profiles: []string{profile}, pod: pod("{name: app, " + all + "}"), want: want("{name: app, " + all + "}")},
		{
			name: "below and above", profiles: []string{profile}, pod: pod("{name: app, volumeMounts: [{name: x, mountPath: /}, {name: x, mountPath: /v/w}]}"),
			want: want("{name: app, volumeMounts: [{name: x, mountPath: /}, {name: x, mountPath: /v/w}, {name: v, mountPath: /v}], volumeDevices: [{name: d, devicePath: /dev/v}]}"),
		},
		{
			name: "another in its place", profiles: []string{profile}, pod: pod("{name: app, volumeMounts: [{name: v, mountPath: /v, readOnly: true}]}"),
			says: []string{`refused: spec.containers[0].volumeMounts[0]: sidecar profile "a": the pod has another value, and the profile says another value` + declines},
		},
		{
			name: "another device in its place", profiles: []string{profile}, pod: pod("{name: app, volumeDevices: [{name: x, devicePath: /dev/v}]}"),
			says: []string{`refused: spec.containers[0].volumeDevices[0]: sidecar profile "a": the pod has another value, and the profile says another value` + declines},
		},
	})
}

// TestAppContainersAreNoSidecars: what profiles add is not the pod's own,
// whichever of them comes first.
func TestAppContainersAreNoSidecars(t *testing.T) {
	t.Parallel()
	const env = "appContainers: [{initContainers: true, template: {env: [{name: A, value: a}]}}]"
	for _, tc := range []struct{ name, first, second string }{
		{"the sidecar comes first", "a", "b"},
		{"the sidecar comes second", "b", "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t,
				optOut(tc.first, "template: {spec: {initContainers: ["+native("side", "")+"], containers: [{name: agent, image: agent}]}}"),
				optOut(tc.second, env+"\ntemplate: {spec: {initContainers: ["+native("own", "")+"]}}"))
			_, patched := inject(t, set, "spec: {initContainers: [{name: setup}], containers: [{name: app}]}")
			check(t, "containers", names(t, patched, "containers"), "app agent")
			value := toTree(t, patched)
			for _, list := range []string{"initContainers", "containers"} {
				for _, c := range value.containers(list) {
					own := c["name"] == "setup" || c["name"] == "app"
					if _, has := c["env"]; has != own {
						t.Errorf("%v", c)
					}
				}
			}
		})
	}
}

// TestAppContainersThatAreReplaced: a container in whose place a profile puts its
// own, or into which it merges it, is a sidecar, for other profiles too.
func TestAppContainersThatAreReplaced(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"Replace", "Keep"} {
		for _, order := range []struct{ env, side string }{{"a", "b"}, {"b", "a"}} {
			t.Run(action+" by "+order.side, func(t *testing.T) {
				t.Parallel()
				set := compile(t, optOut(order.env, "appContainers: [{template: {env: [{name: A, value: a}]}}]"),
					optOut(order.side, "onSameName: "+action+"\ntemplate: {spec: {containers: [{name: side, image: side}]}}"))
				inject(t, set, "spec: {containers: [{name: app}, {name: side}]}")
			})
		}
	}
}

// TestAppContainersWithChoices: what a container says about itself is completed
// only by what can stand beside it.
func TestAppContainersWithChoices(t *testing.T) {
	t.Parallel()
	table := func(name, template, container, want string) injection {
		tc := injection{name: name, profiles: []string{optOut("a", "appContainers: [{template: "+template+"}]")}, pod: "spec: {containers: [{name: app" + container + "}]}"}
		if want != "" {
			tc.want = "spec: {containers: [{name: app" + want + "}]}"
		}
		return tc
	}
	const bound = "{securityContext: {allowPrivilegeEscalation: false}}"
	runAll(t, []injection{
		table("a probe does one thing", "{livenessProbe: {exec: {command: [x]}, periodSeconds: 5}}", ", livenessProbe: {httpGet: {port: 80}}", ", livenessProbe: {httpGet: {port: 80}, periodSeconds: 5}"),
		table("a probe that does the same", "{readinessProbe: {httpGet: {port: 80, path: /x}, periodSeconds: 5}}", ", readinessProbe: {httpGet: {port: 80}}", ", readinessProbe: {httpGet: {port: 80, path: /x}, periodSeconds: 5}"),
		table("a probe that does nothing yet", "{startupProbe: {tcpSocket: {port: 80}}}", ", startupProbe: {periodSeconds: 5, exec: null}", ", startupProbe: {periodSeconds: 5, exec: null, tcpSocket: {port: 80}}"),
		table("a hook does one thing", "{lifecycle: {preStop: {sleep: {seconds: 5}}, postStart: {exec: {command: [x]}}}}", ", lifecycle: {preStop: {exec: {command: [own]}}}", ", lifecycle: {preStop: {exec: {command: [own]}}, postStart: {exec: {command: [x]}}}"),
		table("a seccomp profile is one value", "{securityContext: {seccompProfile: {type: Localhost, localhostProfile: x}}}", ", securityContext: {seccompProfile: {type: RuntimeDefault}}", ""),
		table("a seccomp profile that is not there", "{securityContext: {seccompProfile: {type: Localhost, localhostProfile: x}}}", ", securityContext: {}", ", securityContext: {seccompProfile: {type: Localhost, localhostProfile: x}}"),
		table("a privileged container is not bound", bound, ", securityContext: {privileged: true}", ""),
		table("nor one with SYS_ADMIN", bound, ", securityContext: {capabilities: {add: [NET_RAW, SYS_ADMIN]}}", ""),
		table("nor one with CAP_SYS_ADMIN", bound, ", securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}}", ""),
		table("one with another capability is", bound, ", securityContext: {capabilities: {add: [NET_RAW]}}", ", securityContext: {capabilities: {add: [NET_RAW]}, allowPrivilegeEscalation: false}"),
		table("a bound container gets no privileges", "{securityContext: {privileged: true, runAsUser: 5}}", ", securityContext: {allowPrivilegeEscalation: false}", ", securityContext: {allowPrivilegeEscalation: false, runAsUser: 5}"),
		table("nor SYS_ADMIN", "{securityContext: {capabilities: {add: [SYS_ADMIN]}}}", ", securityContext: {allowPrivilegeEscalation: false}", ""),
		table("but another capability", "{securityContext: {capabilities: {add: [NET_RAW]}}}", ", securityContext: {allowPrivilegeEscalation: false}", ", securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [NET_RAW]}}"),
	})
}

// TestAppContainersMountBesideDevices: a path is that of a mount or of a device.
func TestAppContainersMountBesideDevices(t *testing.T) {
	t.Parallel()
	profile := func(action, more string) string {
		return optOut("a", "onConflict: "+action+"\ntemplate: {spec: {volumes: [{name: v, emptyDir: {}}, {name: d, persistentVolumeClaim: {claimName: d}}]}}\nappContainers: [{template: {"+more+"}}]")
	}
	const mounts, devices = "volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /w}]", "volumeDevices: [{name: d, devicePath: /v}, {name: d, devicePath: /w}]"
	pod := func(more string) string { return "spec: {containers: [{name: app, " + more + "}]}" }
	want := func(more string) string {
		return "spec: {containers: [{name: app, " + more + "}], volumes: [{name: v, emptyDir: {}}, {name: d, persistentVolumeClaim: {claimName: d}}]}"
	}
	runAll(t, []injection{
		{
			name: "mount", profiles: []string{profile("Refuse", mounts)}, pod: pod("volumeDevices: [{name: x, devicePath: /v}]"), reasons: "a=refused",
			says: []string{`refused: spec.containers[0].volumeMounts: sidecar profile "a": the container has a device or mount at "/v" already` + declines},
		},
		{
			name: "mount that is left out", profiles: []string{profile("Keep", mounts)}, pod: pod("volumeDevices: [{name: x, devicePath: /v}]"),
			want: want("volumeDevices: [{name: x, devicePath: /v}], volumeMounts: [{name: v, mountPath: /w}]"),
			says: []string{`warning: spec.containers[0].volumeMounts: sidecar profile "a": the container has a device or mount at "/v" already, and what is there is kept`},
		},
		{
			name: "device that is left out", profiles: []string{profile("Keep", devices)}, pod: pod("volumeMounts: [{name: x, mountPath: /v}, {name: x, mountPath: /w}]"),
			want: want("volumeMounts: [{name: x, mountPath: /v}, {name: x, mountPath: /w}]"),
			says: []string{
				`warning: spec.containers[0].volumeDevices: sidecar profile "a": the container has a device or mount at "/v" already, and what is there is kept`,
				`warning: spec.containers[0].volumeDevices: sidecar profile "a": the container has a device or mount at "/w" already, and what is there is kept`,
			},
		},
	})
}

// TestMembersThatOccurTwice: where a template is merged into an object in which a
// member occurs twice, nobody can tell which of them holds.
func TestMembersThatOccurTwice(t *testing.T) {
	t.Parallel()
	set := compile(t, optOut("a", "template: {spec: {dnsConfig: {searches: [a]}}}\nappContainers: [{template: {resources: {limits: {cpu: 1}}}}]"))
	for pod, where := range map[string]string{
		`{"spec":{"dnsConfig":{"searches":[],"searches":["b"]}}}`:                                    `spec.dnsConfig: member "searches" occurs twice in one object`,
		`{"spec":{"containers":[{"name":"app","resources":{"limits":{},"limits":null}}]}}`:           `spec.containers[0].resources: member "limits" occurs twice in one object`,
		`{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"1","c\u0070u":"2"}}}]}}`: `spec.containers[0].resources.limits: member "cpu" occurs twice in one object`,
	} {
		d := set.Decide(sidecar.Input{Namespace: "shop", Pod: []byte(pod)})
		check(t, pod, said(&d), `could not tell: sidecar profile "a": `+where)
		if d.Patches != nil {
			t.Errorf("%s: got %v", pod, d.Patches)
		}
	}
}
