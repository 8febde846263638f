package sidecar_test

import (
	"strings"
	"testing"
)

// TestHostNetwork: a pod on the node's network gets a sidecar only where the
// profile says so.
func TestHostNetwork(t *testing.T) {
	t.Parallel()
	const side = "template: {spec: {containers: [{name: a, image: a}]}}"
	runAll(t, []injection{
		{name: "skip by default", profiles: []string{optOut("a", side)}, pod: "spec: {hostNetwork: true}", reasons: "a=host-network"},
		{name: "skip", profiles: []string{optOut("a", "hostNetwork: Skip\n"+side)}, pod: "spec: {hostNetwork: true}", reasons: "a=host-network"},
		{name: "inject", profiles: []string{optOut("a", "hostNetwork: Inject\n"+side)}, pod: "spec: {hostNetwork: true}", reasons: "a=applied", want: "spec: {hostNetwork: true, containers: [{name: a, image: a}]}"},
		{
			name: "one of two", profiles: []string{optOut("a", "hostNetwork: Inject\n"+side), optOut("b", "template: {metadata: {labels: {b: b}}}")},
			pod: "spec: {hostNetwork: true}", reasons: "a=applied,b=host-network", want: "spec: {hostNetwork: true, containers: [{name: a, image: a}]}",
		},
		{
			name: "asked for all, and gets none", profiles: []string{optOut("a", side)}, pod: says("true") + "\nspec: {hostNetwork: true}", reasons: "a=host-network",
			says: []string{`warning: sidecar.gatehouse.dev/inject: "true" has no effect: the pod has hostNetwork: true, so that the ports of a sidecar would be the node's`},
		},
	})
}

// TestPodsThatEnd: a pod that must end is kept from it by a container that is no
// native sidecar.
func TestPodsThatEnd(t *testing.T) {
	t.Parallel()
	const (
		side  = "template: {spec: {containers: [{name: side, image: a}]}}"
		keeps = `its container "side" would keep the pod from ending (restartPolicy: Never); a native sidecar would not`
		pod   = "spec: {restartPolicy: Never, containers: [{name: app}]}"
	)
	runAll(t, []injection{
		{name: "skip by default", profiles: []string{optOut("a", side)}, pod: pod, reasons: "a=must-end", says: []string{`warning: sidecar profile "a" is not applied: ` + keeps}},
		{name: "skip", profiles: []string{optOut("a", "podsThatEnd: Skip\n"+side)}, pod: pod, reasons: "a=must-end", says: []string{`warning: sidecar profile "a" is not applied: ` + keeps}},
		{
			name: "refuse", profiles: []string{optOut("a", "podsThatEnd: Refuse\n"+side)}, pod: pod, reasons: "a=refused",
			says: []string{`refused: spec.restartPolicy: sidecar profile "a" cannot be applied: ` + keeps + declines},
		},
		{name: "inject", profiles: []string{optOut("a", "podsThatEnd: Inject\n"+side)}, pod: pod, reasons: "a=applied", want: "spec: {restartPolicy: Never, containers: [{name: app}, {name: side, image: a}]}"},
		{
			name: "nothing that keeps it from ending", profiles: []string{optOut("a", "template: {spec: {initContainers: [{name: i, image: x}, "+native("side", "")+"]}}")}, pod: pod, reasons: "a=applied",
			want: "spec: {restartPolicy: Never, initContainers: [{name: i, image: x}, " + native("side", "") + "], containers: [{name: app}]}",
		},
		{name: "nobody wants it", profiles: []string{spec("b", "{}", "OptIn"), strings.Replace(optOut("a", side), "OptOut", "OptIn", 1)}, pod: pod, reasons: "a=not-asked,b=not-asked"},
	})
}

// TestDistinctUsers: no other container may run as the user of one of these,
// whether it says so itself or the pod says it for it.
func TestDistinctUsers(t *testing.T) {
	t.Parallel()
	profile := optOut("a", "distinctUsers: [proxy]\ntemplate: {spec: {initContainers: ["+native("proxy", ", securityContext: {runAsUser: 1337}")+"], containers: [{name: agent, image: x, securityContext: {runAsUser: 7}}]}}")
	table := func(name, spec string, says ...string) injection {
		tc := injection{name: name, profiles: []string{profile}, pod: "spec: " + spec}
		for _, text := range says {
			tc.says = append(tc.says, "refused: "+text+`, which container "proxy" of sidecar profile "a" needs for itself`+strings.Replace(declines, "decline", "run the container as another user, or decline", 1))
		}
		return tc
	}
	refused := []injection{
		table("a container", "{containers: [{name: app, securityContext: {runAsUser: 1}}, {name: web, securityContext: {runAsUser: 1337}}]}",
			`spec.containers[1].securityContext.runAsUser: container "web" runs as user 1337`),
		table("an init container", "{initContainers: [{name: setup, securityContext: {runAsUser: 1337}}]}",
			`spec.initContainers[0].securityContext.runAsUser: container "setup" runs as user 1337`),
		table("the pod for all of its containers", "{securityContext: {runAsUser: 1337}, containers: [{name: app}, {name: web, securityContext: {runAsUser: 5}}, {name: other, securityContext: {runAsUser: null}}]}",
			`spec.securityContext.runAsUser: container "app" runs as user 1337`, `spec.securityContext.runAsUser: container "other" runs as user 1337`),
	}
	runAll(t, refused)
	for name, spec := range map[string]string{
		"another user":                     "{containers: [{name: app, securityContext: {runAsUser: 1338}}]}",
		"no user":                          "{containers: [{name: app}]}",
		"the user of a container that may": "{containers: [{name: app, securityContext: {runAsUser: 7}}]}",
		"the pod's, which nobody takes":    "{securityContext: {runAsUser: 1337}, containers: [{name: app, securityContext: {runAsUser: 5}}]}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := inject(t, compile(t, profile), "spec: "+spec)
			check(t, "reasons", reasons(&d), "a=applied")
		})
	}
}

// TestDistinctUserOfTheSameName: the pod's own part of the container is none
// other.
func TestDistinctUserOfTheSameName(t *testing.T) {
	t.Parallel()
	const proxy = ", securityContext: {runAsUser: 1337}"
	runAll(t, []injection{{
		name: "keep", profiles: []string{optOut("a", "onSameName: Keep\ndistinctUsers: [proxy]\ntemplate: {spec: {initContainers: ["+native("proxy", proxy)+"]}}")},
		pod:  "spec: {initContainers: [{name: proxy" + proxy + "}], containers: [{name: app}]}",
		want: "spec: {initContainers: [" + native("proxy", proxy) + "], containers: [{name: app}]}",
	}})
}

// clean is a securityContext that Pod Security's restricted level admits.
const clean = "securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}"

// TestPodSecurity: a pod that its namespace's level admits stays one that it
// admits.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	const (
		restricted = "labels: {pod-security.kubernetes.io/enforce: restricted}"
		app        = "{name: app, " + clean + "}"
		pod        = "spec: {containers: [" + app + "]}"
		unclean    = "template: {spec: {containers: [{name: a, image: a, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}}"
		uncleanPod = "spec: {containers: [" + app + ", {name: a, image: a, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}"
		message    = `with what sidecar profile "a" adds, the pod violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true), which namespace "shop" enforces`
		dynamic    = "parameters: [{name: user, type: integer, default: 5}]\ntemplate: {spec: {containers: [{name: a, image: a, securityContext: {runAsUser: '${params.user}', runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}}"
	)
	cleanProfile := optOut("a", "template: {spec: {containers: [{name: a, image: a, "+clean+"}]}}")
	cleanPod := "spec: {containers: [" + app + ", {name: a, image: a, " + clean + "}]}"
	runAll(t, []injection{
		{name: "clean", namespace: restricted, profiles: []string{cleanProfile}, pod: pod, want: cleanPod},
		{name: "refuse by default", namespace: restricted, profiles: []string{optOut("a", unclean)}, pod: pod, reasons: "a=refused", says: []string{"refused: spec: " + message + declines}},
		{name: "skip", namespace: restricted, profiles: []string{optOut("a", "onConflict: Skip\n"+unclean)}, pod: pod, reasons: "a=pod-security", says: []string{`warning: sidecar profile "a" is not applied: ` + message}},
		{name: "keep", namespace: restricted, profiles: []string{optOut("a", "onConflict: Keep\n"+unclean)}, pod: pod, reasons: "a=pod-security", says: []string{`warning: sidecar profile "a" is not applied: ` + message}},
		{name: "the pod says it for all", namespace: restricted, profiles: []string{optOut("a", unclean)}, pod: "spec: {securityContext: {runAsNonRoot: true}, containers: [" + app + "]}", want: strings.Replace(uncleanPod, "spec: {", "spec: {securityContext: {runAsNonRoot: true}, ", 1)},
		{name: "a pod that is not admitted anyway", namespace: restricted, profiles: []string{optOut("a", unclean)}, pod: "spec: {containers: [{name: app}]}", want: strings.Replace(uncleanPod, app, "{name: app}", 1)},
		{name: "another level", namespace: "labels: {pod-security.kubernetes.io/enforce: baseline}", profiles: []string{optOut("a", unclean)}, pod: pod, want: uncleanPod},
		{name: "a level that warns", namespace: "labels: {pod-security.kubernetes.io/warn: restricted, pod-security.kubernetes.io/audit: restricted}", profiles: []string{optOut("a", unclean)}, pod: pod, want: uncleanPod},
		{name: "no level", profiles: []string{optOut("a", unclean)}, pod: pod, want: uncleanPod},
		{name: "a template that depends on the pod", namespace: restricted, profiles: []string{optOut("a", dynamic)}, pod: pod, want: strings.Replace(cleanPod, "{name: a, image: a, securityContext: {", "{name: a, image: a, securityContext: {runAsUser: 5, ", 1)},
		{
			name: "a template that depends on the pod, and a pod that makes it unclean", namespace: restricted, profiles: []string{optOut("a", dynamic)},
			pod: "metadata: {annotations: {a.sidecar.gatehouse.dev/user: '0'}}\n" + pod, reasons: "a=refused",
			says: []string{`refused: spec: with what sidecar profile "a" adds, the pod violates PodSecurity "restricted:latest": runAsUser=0 (container "a" must not set runAsUser=0), which namespace "shop" enforces` + declines},
		},
		{
			name: "what is added to the pod's own containers", namespace: restricted, profiles: []string{optOut("a", "appContainers: [{template: {securityContext: {capabilities: {add: [SYS_TIME]}}}}]")}, pod: pod, reasons: "a=refused",
			says: []string{`refused: spec: with what sidecar profile "a" adds, the pod violates PodSecurity "restricted:latest": unrestricted capabilities (container "app" must not include "SYS_TIME" in securityContext.capabilities.add), which namespace "shop" enforces` + declines},
		},
		{
			name: "one of two", namespace: restricted, profiles: []string{optOut("a", "onConflict: Skip\n"+unclean), optOut("b", "template: {spec: {containers: [{name: b, image: b, "+clean+"}]}}")}, pod: pod,
			reasons: "a=pod-security,b=applied", want: strings.ReplaceAll(cleanPod, "name: a, image: a", "name: b, image: b"), says: []string{`warning: sidecar profile "a" is not applied: ` + message},
		},
	})
}

// TestPodsThatCannotTakeIt: mirrors of static pods and Windows host process pods
// are left alone, even by profiles that inject everywhere.
func TestPodsThatCannotTakeIt(t *testing.T) {
	t.Parallel()
	everywhere := optOut("a", "hostNetwork: Inject\npodsThatEnd: Inject\nonConflict: Keep\ntemplate: {metadata: {labels: {a: a}}}")
	for name, tc := range map[string]struct{ pod, reason string }{
		"mirror":            {`metadata: {annotations: {kubernetes.io/config.mirror: x}}`, "static-pod"},
		"mirror that asks":  {`metadata: {annotations: {kubernetes.io/config.mirror: x, sidecar.gatehouse.dev/inject: "false"}}`, "static-pod"},
		"host process pod":  {"spec: {securityContext: {windowsOptions: {hostProcess: true}}}", "host-process"},
		"host process init": {"spec: {initContainers: [{name: i, securityContext: {windowsOptions: {hostProcess: true}}}]}", "host-process"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := inject(t, compile(t, everywhere), tc.pod)
			check(t, "reasons", reasons(&d), "a="+tc.reason)
			check(t, "said", said(&d), "")
		})
	}
}

// TestOtherSystems: the API server refuses fields of Linux in a pod that says it
// is for Windows, and those of Windows in one for Linux.
func TestOtherSystems(t *testing.T) {
	t.Parallel()
	const linux, windows = "spec: {os: {name: linux}}", "spec: {os: {name: windows}}"
	for name, tc := range map[string]struct {
		template       string
		linux, windows bool // it is applied
	}{
		"plain":                      {"template: {spec: {containers: [{name: a, image: a}]}}", true, true},
		"not root":                   {"template: {spec: {containers: [{name: a, image: a, securityContext: {runAsNonRoot: true}}], securityContext: {runAsNonRoot: true}}}", true, true},
		"a container's user":         {"template: {spec: {containers: [{name: a, image: a, securityContext: {runAsUser: 5}}]}}", true, false},
		"an init container's":        {"template: {spec: {initContainers: [{name: a, image: a, securityContext: {privileged: true}}]}}", true, false},
		"capabilities":               {"template: {spec: {containers: [{name: a, image: a, securityContext: {capabilities: {drop: [ALL]}}}]}}", true, false},
		"the pod's group":            {"template: {spec: {securityContext: {fsGroup: 5}}}", true, false},
		"the pod's processes":        {"template: {spec: {shareProcessNamespace: true}}", true, false},
		"of the pod's own container": {"appContainers: [{template: {securityContext: {readOnlyRootFilesystem: true}}}]", true, false},
		"the system itself":          {"template: {spec: {os: {name: linux}, nodeSelector: {a: b}}}", true, false},
		"a Windows user":             {"template: {spec: {containers: [{name: a, image: a, securityContext: {windowsOptions: {runAsUserName: x}}}]}}", false, true},
		"a Windows user of the pod":  {"template: {spec: {securityContext: {windowsOptions: {runAsUserName: x}}}}", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, optOut("a", tc.template))
			for pod, applied := range map[string]bool{linux: tc.linux, windows: tc.windows, "spec: {}": true, "spec: {os: null}": true} {
				pod = strings.TrimSuffix(pod, "}") + ", containers: [{name: app}]}"
				pod = strings.Replace(pod, "{, ", "{", 1)
				d, _ := inject(t, set, pod)
				want := "a=operating-system"
				if applied {
					want = "a=applied"
				}
				check(t, pod, reasons(&d), want)
			}
		})
	}
}
