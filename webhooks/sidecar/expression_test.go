package sidecar_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestMatchConditionsHaveNoTime: a request that is over has no answer.
func TestMatchConditionsHaveNoTime(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("a", "{matchConditions: [{name: c, expression: 'size(pod.spec.containers) == 1'}]}", "OptOut"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := input(t, "spec: {containers: [{name: app}]}")
	if d := set.Decide(ctx, in); d.Err == nil || d.Patches != nil {
		t.Errorf("got %+v", d)
	}
}

// TestPresets: values that are kept apart from the profile. Missing ones are a
// warning when the profile is loaded, and no answer when a pod is created.
func TestPresets(t *testing.T) {
	t.Parallel()
	const mesh = `
presets: [{name: mesh, configMap: {namespace: infra, name: mesh}}]
template: {spec: {initContainers: [{name: mesh, image: "${presets.mesh[\"image\"]}", restartPolicy: Always, startupProbe: {exec: {command: [ok]}}}]}}`
	const unknown = `cannot decide: sidecar profile "mesh": the profile's spec.template.spec.initContainers[0].image: "presets.mesh[\"image\"]": cannot decide: preset "mesh": there is no ConfigMap "mesh" in namespace "infra"`
	for _, tc := range []struct {
		name       string
		configMaps map[string]map[string]string
		reasons    string
		says       string
		loading    string
	}{
		{name: "there", configMaps: map[string]map[string]string{"infra/mesh": {"image": "example/mesh:1"}}, reasons: "mesh=applied"},
		{
			name: "missing", reasons: "mesh=unknown", says: unknown,
			loading: `warning: test.yaml: SidecarProfile/mesh: spec.presets[0].configMap: there is no ConfigMap "mesh" in namespace "infra": until it exists, pods that request the profile are refused, and others are created without it (hint: put the ConfigMap beside the profile)`,
		},
		{name: "without the key", configMaps: map[string]map[string]string{"infra/mesh": {}}, reasons: "mesh=refused", says: `refused: sidecar profile "mesh" cannot be rendered for this pod: `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cluster := shop(t, "")
			cluster.configMaps = tc.configMaps
			set := compileIn(t, cluster, optOut("mesh", mesh))
			check(t, "when loaded", set.Warnings().Error(), tc.loading)
			d, patched := inject(t, set, "spec: {containers: [{name: app}]}")
			check(t, "reasons", reasons(&d), tc.reasons)
			if got := said(&d); !strings.HasPrefix(got, tc.says) || tc.says == "" && got != "" {
				t.Errorf("said: got %s, want %s", got, tc.says)
			}
			if tc.says == "" {
				checkPod(t, patched, "spec: {containers: [{name: app}], initContainers: ["+strings.Replace(native("mesh", ""), "example/mesh", "'example/mesh:1'", 1)+"]}")
			}
		})
	}
	t.Run("nobody knows", func(t *testing.T) {
		t.Parallel()
		set, err := sidecar.Compile(sidecar.Spec{Profiles: []sidecar.Profile{profile(t, "mesh.yaml", optOut("mesh", mesh))}})
		if err != nil || len(set.Warnings()) > 0 {
			t.Fatal(err, set.Warnings())
		}
		d, _ := inject(t, set, "spec: {}")
		check(t, "reasons", reasons(&d), "mesh=unknown")
	})
}
