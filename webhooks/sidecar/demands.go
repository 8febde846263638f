package sidecar

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// demands are what a profile asks of a pod's own fields, and the API server
// refuses a pod for whose fields say otherwise
// (k8s.io/kubernetes/pkg/apis/core/validation). They tell which pods are to be
// looked at.
type demands struct {
	// sleep is the longest sleep of a hook, in seconds, which the pod's grace
	// period must not be shorter than.
	sleep int64
	// restarts tells whether a container is to be restarted to be resized, which
	// it is not in a pod that is never restarted.
	restarts bool
	// resources are those that the profile says something of: what containers
	// need must fit into what the pod says for all.
	resources []string
	// fields tells whether the profile sets any of these fields of pods.
	fields bool
}

func (t *typed) demands() demands {
	var d demands
	names := make(map[string]bool)
	note := func(all corev1.ResourceRequirements) {
		for _, list := range [...]corev1.ResourceList{all.Requests, all.Limits} {
			for name := range list {
				names[string(name)] = true
			}
		}
	}
	for _, c := range slices.Concat(t.spec.InitContainers, t.spec.Containers, t.app) {
		if l := c.Lifecycle; l != nil {
			for _, h := range [...]*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
				if h != nil && h.Sleep != nil {
					d.sleep = max(d.sleep, h.Sleep.Seconds)
				}
			}
		}
		d.restarts = d.restarts || slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
			return p.RestartPolicy != corev1.NotRequired
		})
		note(c.Resources)
	}
	if t.spec.Resources != nil {
		note(*t.spec.Resources)
	}
	d.resources = slices.Sorted(maps.Keys(names))
	d.fields = t.spec.Resources != nil || t.spec.RestartPolicy != "" || t.spec.TerminationGracePeriodSeconds != nil
	return d
}

// unfit says why the pod cannot be what the profile makes of it, or nothing.
func (pl *plan) unfit() (path, message string) {
	d, p := &pl.profile.demands, pl.pod
	grace, bounded := seconds(p.grace)
	if !d.fields && (d.sleep == 0 || !bounded || grace >= d.sleep) && (!d.restarts || !p.neverRestarts()) && (len(d.resources) == 0 || p.resources.Len() == 0) {
		return "", ""
	}
	// Only what comes of it tells: what is added may be merged or left out.
	made := new(pod)
	if err := made.read(pl.reader, pl.pending.result()); err != nil {
		return "", "" // It cannot happen: the patch is made for a pod that was read.
	}
	if grace, bounded := seconds(made.grace); bounded {
		if sleep := made.sleep(); sleep > 0 && grace < sleep {
			return "spec.terminationGracePeriodSeconds", fmt.Sprintf("with sidecar profile %q a container sleeps for %d seconds before it ends, and the pod has %d", pl.profile.name, sleep, grace)
		}
	}
	if made.neverRestarts() && made.restartsToResize() {
		return "spec.restartPolicy", fmt.Sprintf("with sidecar profile %q a container is restarted to be resized, and the pod's never are", pl.profile.name)
	}
	for _, name := range d.resources {
		if most, exceeded := made.exceeded(name); exceeded {
			return "spec.resources", fmt.Sprintf("the pod has %s of %s for all of its containers, which does not suffice with what sidecar profile %q adds", most, name, pl.profile.name)
		}
	}
	return "", ""
}

func seconds(v rawjson.Value) (int64, bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

func (p *pod) neverRestarts() bool { return p.restartPolicy.Is(string(corev1.RestartPolicyNever)) }

// containers are the elements of both lists of containers.
func (p *pod) containers() iter.Seq2[list, *item] {
	return func(yield func(list, *item) bool) {
		for l := initContainers; l <= containers; l++ {
			for i := p.lists[l].from; i < p.lists[l].to; i++ {
				if !yield(l, p.item(i)) {
					return
				}
			}
		}
	}
}

// sleep is the longest sleep of any container's hook.
func (p *pod) sleep() int64 {
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

func (p *pod) restartsToResize() bool {
	for _, it := range p.containers() {
		for _, policy := range it.text.Get("resizePolicy").Elements() {
			if policy.Get("restartPolicy").Is(string(corev1.RestartContainer)) {
				return true
			}
		}
	}
	return false
}

// exceeded tells whether the containers need more of a resource than the pod as
// a whole has, and how much that is. What they need is counted as the API server
// does: init containers that end run when of the others native sidecars alone
// do, and what says its limit alone requests as much.
func (p *pod) exceeded(name string) (string, bool) {
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

// readQuantity reads a quantity, which may be written as a text or a number. One
// that is longer than any real one is not read: comparing quantities with a huge
// exponent takes minutes.
func readQuantity(v rawjson.Value) (resource.Quantity, bool) {
	const longest = 24
	text := v.Text()
	if v.Kind() == rawjson.Number {
		text = string(v)
	}
	if len(text) > longest || hugeExponent(text) {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

// hugeExponent tells whether a number has an exponent of more than two digits.
func hugeExponent(text string) bool {
	i := strings.IndexAny(text, "eE")
	return i >= 0 && len(strings.TrimLeft(text[i+1:], "+-")) > 2
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
