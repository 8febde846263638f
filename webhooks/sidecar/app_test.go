package sidecar_test

import "testing"

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
	profile := optOut("a", "template: {spec: {volumes: [{name: v, emptyDir: {}}]}}\nappContainers: [{template: {volumeMounts: [{name: v, mountPath: /v}], volumeDevices: [{name: v, devicePath: /dev/v}]}}]")
	pod := func(container string) string { return "spec: {containers: [" + container + "]}" }
	const all = "volumeMounts: [{name: v, mountPath: /v}], volumeDevices: [{name: v, devicePath: /dev/v}]"
	want := func(container string) string {
		return "spec: {containers: [" + container + "], volumes: [{name: v, emptyDir: {}}]}"
	}
	runAll(t, []injection{
		{name: "nothing mounted", profiles: []string{profile}, pod: pod("{name: app}"), want: want("{name: app, " + all + "}")},
		{name: "mounted already", profiles: []string{profile}, pod: pod("{name: app, " + all + "}"), want: want("{name: app, " + all + "}")},
		{
			name: "below and above", profiles: []string{profile}, pod: pod("{name: app, volumeMounts: [{name: x, mountPath: /}, {name: x, mountPath: /v/w}]}"),
			want: want("{name: app, volumeMounts: [{name: x, mountPath: /}, {name: x, mountPath: /v/w}, {name: v, mountPath: /v}], volumeDevices: [{name: v, devicePath: /dev/v}]}"),
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
