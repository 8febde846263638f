package sidecar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// demands are what the containers of a template ask of a pod's own fields, and
// the API server refuses a pod for whose fields say otherwise
// (k8s.io/kubernetes/pkg/apis/core/validation).
type demands struct {
	// sleep is the longest sleep of a hook, in seconds, which the pod's grace
	// period must not be shorter than.
	sleep int64
	// restarts tells whether a container is to be restarted to be resized, which
	// it is not in a pod that is never restarted.
	restarts bool
	// resources tells whether a container says what it needs, which must fit into
	// what the pod says for all.
	resources bool
}

func (t *typed) demands() demands {
	var d demands
	for _, c := range slices.Concat(t.spec.InitContainers, t.spec.Containers) {
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
		d.resources = d.resources || len(c.Resources.Requests)+len(c.Resources.Limits) > 0
	}
	return d
}

// unfit says why the pod cannot have the containers of the template, or nothing.
func (pl *plan) unfit() (path, message string) {
	d := pl.profile.demands
	if d == (demands{}) {
		return "", ""
	}
	if grace := pl.pod.grace; d.sleep > 0 && grace.Kind() == rawjson.Number {
		if seconds, err := strconv.ParseInt(string(grace), 10, 64); err == nil && seconds < d.sleep {
			return "spec.terminationGracePeriodSeconds", fmt.Sprintf("a container of sidecar profile %q sleeps for %d seconds before it ends, and the pod has %d", pl.profile.name, d.sleep, seconds)
		}
	}
	if d.restarts && pl.pod.restartPolicy.Is(string(corev1.RestartPolicyNever)) {
		return "spec.restartPolicy", fmt.Sprintf("a container of sidecar profile %q is restarted to be resized, and the pod's never are", pl.profile.name)
	}
	if all := pl.pod.resources; d.resources && all.Len() > 0 {
		return "spec.resources", pl.exceeds(all)
	}
	return "", ""
}

// exceeds says which of the resources of the pod as a whole do not suffice with
// the containers that are added. Init containers that end are left out: they run
// when nothing else of the pod's own does.
func (pl *plan) exceeds(all rawjson.Value) string {
	for _, which := range [...]string{"requests", "limits"} {
		for nameText, quantity := range all.Get(which).Members() {
			name := nameText.Text()
			most, ok := readQuantity(quantity)
			if !ok {
				continue
			}
			var sum resource.Quantity
			fits := true
			count := func(container rawjson.Value) {
				if q, ok := readQuantity(container.Get("resources", which, name)); ok {
					sum.Add(q)
					// A limit of one container is bounded, requests of all are.
					fits = fits && (which != "limits" || q.Cmp(most) <= 0)
				}
			}
			for l := initContainers; l <= containers; l++ {
				for i := pl.pod.lists[l].from; i < pl.pod.lists[l].to; i++ {
					if it := pl.pod.item(i); l == containers || it.native {
						count(it.text)
					}
				}
				for i := range pl.profile.elements[l] {
					if pl.fate(l, i).what == toAdd && (l == containers || pl.profile.elements[l][i].native) {
						count(rawjson.Value(pl.rendered.elements[l][i].raw))
					}
				}
			}
			if !fits || which == "requests" && sum.Cmp(most) > 0 {
				return fmt.Sprintf("the pod has %s of %s for all of its containers, which does not suffice for those of sidecar profile %q", most.String(), name, pl.profile.name)
			}
		}
	}
	return ""
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
