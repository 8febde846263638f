package sidecar_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// placed returns a profile of a native sidecar and a container, both called like the
// profile, at a place written in YAML.
func placed(name, placement string) string {
	return optOut(name, "placement: "+placement+"\ntemplate: {spec: {initContainers: ["+native(name, "")+"], containers: [{name: "+name+"-c, image: x}]}}")
}

// TestPlacement says where containers stand: in front of the pod's own or behind
// them, and before and after those of other profiles, which otherwise stand by
// name.
func TestPlacement(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name              string
		placements        []string // of the profiles a, b, …
		inits, containers string
	}{
		{"by default", []string{"{}"}, "a own-1 own-2", "app-1 app-2 a-c"},
		{"first", []string{"{initContainers: First, containers: First}"}, "a own-1 own-2", "a-c app-1 app-2"},
		{"last", []string{"{initContainers: Last, containers: Last}"}, "own-1 own-2 a", "app-1 app-2 a-c"},
		{"by name", []string{"{}", "{}", "{}"}, "a b c own-1 own-2", "app-1 app-2 a-c b-c c-c"},
		{"by name on both sides", []string{"{initContainers: Last, containers: First}", "{}", "{initContainers: Last, containers: First}"}, "b own-1 own-2 a c", "a-c c-c app-1 app-2 b-c"},
		{"before", []string{"{}", "{}", "{before: [a]}"}, "b c a own-1 own-2", "app-1 app-2 b-c c-c a-c"},
		{"after", []string{"{after: [c]}", "{}", "{}"}, "b c a own-1 own-2", "app-1 app-2 b-c c-c a-c"},
		{"before and after", []string{"{after: [b]}", "{}", "{before: [a], after: [b]}"}, "b c a own-1 own-2", "app-1 app-2 b-c c-c a-c"},
		{"a chain against the names", []string{"{}", "{before: [a]}", "{before: [b]}"}, "c b a own-1 own-2", "app-1 app-2 c-c b-c a-c"},
		{"said twice", []string{"{}", "{before: [a]}", "{before: [b, a]}"}, "c b a own-1 own-2", "app-1 app-2 c-c b-c a-c"},
		{"first before last", []string{"{initContainers: Last}", "{before: [a]}"}, "b own-1 own-2 a", "app-1 app-2 b-c a-c"},
		{"a profile that is not known", []string{"{before: [nobody]}", "{}"}, "a b own-1 own-2", "app-1 app-2 a-c b-c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var profiles []string
			for i, placement := range tc.placements {
				profiles = append(profiles, placed(string(rune('a'+i)), placement))
			}
			set := compile(t, profiles...)
			_, patched := inject(t, set, "spec: {initContainers: [{name: own-1}, {name: own-2}], containers: [{name: app-1}, {name: app-2}]}")
			check(t, "init containers", names(t, patched, "initContainers"), tc.inits)
			check(t, "containers", names(t, patched, "containers"), tc.containers)
			checkPlacedAgain(t, set, patched, tc.inits, tc.containers)
		})
	}
}

// checkPlacedAgain takes each container that profiles have added away, as another
// webhook might, and asks again: it comes back to its place.
func checkPlacedAgain(t *testing.T, set *sidecar.Set, pod, inits, containers string) {
	t.Helper()
	for list, all := range map[string]string{"initContainers": inits, "containers": containers} {
		for i, name := range strings.Fields(all) {
			if strings.HasPrefix(name, "own-") || strings.HasPrefix(name, "app-") {
				continue
			}
			without := toTree(t, pod)
			spec, _ := without["spec"].(map[string]any)
			elements, _ := spec[list].([]any)
			spec[list] = append(elements[:i:i], elements[i+1:]...)
			text := toJSON(t, toYAML(t, without))
			d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(text)))
			check(t, "without "+name+" it said", said(&d), "")
			check(t, list+" once "+name+" is back", names(t, apply(t, text, d.Patches), list), all)
		}
	}
}

// TestPlacementOfLateProfiles: a profile that applies on the second call only
// stands where it would have stood on the first.
func TestPlacementOfLateProfiles(t *testing.T) {
	t.Parallel()
	for late := range 4 {
		var profiles []string
		for i, placement := range []string{"{after: [d]}", "{initContainers: Last, containers: First}", "{}", "{before: [c]}"} {
			p := placed(string(rune('a'+i)), placement)
			if i == late {
				p = strings.Replace(p, "spec:\n", "spec:\n  match: {objectSelector: {matchLabels: {late: here}}}\n", 1)
			}
			profiles = append(profiles, p)
		}
		t.Run(fmt.Sprintf("%c", 'a'+late), func(t *testing.T) {
			t.Parallel()
			set := compile(t, profiles...)
			const pod = `{"metadata":{"labels":{"late":"no"}},"spec":{"initContainers":[{"name":"own"}],"containers":[{"name":"app"}]}}`
			once := apply(t, pod, set.Decide(t.Context(), sidecar.ForPod("shop", []byte(pod))).Patches)
			changed := strings.Replace(once, `"late":"no"`, `"late":"here"`, 1)
			result := apply(t, changed, set.Decide(t.Context(), sidecar.ForPod("shop", []byte(changed))).Patches)
			check(t, "init containers", names(t, result, "initContainers"), "d a c own b")
			check(t, "containers", names(t, result, "containers"), "b-c app d-c a-c c-c")
		})
	}
}

// TestPlacementFindings refuses what cannot be, and shows the cycle.
func TestPlacementFindings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		placements []string
		want       string // behind the profile
	}{
		{"two", []string{"{before: [b]}", "{before: [a]}"}, "a: spec.placement: the placement of profiles has a cycle: a before b before a"},
		{"two, the other way", []string{"{after: [b]}", "{after: [a]}"}, "a: spec.placement: the placement of profiles has a cycle: a before b before a"},
		{"one contradicts the other", []string{"{before: [b], after: [b]}", "{}"}, "a: spec.placement: the placement of profiles has a cycle: a before b before a"},
		{"three beside others", []string{"{}", "{before: [c]}", "{before: [d]}", "{before: [b, a]}", "{after: [b]}"}, "d: spec.placement: the placement of profiles has a cycle: d before b before c before d"},
		{"itself", []string{"{before: [a]}"}, "a: spec.placement.before[0]: a profile cannot be placed before or after itself"},
		{
			"behind the pod's own before in front of them",
			[]string{"{initContainers: Last, before: [b]}", "{}"},
			`a: spec.placement.before[0]: profile "a" places its initContainers Last and profile "b" places them First: the first cannot be placed before the second`,
		},
		{
			"in front of the pod's own after behind them",
			[]string{"{}", "{containers: First, after: [a]}"},
			`b: spec.placement.after[0]: profile "a" places its containers Last and profile "b" places them First: the first cannot be placed before the second`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := sidecar.Spec{}
			for i, placement := range tc.placements {
				spec.Profiles = append(spec.Profiles, profile(t, "p.yaml", placed(string(rune('a'+i)), placement)))
			}
			_, err := sidecar.Compile(spec)
			var found diagnostic.List
			if !errors.As(err, &found) {
				t.Fatalf("got %v", err)
			}
			var got []string
			for _, f := range found {
				if f.Severity == diagnostic.Error {
					got = append(got, strings.TrimPrefix(f.String(), "p.yaml: SidecarProfile/"))
				}
			}
			check(t, "errors", strings.Join(got, "\n"), tc.want)
		})
	}
}

// TestPlacementWithoutContainers: where one of the two has no containers in a
// list, nothing about it can be wrong.
func TestPlacementWithoutContainers(t *testing.T) {
	t.Parallel()
	set := compile(t,
		optOut("a", "placement: {containers: Last, before: [b]}\ntemplate: {spec: {initContainers: ["+native("a", "")+"]}}"),
		optOut("b", "placement: {containers: First}\ntemplate: {spec: {initContainers: ["+native("b", "")+"], containers: [{name: c, image: x}]}}"))
	_, patched := inject(t, set, "spec: {containers: [{name: app}]}")
	check(t, "init containers", names(t, patched, "initContainers"), "a b")
}

// TestPlacementBesideUnknown: a container of a profile that this set does not
// know is one of the pod's own.
func TestPlacementBesideUnknown(t *testing.T) {
	t.Parallel()
	before := compile(t, placed("a", "{}"), placed("b", "{}"))
	_, pod := inject(t, before, "spec: {initContainers: [{name: own}], containers: [{name: app}]}")
	after := compile(t, placed("b", "{}"), placed("c", "{initContainers: First}"))
	d := after.Decide(t.Context(), sidecar.ForPod("shop", []byte(pod)))
	check(t, "reasons", reasons(&d), "b=already-there,c=applied")
	check(t, "init containers", names(t, apply(t, pod, d.Patches), "initContainers"), "a b c own")
}
