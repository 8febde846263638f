package replay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
)

// TestInjectedPods replays reviews of policies about a pod that sidecar profiles have changed.
func TestInjectedPods(t *testing.T) {
	t.Parallel()
	const (
		other = `apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: other}
spec:
  injection: OptOut
  match: {objectSelector: {matchLabels: {team: %s}}}
  template: {spec: {containers: [{name: other, image: registry.example/other}]}}`
		preset = `apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: shop}
data: {team: %s}`
		withPreset = `apiVersion: gatehouse.dev/v1alpha1
kind: SidecarProfile
metadata: {name: mesh}
spec:
  injection: OptOut
  presets: [{name: limits, configMap: {namespace: shop, name: limits}}]
  template: {spec: {containers: [{name: proxy, image: registry.example/proxy, env: [{name: TEAM, value: "${presets.limits['team']}"}]}]}}`
		mutated   = "mutating policies: the object is what the recorded ones made of it, and those of this configuration may make something else"
		undecided = "sidecar profiles: the pod has what the recorded profiles inject, and those of this configuration may inject something else"
	)
	p, q := admissionPolicy("p", always), strings.Replace(admissionPolicy("p", always), "[CREATE]", "[CREATE, UPDATE]", 1)
	mesh := fmt.Sprintf(profile, "1")
	for _, tt := range []struct {
		name, before, after string
		operation           string
		// unknown is true if the recording does not hold its configuration.
		unknown bool
		want    string
	}{
		{name: "the same profile", before: documents(shop, mesh, p), after: documents(p, mesh, shop)},
		{name: "another revision", before: documents(shop, mesh, p), after: documents(shop, fmt.Sprintf(profile, "2"), p), want: undecided},
		{name: "an update", operation: "UPDATE", before: documents(shop, mesh, q), after: documents(shop, fmt.Sprintf(profile, "2"), q)},
		{name: "a profile less", before: documents(shop, mesh, p), after: documents(shop, p), want: undecided},
		{name: "a profile more", before: documents(shop, mesh, p), after: documents(shop, mesh, fmt.Sprintf(other, "shop"), p), want: undecided},
		{name: "a profile more, for other pods", before: documents(shop, p), after: documents(shop, fmt.Sprintf(other, "search"), p)},
		{name: "the same preset", before: documents(shop, withPreset, fmt.Sprintf(preset, "a"), p), after: documents(shop, withPreset, fmt.Sprintf(preset, "a"), p)},
		{name: "another preset", before: documents(shop, withPreset, fmt.Sprintf(preset, "a"), p), after: documents(shop, withPreset, fmt.Sprintf(preset, "b"), p), want: undecided},
		{name: "the same profile, and the recorded configuration is not known", unknown: true, before: documents(shop, mesh, p), after: documents(p, mesh, shop)},
		{name: "another revision, and the recorded configuration is not known", unknown: true, before: documents(shop, mesh, p), after: documents(shop, fmt.Sprintf(profile, "2"), p), want: undecided},
		{name: "a profile less, and the recorded configuration is not known", unknown: true, before: documents(shop, mesh, p), after: documents(shop, p), want: undecided},
		{name: "the same mutating policies", before: documents(shop, mutating("a", "b", "1"), p), after: documents(mutating("a", "b", "1"), shop, p)},
		{name: "another mutation", before: documents(shop, mutating("a", "b", "1"), p), after: documents(shop, mutating("a", "b", "2"), p), want: mutated},
		{name: "a mutating policy less", before: documents(shop, mutating("a", "b", "1"), p), after: documents(shop, p), want: mutated},
		{name: "a mutating policy more, for other pods", before: documents(shop, p), after: documents(shop, mutating("a", "b", "1", "object.metadata.name == 'x'"), p)},
		{name: "another mutation, and the recorded configuration is not known", unknown: true, before: documents(shop, mutating("a", "b", "1"), p), after: documents(shop, mutating("a", "b", "2"), p), want: mutated},
		{name: "the same mutating policies, and the recorded configuration is not known", unknown: true, before: documents(shop, mutating("a", "b", "1"), p), after: documents(shop, mutating("a", "b", "1"), p)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.before)
			if tt.unknown {
				s.recorder.Configuration(s.snapshot.Digest, func() string { return "" })
			}
			object := pod("a", "")
			if s.answer(request{endpoint: "mutate", namespace: "shop", object: object}); s.injected != "" {
				object = s.injected
			}
			r := request{namespace: "shop", object: object, operation: tt.operation}
			if tt.operation != "" {
				r.oldObject = object
			}
			s.answer(r)
			sources := s.recording()
			_, all := run(t, replay.Options{Sources: sources, Candidate: load(t, tt.after)})
			if r := all[1]; r.Undecided != tt.want || len(r.Changes) > 0 {
				t.Errorf("changes %q, undecided %q; want %q", r.Changes, r.Undecided, tt.want)
			}
		})
	}
}
