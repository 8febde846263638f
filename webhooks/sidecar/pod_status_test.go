package sidecar_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestPodStatus counts pods as they are in a cluster: with what was injected, by this
// version of a profile or by another, and with what others have written since.
func TestPodStatus(t *testing.T) {
	t.Parallel()
	const text = "metadata: {name: %s}\nspec: {injection: OptOut, match: {objectSelector: {matchLabels: {app: shop}}}, template: {spec: {containers: [{name: %s, image: 'example/%s:%d'}]}}}"
	profiles := func(version int) *sidecar.Set {
		return compile(t, fmt.Sprintf(text, "a", "a", "a", version), fmt.Sprintf(text, "b", "b", "b", 1),
			"metadata: {name: asked}\nspec: {injection: OptIn, template: {spec: {containers: [{name: c, image: c}]}}}")
	}
	now, later := profiles(1), profiles(2)
	if got := now.Profiles(); !slices.Equal(got, []string{"a", "asked", "b"}) {
		t.Errorf("the profiles are %q", got)
	}
	created := toJSON(t, "metadata: {name: x, namespace: shop, labels: {app: shop}}\nspec: {containers: [{name: app, image: app}]}")
	other := toJSON(t, "metadata: {name: x, namespace: shop, labels: {app: other}}\nspec: {containers: [{name: app, image: app}]}")
	decision := now.Decide(t.Context(), sidecar.ForPod("shop", []byte(created)))
	if decision.Err != nil || decision.Patches == nil {
		t.Fatalf("not injected: %+v", decision)
	}
	injected := apply(t, created, decision.Patches)
	// Somebody changed the label that it was selected by.
	relabelled := strings.Replace(injected, `"app":"shop"`, `"app":"other"`, 1)
	var others []string
	for i := range 20 { // so many that those which cannot be selected are left out
		others = append(others, fmt.Sprintf("metadata: {name: other-%[1]d}\nspec: {match: {objectSelector: {matchLabels: {app: none}}}, template: {spec: {containers: [{name: c-%[1]d, image: c}]}}}", i))
	}
	many := compile(t, append(others, fmt.Sprintf(text, "a", "a", "a", 2))...)
	named := func(version int) *sidecar.Set { // what it adds depends on the pod
		return compile(t, fmt.Sprintf("metadata: {name: named}\nspec: {injection: OptOut, match: {objectSelector: {matchLabels: {app: shop}}}, template: {spec: {containers: [{name: named, image: 'example/named:%d', args: ['${pod.metadata.name}']}]}}}", version))
	}
	byName := apply(t, created, named(1).Decide(t.Context(), sidecar.ForPod("shop", []byte(created))).Patches)
	both := []sidecar.ProfileStatus{{Profile: "a", Matched: true, Injected: true}, {Profile: "b", Matched: true, Injected: true}}
	for _, tc := range []struct {
		name string
		set  *sidecar.Set
		pod  string
		want []sidecar.ProfileStatus
		err  bool
	}{
		{"never injected", now, created, []sidecar.ProfileStatus{{Profile: "a", Matched: true}, {Profile: "b", Matched: true}}, false},
		{"not selected", now, other, nil, false},
		{"injected", now, injected, both, false},
		{"by an earlier version", later, injected, []sidecar.ProfileStatus{{Profile: "a", Matched: true, Injected: true, Stale: true}, both[1]}, false},
		{"not selected any more", now, relabelled, []sidecar.ProfileStatus{{Profile: "a", Injected: true}, {Profile: "b", Injected: true}}, false},
		{"neither, and by an earlier version", later, relabelled, []sidecar.ProfileStatus{{Profile: "a", Injected: true, Stale: true}, {Profile: "b", Injected: true}}, false},
		{"the same, among many profiles", many, relabelled, []sidecar.ProfileStatus{{Profile: "a", Injected: true, Stale: true}}, false},
		{"by name", named(1), byName, []sidecar.ProfileStatus{{Profile: "named", Matched: true, Injected: true}}, false},
		{"by name, and by an earlier version", named(2), byName, []sidecar.ProfileStatus{{Profile: "named", Matched: true, Injected: true, Stale: true}}, false},
		{
			"by name, and not selected any more, so that it cannot be decided", named(2), strings.Replace(byName, `"app":"shop"`, `"app":"other"`, 1),
			[]sidecar.ProfileStatus{{Profile: "named", Injected: true}},
			false,
		},
		{"by a profile that is no more", compile(t, fmt.Sprintf(text, "b", "b", "b", 1)), injected, both[1:], false},
		{"a status that nobody wrote", now, toJSON(t, "metadata: {labels: {app: other}, annotations: {sidecar.gatehouse.dev/status: 'no'}}\nspec: {}"), nil, false},
		{"no pod", now, "[", nil, true},
		{"nothing", now, "", nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.set.PodStatus(t.Context(), "shop", []byte(tc.pod))
			if !slices.Equal(got, tc.want) || (err != nil) != tc.err {
				t.Errorf("%+v and error %v, want %+v and %t", got, err, tc.want, tc.err)
			}
		})
	}
}

// TestPodStatusCannotDecide wants what a pod has told, though its namespace is not known.
func TestPodStatusCannotDecide(t *testing.T) {
	t.Parallel()
	set := compile(t, shipper())
	created := toJSON(t, "metadata: {name: x}\nspec: {containers: [{name: app, image: app}]}")
	injected := apply(t, created, set.Decide(t.Context(), sidecar.ForPod("shop", []byte(created))).Patches)
	got, err := set.PodStatus(t.Context(), "elsewhere", []byte(injected))
	if want := []sidecar.ProfileStatus{{Profile: "log-shipper", Injected: true}}; err == nil || !slices.Equal(got, want) {
		t.Errorf("%+v and error %v, want %+v and an error", got, err, want)
	}
}
