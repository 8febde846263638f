package sidecar_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// rolledOut returns a profile in its rollout, with more of its spec in YAML.
func rolledOut(name, rollout, more string) string {
	return optOut(name, "rollout: "+rollout+"\n"+more+`
template: {spec: {initContainers: [`+native(name, "")+`]}}`)
}

// reasonFor returns the reason of the first profile for a pod in YAML, which may have
// the workload that it will belong to in front of a bar.
func reasonFor(t testing.TB, set *sidecar.Set, pod string) sidecar.Reason {
	t.Helper()
	workload, pod, offline := strings.Cut(pod, "|")
	if !offline {
		pod = workload
	}
	in := input(t, pod)
	if offline {
		in.Workload = workload
	}
	d := set.Decide(t.Context(), in)
	if d.Err != nil || len(d.Refusals) > 0 {
		t.Fatal(said(&d))
	}
	return d.Verdicts[0].Reason
}

// TestRolloutIsByWorkload: all pods of a workload are in the share, or none, and
// offline it is the same as online. Of 100 workloads of each sort some are in,
// some are not.
func TestRolloutIsByWorkload(t *testing.T) {
	t.Parallel()
	set := compile(t, rolledOut("a", "{percent: 50}", ""))
	const owner = "metadata: {labels: {%s}, ownerReferences: [{kind: Other, name: other}, {kind: %s, name: %s, controller: true}]}"
	owned := func(labels, kind string) func(name, hash string) string {
		return func(name, hash string) string { return fmt.Sprintf(owner, labels+hash, kind, name+"-"+hash) }
	}
	alone := func(kind string) func(name, hash string) string {
		return func(name, _ string) string { return fmt.Sprintf(owner, "", kind, name) }
	}
	for _, tc := range []struct {
		name   string
		hashes []string
		pod    func(name, hash string) string
		// offline is what the pod looks like before its controller has made it.
		offline func(name string) string
	}{
		{
			"Deployment",
			[]string{"7d4b9c6f5d", "5b6c8d7f9"},
			owned("pod-template-hash: ", "ReplicaSet"),
			func(name string) string { return "Deployment/" + name + "|metadata: {labels: {app: x}}" },
		},
		{"Argo rollout", []string{"7d4b9c6f5d", "abc"}, owned("rollouts-pod-template-hash: ", "ReplicaSet"), func(name string) string { return "Rollout/" + name + "|{}" }},
		{"ReplicaSet", []string{""}, alone("ReplicaSet"), func(name string) string { return "ReplicaSet/" + name + "|{}" }},
		{"StatefulSet", []string{""}, alone("StatefulSet"), func(name string) string { return "StatefulSet/" + name + "|{}" }},
		{"DaemonSet", []string{""}, alone("DaemonSet"), func(name string) string { return "DaemonSet/" + name + "|{}" }},
		{"Job", []string{""}, alone("Job"), func(name string) string { return "Job/" + name + "|{}" }},
		{"CronJob", []string{"28473920", "29999999"}, owned("x: z", "Job"), func(name string) string { return "CronJob/" + name + "|{}" }},
		{"Job of a CronJob", []string{"28473920"}, owned("x: z", "Job"), func(name string) string { return "Job/" + name + "-28473921|{}" }},
		{
			"generated name",
			[]string{"x7k2p", "b9m4c"},
			func(name, hash string) string {
				return "metadata: {generateName: " + name + "-, name: " + name + "-" + hash + "}"
			},
			func(name string) string { return "metadata: {generateName: " + name + "-}" },
		},
		{
			"pod alone",
			[]string{""},
			func(name, _ string) string { return "metadata: {name: " + name + "}" },
			func(name string) string { return "Pod/" + name + "|metadata: {name: " + name + "}" },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seen := make(map[sidecar.Reason]int)
			for i := range 100 {
				name := fmt.Sprintf("checkout-%d", i)
				want := reasonFor(t, set, tc.offline(name))
				seen[want]++
				for _, hash := range tc.hashes {
					if got := reasonFor(t, set, tc.pod(name, hash)); got != want {
						t.Errorf("%s %s: a pod is %s, offline it is %s", name, hash, got, want)
					}
				}
			}
			if seen[sidecar.Applied] < 25 || seen[sidecar.NotInRollout] < 25 {
				t.Errorf("got %v", seen)
			}
		})
	}
}

// TestRolloutShare: about as many workloads are in as the percentage says, and
// those that are in at one percentage are in at every higher one.
func TestRolloutShare(t *testing.T) {
	t.Parallel()
	const workloads = 10_000
	in := func(percent int) map[string]bool {
		set := compile(t, rolledOut("a", fmt.Sprintf("{percent: %d}", percent), ""))
		all := make(map[string]bool)
		for i := range workloads {
			name := fmt.Sprintf("team-%d-service-%d", i%7, i)
			d := set.Decide(t.Context(), forOwned("shop", `{"spec":{}}`, "Deployment/"+name))
			if d.Verdicts[0].Reason == sidecar.Applied {
				all[name] = true
			}
		}
		return all
	}
	before := in(0)
	for _, percent := range []int{1, 10, 25, 50, 90, 99, 100} {
		now := in(percent)
		// Five standard deviations at most: the names are fixed, so this cannot
		// come and go.
		if off := len(now) - percent*workloads/100; off < -250 || off > 250 || percent%100 == 0 && off != 0 {
			t.Errorf("at %d %% %d of %d workloads are in", percent, len(now), workloads)
		}
		for _, name := range sorted(before) {
			if !now[name] {
				t.Fatalf("%s is in at a lower percentage, but not at %d", name, percent)
			}
		}
		before = now
	}
}

// TestRolloutsAreIndependent: rollouts of two profiles do not meet the same
// workloads first, and a namespace counts as well as a name.
func TestRolloutsAreIndependent(t *testing.T) {
	t.Parallel()
	members := func(profile, namespace string) string {
		set := compile(t, rolledOut(profile, "{percent: 50}", ""))
		var b strings.Builder
		for i := range 64 {
			d := set.Decide(t.Context(), forOwned(namespace, `{"spec":{}}`, fmt.Sprintf("Deployment/x-%d", i)))
			b.WriteByte(d.Verdicts[0].Reason[0])
		}
		return b.String()
	}
	all := []string{members("a", "shop"), members("b", "shop"), members("a", "quiet")}
	if slices.Sort(all); len(slices.Compact(all)) != 3 {
		t.Errorf("got %v", all)
	}
}

// TestRolloutKeepsWhatIsThere: a pod that comes with one of the two profiles
// keeps it, whatever has become of the rollout since.
func TestRolloutKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	set := func(percent int) *sidecar.Set {
		return compile(t, optOut("mesh", "template: {spec: {containers: [{name: mesh, image: 'example/mesh:1'}]}}"),
			optOut("canary", fmt.Sprintf("rollout: {percent: %d, replaces: mesh}\ntemplate: {spec: {containers: [{name: mesh, image: 'example/mesh:2'}]}}", percent)))
	}
	for _, tc := range []struct {
		name          string
		before, after int
		reasons       string
	}{
		{"rolled out since", 0, 100, "canary=replaced,mesh=already-there"},
		{"rolled back since", 100, 0, "canary=not-in-rollout,mesh=replaced"},
		{"in as before", 100, 100, "canary=already-there,mesh=replaced"},
		{"out as before", 0, 0, "canary=not-in-rollout,mesh=already-there"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, pod := inject(t, set(tc.before), "spec: {containers: [{name: app}]}")
			d := set(tc.after).Decide(t.Context(), sidecar.ForPod("shop", []byte(pod)))
			check(t, "reasons", reasons(&d), tc.reasons)
			check(t, "said", said(&d), "")
			if d.Patches != nil {
				t.Errorf("got %v", d.Patches)
			}
		})
	}
}

// TestRolloutThatNoLongerFits: the profile that a pod has is not exchanged for
// the other one between two calls, whatever another webhook does to the pod.
func TestRolloutThatNoLongerFits(t *testing.T) {
	t.Parallel()
	const mesh = "\ntemplate: {spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: mesh, image: mesh}]}}\nappContainers: [{template: {volumeMounts: [{name: v, mountPath: /v}]}}]"
	set := compile(t, optOut("mesh", mesh), optOut("canary", "onConflict: Skip\nrollout: {percent: 100, replaces: mesh}"+mesh))
	_, pod := inject(t, set, "spec: {containers: [{name: app}]}")
	const app = `{"name":"app"`
	changed := strings.Replace(pod, app, `{"name":"late","volumeMounts":[{"name":"x","mountPath":"/v"}]},`+app, 1)
	d := set.Decide(t.Context(), sidecar.ForPod("shop", []byte(changed)))
	check(t, "reasons", reasons(&d), "canary=conflict,mesh=replaced")
	check(t, "said", said(&d), `warning: sidecar profile "canary" is not applied: spec.containers[0].volumeMounts[0]: sidecar profile "canary": the pod has a different entry with the same mountPath`)
	if d.Patches != nil {
		t.Errorf("got %v", d.Patches)
	}
}
