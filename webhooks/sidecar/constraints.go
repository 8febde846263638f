package sidecar

import (
	"fmt"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// unfit says why the pod cannot be what the profile makes of it, or nothing.
func (pl *plan) unfit() (path, message string) {
	d, p := &pl.profile.demands, pl.pod
	grace, bounded := seconds(p.grace)
	if !d.fields && (d.sleep == 0 || !bounded || grace >= d.sleep) && (!d.restarts || !neverRestarts(p)) && (len(d.resources) == 0 || p.resources.Len() == 0) {
		return "", ""
	}
	// Only what comes of it tells: what is added may be merged or left out.
	made := new(pod)
	if err := made.read(pl.reader, pl.pending.result()); err != nil {
		return "", "" // It cannot happen: the patch is made for a pod that was read.
	}
	if grace, bounded := seconds(made.grace); bounded {
		if sleep := longestSleep(made); sleep > 0 && grace < sleep {
			return "spec.terminationGracePeriodSeconds", fmt.Sprintf("with sidecar profile %q a container sleeps for %d seconds before it ends, and the pod has %d", pl.profile.name, sleep, grace)
		}
	}
	if neverRestarts(made) && restartsToResize(made) {
		return "spec.restartPolicy", fmt.Sprintf("with sidecar profile %q a container is restarted to be resized, and the pod's never are", pl.profile.name)
	}
	for _, name := range d.resources {
		if most, exceeded := exceeds(made, name); exceeded {
			return "spec.resources", fmt.Sprintf("the pod has %s of %s for all of its containers, which does not suffice with what sidecar profile %q adds", most, name, pl.profile.name)
		}
	}
	return "", ""
}

func seconds(v rawjson.Value) (int64, bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

func neverRestarts(p *pod) bool { return p.restartPolicy.Is(string(corev1.RestartPolicyNever)) }

// longestSleep returns the longest sleep of any container's hook.
func longestSleep(p *pod) int64 {
	var longest int64
	for _, it := range p.containers() {
		hooks := it.text.Get("lifecycle")
		for _, hook := range [...]string{"postStart", "preStop"} {
			if n, ok := seconds(hooks.Get(hook, "sleep", "seconds")); ok {
				longest = max(longest, n)
			}
		}
	}
	return longest
}

func restartsToResize(p *pod) bool {
	for _, it := range p.containers() {
		for _, policy := range it.text.Get("resizePolicy").Elements() {
			if policy.Get("restartPolicy").Is(string(corev1.RestartContainer)) {
				return true
			}
		}
	}
	return false
}

// exceeds reports whether the containers need more of a resource than the pod as
// a whole has, and how much that is. What they need is counted as the API server
// does: init containers that end run when of the others native sidecars alone
// do, and what says its limit alone requests as much.
func exceeds(p *pod, name string) (string, bool) {
	limit, limited := readQuantity(p.resources.Get("limits", name))
	request, requested := readQuantity(p.resources.Get("requests", name))
	if !limited && !requested {
		return "", false
	}
	if !requested {
		request = limit
	}
	var sum, native, most resource.Quantity
	for l, it := range p.containers() {
		resources := it.text.Get("resources")
		upper, bounded := readQuantity(resources.Get("limits", name))
		if l == containers && bounded && limited && upper.Cmp(limit) > 0 {
			return limit.String(), true
		}
		need, says := readQuantity(resources.Get("requests", name))
		if !says {
			need = upper
		}
		switch {
		case l == containers:
			sum.Add(need)
		case it.native:
			sum.Add(need)
			native.Add(need)
		default:
			need.Add(native)
			if need.Cmp(most) > 0 {
				most = need
			}
		}
	}
	if most.Cmp(sum) > 0 {
		sum = most
	}
	return request.String(), sum.Cmp(request) > 0
}

// refuseUnfit does what the profile says about a pod that cannot have its
// containers. There is nothing to keep.
func (pl *plan) refuseUnfit(path, message string) Reason {
	pl.verdict.step("conflict", string(pl.profile.onConflict), path+": "+message)
	pl.verdict.Detail = message
	if pl.profile.onConflict == v1alpha1.RefuseConflict {
		pl.refuse(path, pl.profile.declineHint(), "%s", message)
		return Refused
	}
	pl.verdict.warned = true
	pl.warn("sidecar profile %q is not applied: %s: %s", pl.profile.name, path, message)
	return Conflict
}
