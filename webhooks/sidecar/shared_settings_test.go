package sidecar_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestShareSeesWhatTheAppSees: a variable or mount that is shared means for the
// sidecar what it means for the container it comes from.
func TestShareSeesWhatTheAppSees(t *testing.T) {
	t.Parallel()
	const (
		all    = "{container: side, env: ['*']}"
		mounts = "{container: side, volumeMounts: true}"
		memory = "{name: M, valueFrom: {resourceFieldRef: {resource: limits.memory}}}"
		field  = "{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}"
	)
	mount := func(expression string) string {
		return "volumeMounts: [{name: v, mountPath: /v, subPathExpr: '" + expression + "'}]"
	}
	table := func(name, share, side, containers, want string, says ...string) injection {
		tc := injection{name: name, profiles: []string{sharing(share, side)}, pod: "spec: {containers: [" + containers + "]}", says: says}
		if len(says) == 0 {
			tc.want = "spec: {initContainers: [" + native("side", want) + "], containers: [" + containers + "]}"
		}
		return tc
	}
	differ := `refused: the pod's own containers differ in the variable "DIR", which a path expands that sidecar profile "a" shares with container "side"` + declines
	own := func(name string) string {
		return `refused: container "side" of sidecar profile "a" has another value of the variable "` + name + `" than the pod's own containers, with which it shares a path that expands it` + declines
	}
	runAll(t, []injection{
		table("of one name twice the last is in force", all, "", "{name: app, env: [{name: A, value: '1'}, {name: B, value: b}, {name: A, value: '2'}]}", ", env: [{name: B, value: b}, {name: A, value: '2'}]"),
		table("the container's own resources", all, "", "{name: app, env: ["+memory+"]}", ", env: [{name: M, valueFrom: {resourceFieldRef: {resource: limits.memory, containerName: app}}}]"),
		table("no name of a container", all, "", "{name: app, env: [{name: M, valueFrom: {resourceFieldRef: {containerName: '', resource: limits.memory}}}]}", ", env: [{name: M, valueFrom: {resourceFieldRef: {containerName: app, resource: limits.memory}}}]"),
		table("another container's resources", all, "", "{name: app, env: [{name: M, valueFrom: {resourceFieldRef: {containerName: web, resource: limits.memory}}}]}", ", env: [{name: M, valueFrom: {resourceFieldRef: {containerName: web, resource: limits.memory}}}]"),
		table("variables of variables", mounts, "", "{name: app, env: [{name: ZONE, value: z}, {name: POD, value: $(ZONE)-p}, {name: OTHER, value: o}, {name: DIR, value: 'logs/$(POD)/$$(OTHER)'}], "+mount("$(DIR)")+"}",
			", env: [{name: ZONE, value: z}, {name: POD, value: $(ZONE)-p}, {name: DIR, value: 'logs/$(POD)/$$(OTHER)'}], "+mount("$(DIR)")),
		table("variables that expand one another", mounts, "", "{name: app, env: [{name: A, value: $(B)}, {name: B, value: $(A)$(B)}], "+mount("$(A)")+"}", ", env: [{name: A, value: $(B)}, {name: B, value: $(A)$(B)}], "+mount("$(A)")),
		table("an expansion without an end", mounts, "", "{name: app, env: [{name: A, value: a}], "+mount("$($(A")+"}", ", "+mount("$($(A")),
		table("two containers with one path", mounts, "", "{name: app, env: [{name: DIR, value: d}], "+mount("$(DIR)")+"}, {name: web, env: [{name: DIR, value: d}], "+mount("$(DIR)")+"}", ", env: [{name: DIR, value: d}], "+mount("$(DIR)")),
		table("two containers with two paths", mounts, "", "{name: app, env: [{name: DIR, value: a}], "+mount("$(DIR)")+"}, {name: web, env: [{name: DIR, value: b}], "+mount("$(DIR)")+"}", "", differ),
		table("two containers, and one has no path", mounts, "", "{name: app, env: [{name: DIR, value: a}], "+mount("$(DIR)")+"}, {name: web, env: [{name: DIR, value: b}]}", ", env: [{name: DIR, value: a}], "+mount("$(DIR)")),
		table("another container's variable comes first", "{container: side, volumeMounts: true, env: ['*']}", "", "{name: web, env: [{name: DIR, value: b}]}, {name: app, env: [{name: DIR, value: a}], "+mount("$(DIR)")+"}", "", differ),
		table("the sidecar's own variable", mounts, ", env: [{name: DIR, value: own}]", "{name: app, env: [{name: DIR, value: a}], "+mount("$(DIR)")+"}", "", own("DIR")),
		table("the sidecar's own variable of a variable", mounts, ", env: [{name: POD, value: own}]", "{name: app, env: [{name: POD, value: p}, {name: DIR, value: $(POD)}], "+mount("$(DIR)")+"}", "", own("POD")),
		table("the sidecar has the same", mounts, ", env: ["+field+"]", "{name: app, env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name, apiVersion: v1}}}], "+mount("$(POD)")+"}", ", env: ["+field+"], "+mount("$(POD)")),
		table("two shares", "{container: side, env: [DIR], from: [web]}, {container: side, volumeMounts: true, from: [app]}", "", "{name: app, env: [{name: DIR, value: a}], "+mount("$(DIR)")+"}, {name: web, env: [{name: DIR, value: b}]}", "", own("DIR")),

		table("what a privileged container mounts for others", mounts, "", "{name: app, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}, {name: web, volumeMounts: [{name: v, mountPath: /v, mountPropagation: HostToContainer}]}",
			", volumeMounts: [{name: v, mountPath: /v, mountPropagation: HostToContainer}]"),
		table("what a privileged container mounts for another", mounts, ", securityContext: {privileged: true}", "{name: app, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}",
			", securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]"),
		table("what a privileged container mounts, read-only", "{container: side, volumeMounts: true, readOnly: true}", "", "{name: app, volumeMounts: [{name: v, mountPath: /v, readOnly: false, mountPropagation: Bidirectional}]}",
			", volumeMounts: [{name: v, mountPath: /v, readOnly: true, mountPropagation: HostToContainer}]"),
	})
}

// TestShareWithOneOfTheSameName: a container of the pod into which the sidecar is
// merged counts with what it has itself.
func TestShareWithOneOfTheSameName(t *testing.T) {
	t.Parallel()
	profile := strings.Replace(sharing("{container: side, volumeMounts: true}", ""), "template:", "onSameName: Keep\n  template:", 1)
	pod := func(side, app string) string {
		return "spec: {initContainers: [" + native("side", side) + "], containers: [{name: app" + app + "}]}"
	}
	const (
		path   = ", env: [{name: DIR, value: a}], volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(DIR)}]"
		mounts = ", volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]"
		host   = ", securityContext: {privileged: true}"
	)
	runAll(t, []injection{
		{name: "its variable", profiles: []string{profile}, pod: pod(", env: [{name: DIR, value: own}]", path), says: []string{
			`refused: container "side" of sidecar profile "a" has another value of the variable "DIR" than the pod's own containers, with which it shares a path that expands it` + declines,
		}},
		{name: "its privileges", profiles: []string{profile}, pod: pod(host, mounts), want: pod(host+mounts, mounts)},
		{name: "no privileges", profiles: []string{profile}, pod: pod("", mounts), want: pod(strings.Replace(mounts, "Bidirectional", "HostToContainer", 1), mounts)},
	})
}

// TestShareGrowsWithThePod: what sharing thousands of mounts, variables or
// devices costs, in the first call and in the second, is in proportion to their
// number, as memory shows.
func TestShareGrowsWithThePod(t *testing.T) {
	list := func(many int, element string) string {
		parts := make([]string, many)
		for i := range parts {
			parts[i] = fmt.Sprintf(element, i)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	set := compile(t, sharing("{container: side, volumeMounts: true, volumeDevices: true, env: ['*']}", ""))
	cost := func(container string) float64 {
		pod := `{"spec":{"containers":[{"name":"app",` + container + `}]}}`
		_, once := inject(t, set, pod)
		more := strings.Replace(once, `"containers":[`, `"containers":[{"name":"late","volumeMounts":[{"name":"v","mountPath":"/late"}]},`, 1)
		return testing.AllocsPerRun(1, func() {
			for _, text := range []string{pod, more} {
				d := set.Decide(sidecar.Input{Namespace: "shop", Pod: []byte(text)})
				if d.Patches == nil {
					t.Errorf("nothing is shared: %s", said(&d))
				}
			}
		})
	}
	for name, container := range map[string]func(int) string{
		"mounts":    func(n int) string { return `"volumeMounts":` + list(n, `{"name":"v","mountPath":"/m%d"}`) },
		"variables": func(n int) string { return `"env":` + list(n, `{"name":"A%d","value":"1"}`) },
		"devices": func(n int) string {
			return `"volumeDevices":` + list(n, `{"name":"v","devicePath":"/d%d"}`) + `,"volumeMounts":` + list(n, `{"name":"w","mountPath":"/m%d"}`)
		},
	} {
		const few, times = 200, 8
		if small, large := cost(container(few)), cost(container(few*times)); large > 2*times*small {
			t.Errorf("%s: %v allocations for %d, and %v for %d", name, small, few, large, few*times)
		}
	}
}
