package inject

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// CheckConstraints returns the field of the pod that excludes what the profile has added
// to it, and why. Both are empty if there is none.
func CheckConstraints(profile *profile.Profile, state *State) (path, message string) {
	d, p := &profile.Constraints, state.Pod
	grace, bounded := seconds(p.GracePeriod)
	if !d.Fields && !d.ProcMount && len(d.Containers) == 0 && (d.Sleep == 0 || !bounded || grace >= d.Sleep) && (len(d.Resources) == 0 || p.Resources.Len() == 0) {
		return "", ""
	}
	// Only what comes of it tells: what is added may be merged or left out.
	made := new(podtext.Pod)
	result := state.Editor.Result()
	if err := made.ReadAgain(result); err != nil {
		return "", "" // It cannot happen: the patch is made for a pod that was read.
	}
	if d.ProcMount && string(rawjson.Value(result).Get("spec", "hostUsers")) != "false" {
		return "spec.hostUsers", fmt.Sprintf("with sidecar profile %q, a container has procMount: Unmasked, which requires hostUsers: false", profile.Name)
	}
	for _, name := range d.Containers {
		if _, at := made.FindContainer(name, podtext.Containers); at < 0 {
			return "spec.containers", fmt.Sprintf("sidecar profile %q sets an annotation about AppArmor for container %q, which the pod does not have", profile.Name, name)
		}
	}
	if grace, bounded := seconds(made.GracePeriod); bounded {
		if sleep := longestSleep(made); sleep > 0 && grace < sleep {
			return "spec.terminationGracePeriodSeconds", fmt.Sprintf("with sidecar profile %q, a lifecycle hook sleeps for %d seconds, longer than terminationGracePeriodSeconds: %d", profile.Name, sleep, grace)
		}
	}
	for _, name := range d.Resources {
		if most, exceeded := exceeds(made, name); exceeded {
			return "spec.resources", fmt.Sprintf("the pod reserves %s of %s for all its containers, less than they need with sidecar profile %q", most, name, profile.Name)
		}
	}
	return "", ""
}

// CheckUsers returns the field of a container that the kubelet does not start any more, and
// why, as CheckConstraints does: it runs as root and must not. The API server accepts such a pod.
func CheckUsers(profile *profile.Profile, before *podtext.Pod, state *State) (path, message string) {
	made := new(podtext.Pod)
	if !state.Editor.MayHave("runAsNonRoot") || !state.Editor.MayHave("runAsUser") || made.ReadAgain(state.Editor.Result()) != nil {
		return "", ""
	}
	known := map[string]bool{}
	for _, name := range neverStart(before) {
		known[name] = true
	}
	for path, name := range neverStart(made) {
		if !known[name] {
			return path, fmt.Sprintf("with sidecar profile %q, container %q has runAsNonRoot: true and runAsUser: 0, its own or the pod's, and never starts", profile.Name, name)
		}
	}
	return "", ""
}

// neverStart yields the fields and names of the containers that must not run as root and do.
// They inherit both settings.
func neverStart(p *podtext.Pod) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			for i := p.Lists[l].From; i < p.Lists[l].To; i++ {
				it := p.Element(i)
				effective := func(name string) rawjson.Value {
					if own := it.Text.Get("securityContext", name); own.Kind() != rawjson.Invalid && own.Kind() != rawjson.Null {
						return own
					}
					return p.SecurityContext.Get(name)
				}
				if effective("runAsNonRoot").IsTrue() && string(effective("runAsUser")) == "0" &&
					!yield(fmt.Sprintf("spec.%s[%d].securityContext", l, i-p.Lists[l].From), it.Name.Text()) {
					return
				}
			}
		}
	}
}

func seconds(v rawjson.Value) (int64, bool) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

func longestSleep(p *podtext.Pod) int64 {
	var longest int64
	for _, it := range p.Containers() {
		hooks := it.Text.Get("lifecycle")
		for _, hook := range [...]string{"postStart", "preStop"} {
			if n, ok := seconds(hooks.Get(hook, "sleep", "seconds")); ok {
				longest = max(longest, n)
			}
		}
	}
	return longest
}

// exceeds reports whether the containers need more of a resource than the pod as
// a whole has, and how much that is. What they need is counted as the API server
// does: init containers that end run when of the others native sidecars alone
// do, and what says its limit alone requests as much.
func exceeds(p *podtext.Pod, name string) (string, bool) {
	limit, limited := merge.ReadQuantity(p.Resources.Get("limits", name))
	request, requested := merge.ReadQuantity(p.Resources.Get("requests", name))
	if !limited && !requested {
		return "", false
	}
	if !requested {
		request = limit
	}
	var sum, native, most resource.Quantity
	for l, it := range p.Containers() {
		resources := it.Text.Get("resources")
		upper, bounded := merge.ReadQuantity(resources.Get("limits", name))
		if l == podtext.Containers && bounded && limited && upper.Cmp(limit) > 0 {
			return limit.String(), true
		}
		need, says := merge.ReadQuantity(resources.Get("requests", name))
		if !says {
			need = upper
		}
		switch {
		case l == podtext.Containers:
			sum.Add(need)
		case it.IsNative:
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

// checkUsers finds containers that run as a user that the profile reserves for one of its
// own.
func (inj *injection) checkUsers() error {
	if len(inj.in.Profile.DistinctUsers) == 0 {
		return nil
	}
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := range inj.in.Profile.Elements[l] {
			e := &inj.in.Profile.Elements[l][i]
			if f := inj.action(l, i); f.isThere() || !slices.Contains(inj.in.Profile.DistinctUsers, e.Name) {
				continue
			}
			user := rawjson.Value(inj.in.Rendered.Elements[l][i].Raw).Get("securityContext", "runAsUser")
			if user == nil {
				continue
			}
			inj.checkUser(e.Name, user)
		}
	}
	return nil
}

func (inj *injection) checkUser(name string, user rawjson.Value) {
	p := inj.now.Pod
	podUser := p.SecurityContext.Get("runAsUser")
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := p.Lists[l].From; i < p.Lists[l].To; i++ {
			it := p.Element(i)
			path := fmt.Sprintf("spec.%s[%d].securityContext.runAsUser", l, i-p.Lists[l].From)
			theirs := it.Text.Get("securityContext", "runAsUser")
			if theirs.Kind() != rawjson.Number {
				theirs, path = podUser, "spec.securityContext.runAsUser"
			}
			if it.Name.Is(name) || string(theirs) != string(user) {
				continue
			}
			inj.conflict(path, "run the container as another user, or "+inj.in.Profile.DeclineHint(),
				fmt.Sprintf("container %q runs as user %s, which is reserved for container %q of sidecar profile %q", it.Name.Text(), user, name, inj.in.Profile.Name))
		}
	}
}
