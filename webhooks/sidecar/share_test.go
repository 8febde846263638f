package sidecar_test

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// sharing returns a profile of one native sidecar to which something is shared.
func sharing(share, more string) string {
	return optOut("a", "template: {spec: {initContainers: ["+native("side", more)+"]}}\nshare: ["+share+"]")
}

// TestShare says what a sidecar gets of what the pod's own containers have.
func TestShare(t *testing.T) {
	t.Parallel()
	const (
		all    = "{container: side, volumeMounts: true}"
		mounts = "volumeMounts: [{name: d, mountPath: /d}, {name: e, mountPath: /e, subPath: s, readOnly: true}]"
		token  = "{name: kube-api-access-x, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}"
	)
	table := func(name, share, side, containers, want string, says ...string) injection {
		tc := injection{name: name, profiles: []string{sharing(share, side)}, pod: "spec: {containers: [" + containers + "]}", says: says}
		if len(says) == 0 {
			tc.want = "spec: {initContainers: [" + native("side", want) + "], containers: [" + containers + "]}"
		}
		return tc
	}
	runAll(t, []injection{
		table("mounts", all, "", "{name: app, "+mounts+"}", ", "+mounts),
		table("nothing mounted", all, "", "{name: app}", ""),
		table("read-only", "{container: side, volumeMounts: true, readOnly: true}", "", "{name: app, volumeMounts: [{name: d, mountPath: /d}, {name: e, mountPath: /e, readOnly: true}, {name: f, mountPath: /f, readOnly: false}]}",
			", volumeMounts: [{name: d, mountPath: /d, readOnly: true}, {name: e, mountPath: /e, readOnly: true}, {name: f, mountPath: /f, readOnly: true}]"),
		table("token of the service account", all, "", "{name: app, volumeMounts: ["+token+", {name: d, mountPath: /d}]}", ", volumeMounts: [{name: d, mountPath: /d}]"),
		table("unknown fields of a mount", all, "", "{name: app, volumeMounts: [{future: {b: 1, a: 2}, name: d, mountPath: /d}]}", ", volumeMounts: [{future: {b: 1, a: 2}, name: d, mountPath: /d}]"),
		table("a path with variables", all, "", "{name: app, env: [{name: X, value: x}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: ZONE, value: z}], volumeMounts: [{name: d, mountPath: /d, subPathExpr: '$$(X)/$(POD)/$(ZONE)'}]}",
			", env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: ZONE, value: z}], volumeMounts: [{name: d, mountPath: /d, subPathExpr: '$$(X)/$(POD)/$(ZONE)'}]"),
		table("devices", "{container: side, volumeDevices: true}", "", "{name: app, volumeMounts: [{name: d, mountPath: /d}], volumeDevices: [{name: e, devicePath: /dev/e}]}", ", volumeDevices: [{name: e, devicePath: /dev/e}]"),
		table("mounts but no devices", all, "", "{name: app, volumeMounts: [{name: d, mountPath: /d}], volumeDevices: [{name: e, devicePath: /dev/e}]}", ", volumeMounts: [{name: d, mountPath: /d}]"),
		table("variables by name", "{container: side, env: [A, C, NONE]}", "", "{name: app, env: [{name: A, value: a}, {name: B, value: b}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}]}", ", env: [{name: A, value: a}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}]"),
		table("all variables", "{container: side, env: ['*']}", "", "{name: app, env: [{name: A, value: a}, {name: B, value: b}]}", ", env: [{name: A, value: a}, {name: B, value: b}]"),
		table("the sidecar's own variables win", "{container: side, env: ['*']}", ", env: [{name: B, value: own}]", "{name: app, env: [{name: A, value: a}, {name: B, value: b}]}", ", env: [{name: B, value: own}, {name: A, value: a}]"),
		table("the first container's variables win", "{container: side, env: ['*']}", "", "{name: app, env: [{name: A, value: a}]}, {name: web, env: [{name: A, value: z}, {name: B, value: b}]}", ", env: [{name: A, value: a}, {name: B, value: b}]"),
		table("from all containers", all, "", "{name: app, volumeMounts: [{name: d, mountPath: /d}]}, {name: web, volumeMounts: [{name: d, mountPath: /d}, {name: e, mountPath: /e}]}", ", volumeMounts: [{name: d, mountPath: /d}, {name: e, mountPath: /e}]"),
		table("from some", "{container: side, volumeMounts: true, from: [web]}", "", "{name: app, volumeMounts: [{name: d, mountPath: /d}]}, {name: web, volumeMounts: [{name: e, mountPath: /e}]}", ", volumeMounts: [{name: e, mountPath: /e}]"),
		table("two shares", "{container: side, volumeMounts: true, from: [web]}, {container: side, env: [A], from: [app]}", "", "{name: app, env: [{name: A, value: a}]}, {name: web, env: [{name: A, value: z}], volumeMounts: [{name: e, mountPath: /e}]}", ", env: [{name: A, value: a}], volumeMounts: [{name: e, mountPath: /e}]"),
		table("containers that differ", all, "", "{name: app, volumeMounts: [{name: d, mountPath: /d}]}, {name: web, volumeMounts: [{name: e, mountPath: /d}]}", "",
			`refused: the pod's own containers differ in what is at "/d", which sidecar profile "a" shares with container "side"`+declines),
	})
}

// TestShareAndVolumes: the sidecar's own mounts stay, and the volumes of the
// template are no reason to share less.
func TestShareAndVolumes(t *testing.T) {
	t.Parallel()
	profile := func(more string) string {
		return optOut("a", more+"template: {spec: {initContainers: ["+native("side", ", volumeMounts: [{name: v, mountPath: /v}]")+"], volumes: [{name: v, emptyDir: {}}]}}\nshare: [{container: side, volumeMounts: true}]")
	}
	const clash = "spec: {containers: [{name: app, volumeMounts: [{name: d, mountPath: /v}, {name: e, mountPath: /e}]}]}"
	runAll(t, []injection{
		{
			name: "beside its own", profiles: []string{profile("")}, pod: "spec: {containers: [{name: app, volumeMounts: [{name: d, mountPath: /d}]}]}",
			want: "spec: {initContainers: [" + native("side", ", volumeMounts: [{name: v, mountPath: /v}, {name: d, mountPath: /d}]") + "], containers: [{name: app, volumeMounts: [{name: d, mountPath: /d}]}], volumes: [{name: v, emptyDir: {}}]}",
		},
		{
			name: "in the place of its own", profiles: []string{profile("")}, pod: clash,
			says: []string{`refused: container "side" of sidecar profile "a" has something else at volumeMounts[0] than the pod's own containers, with which it shares` + declines},
		},
		{
			name: "in the place of its own, and that is kept", profiles: []string{profile("onConflict: Keep\n")}, pod: clash,
			want: "spec: {initContainers: [" + native("side", ", volumeMounts: [{name: v, mountPath: /v}, {name: e, mountPath: /e}]") + "], containers: [{name: app, volumeMounts: [{name: d, mountPath: /v}, {name: e, mountPath: /e}]}], volumes: [{name: v, emptyDir: {}}]}",
			says: []string{`warning: container "side" of sidecar profile "a" has something else at volumeMounts[0] than the pod's own containers, with which it shares, and what is there is kept`},
		},
	})
}

// TestShareIsOfOwnContainers: what profiles have added is not shared.
func TestShareIsOfOwnContainers(t *testing.T) {
	t.Parallel()
	other := "template: {spec: {containers: [{name: agent, image: agent, env: [{name: SECRET, value: s}]}]}}"
	for _, tc := range []struct{ name, first, second string }{{"the other comes first", "b", "a"}, {"the other comes second", "a", "b"}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			share := "template: {spec: {initContainers: [" + native("side", "") + "]}}\nshare: [{container: side, env: ['*']}]"
			_, patched := inject(t, compile(t, optOut(tc.first, share), optOut(tc.second, other)), "spec: {containers: [{name: app, env: [{name: A, value: a}]}]}")
			check(t, "the sidecar's variables", toYAML(t, toTree(t, patched).containers("initContainers")[0]["env"]), "- name: A\n  value: a\n")
		})
	}
}

// TestShareWithWhatIsThere: a mount that another webhook adds between two calls
// reaches the sidecar, and goes with it.
func TestShareWithWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"Refuse", "Keep", "Replace"} {
		for _, own := range []string{"", "{name: side, image: mine}"} {
			if action == "Refuse" && own != "" {
				continue
			}
			t.Run(action+" "+own, func(t *testing.T) {
				t.Parallel()
				set := compile(t, strings.Replace(sharing("{container: side, volumeMounts: true, env: ['*']}", ""), "template:", "onSameName: "+action+"\n  template:", 1))
				pod := "spec: {initContainers: [" + own + "], containers: [{name: app, volumeMounts: [{name: d, mountPath: /d}]}]}"
				_, patched := inject(t, set, pod)
				const more, with = `{"name":"late","env":[{"name":"L","value":"l"}],"volumeMounts":[{"name":"e","mountPath":"/e"}]}`, `"containers":[`
				changed := strings.Replace(patched, with, with+more+",", 1)
				second := set.Decide(sidecar.Input{Namespace: "shop", Pod: []byte(changed)})
				check(t, "said", said(&second), "")
				result := apply(t, changed, second.Patches)
				side := toTree(t, result).containers("initContainers")[0]
				check(t, "mounts", toYAML(t, side["volumeMounts"]), "- mountPath: /d\n  name: d\n- mountPath: /e\n  name: e\n")
				check(t, "variables", toYAML(t, side["env"]), "- name: L\n  value: l\n")
				third := set.Decide(sidecar.Input{Namespace: "shop", Pod: []byte(result)})
				if third.Patches != nil {
					t.Errorf("the third call does %v", third.Patches)
				}
				checkRemoved(t, result, strings.Replace(toJSON(t, pod), with, with+more+",", 1))
			})
		}
	}
}
