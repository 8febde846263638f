package sidecar_test

import (
	"strings"
	"testing"
)

// clean is a securityContext that Pod Security's restricted level admits.
const clean = "securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}"

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
