package inject

import (
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// action is what becomes of one element of a template.
type action struct {
	kind actionKind
	// index is where an element that is there stands in the pod's list.
	index int
	// raw is what is added, if it is not what was rendered.
	raw []byte
	// dropped are the indexes of the ports that are left out of it.
	dropped []int
}

type actionKind uint8

const (
	add actionKind = iota
	// present: an earlier call added it.
	present
	// reuse: the pod has an equal volume of its own.
	reuse
	// equal: the pod has an equal container that no annotation lists: it was injected, and the annotation was removed. It is the
	// profile's from now on.
	equal
	// mergeInto: the pod has a container of this name, which gets what it lacks.
	mergeInto
	// replace: the pod has a container of this name, in whose place this comes.
	replace
)

// isThere reports whether the pod has the element of the profile.
func (f *action) isThere() bool { return f.kind == present || f.kind == equal }

// action returns the action for an element, which the caller does not change.
func (inj *injection) action(l podtext.List, i int) *action {
	if inj.actions[l] == nil {
		return &action{}
	}
	return &inj.actions[l][i]
}

// hasNames reports whether the pod has anything under one of the profile's names.
func (inj *injection) hasNames() bool {
	for l := range podtext.NumLists {
		for i := range inj.in.Profile.Elements[l] {
			name := inj.in.Profile.Elements[l][i].Name
			if l == podtext.Volumes {
				if inj.now.Pod.Find(podtext.Volumes, name) >= 0 {
					return true
				}
			} else if _, at := inj.now.Pod.FindContainer(name, l); at >= 0 {
				return true
			}
		}
	}
	return false
}

// compare finds the action for every element of the template, and returns how many
// are missing and whether the pod has anything that an earlier call added.
func (inj *injection) compare() (missing int, held bool) {
	held = inj.in.Earlier != nil && slices.ContainsFunc(inj.in.Earlier.Added, inj.in.Found.Found)
	if !inj.hasNames() {
		for l := range podtext.NumLists {
			missing += len(inj.in.Profile.Elements[l])
		}
		return missing, held
	}
	for l := range podtext.NumLists {
		inj.actions[l] = make([]action, len(inj.in.Profile.Elements[l]))
	}
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for i := range inj.in.Profile.Elements[l] {
			switch inj.compareContainer(l, i) {
			case add:
				missing++
			case present:
				held = true
			case reuse, equal, mergeInto, replace:
			}
		}
	}
	before := held
	for i := range inj.in.Profile.Elements[podtext.Volumes] {
		switch inj.compareVolume(i, before) { //nolint:exhaustive // of the others nothing follows
		case add:
			missing++
		case present:
			held = held || inj.in.Profile.HasOnlyVolumes()
		}
	}
	return missing, held
}

func (inj *injection) compareContainer(l podtext.List, i int) actionKind {
	e := &inj.in.Profile.Elements[l][i]
	where, at := inj.now.Pod.FindContainer(e.Name, l)
	f := &inj.actions[l][i]
	if at < 0 {
		return add
	}
	f.index = at
	switch {
	case where == l && inj.in.Earlier.Lists(l, e.Name):
		f.kind = present
		if e.IsNative && !inj.now.Pod.Element(inj.now.Pod.Lists[l].From+at).IsNative && !slices.Contains(inj.in.Earlier.Merged, e.Name) {
			inj.in.Report.Warn("init container %q of sidecar profile %q has no restartPolicy: Always any more, and the pod will not start: another webhook has removed the field", e.Name, inj.in.Profile.Name)
		}
	case where == l && inj.in.Profile.OnSameName == v1alpha1.KeepSameName:
		f.kind = mergeInto
	case where == l && inj.in.Profile.OnSameName == v1alpha1.ReplaceSameName:
		f.kind = replace
	case where == l && inj.isEqual(l, i, at):
		f.kind, inj.adopted = equal, true
	default:
		inj.refused = true
		inj.detail = "the pod has a container with the same name"
		inj.in.Report.Refuse(fmt.Sprintf("spec.%s[%d].name", where, at), "rename the container, or "+inj.in.Profile.DeclineHint(),
			"%q is the name of a container that sidecar profile %q adds", e.Name, inj.in.Profile.Name)
	}
	return f.kind
}

// isEqual reports whether a container of the pod is what the profile adds. It may have settings that the profile shares with it: of the
// pod's own containers, and of what is added to these, nobody knows any more which is which.
func (inj *injection) isEqual(l podtext.List, i, at int) bool {
	// Conflicts are found again, by what merges.
	other := injection{in: inj.in, now: inj.now}
	other.in.Report = silent{}
	template, own := rawjson.Value(inj.in.Rendered.Elements[l][i].Raw), inj.now.Pod.Element(inj.now.Pod.Lists[l].From+at).Text
	for k := range inj.in.Profile.Shares {
		s := &inj.in.Profile.Shares[k]
		if s.Container != inj.in.Profile.Elements[l][i].Name {
			continue
		}
		shared, err := other.sharedSettings(s, other.isPrivileged(l, i), template, template)
		if err != nil {
			return false
		}
		if own, err = withoutShared(own, template, shared); err != nil {
			return false
		}
	}
	return profile.EqualContainer(template, own, inj.now.Pod.Spec.Get("hostNetwork").IsTrue())
}

// withoutShared returns a container without the shared settings that a template does not have.
func withoutShared(container, template, shared rawjson.Value) (rawjson.Value, error) {
	for name, value := range shared.Members() {
		extra := map[string]bool{}
		for _, element := range value.Elements() {
			extra[merge.Canonical(element)] = true
		}
		for _, element := range template.Get(name.Text()).Elements() {
			delete(extra, merge.Canonical(element))
		}
		list := container.Get(name.Text())
		if list.Kind() != rawjson.Array {
			continue
		}
		left := merge.FilterElements(list, func(_ int, element rawjson.Value) bool { return !extra[merge.Canonical(element)] })
		var err error
		if container, err = merge.SetMember(container, container, name.Text(), string(left)); err != nil {
			return nil, err
		}
	}
	return container, nil
}

// silent is a Reporter of what is not done.
type silent struct{}

func (silent) Step(string, string, string)           {}
func (silent) Warn(string, ...any)                   {}
func (silent) Refuse(string, string, string, ...any) {}

func (inj *injection) compareVolume(i int, held bool) actionKind {
	e := &inj.in.Profile.Elements[podtext.Volumes][i]
	at := inj.now.Pod.Find(podtext.Volumes, e.Name)
	if at < 0 {
		return add
	}
	f := &inj.actions[podtext.Volumes][i]
	f.kind, f.index = reuse, at
	claimed := inj.in.Earlier.Lists(podtext.Volumes, e.Name)
	switch {
	// Only beside something else of ours is a volume that is not equal, or no
	// longer, believed to be ours.
	case held && claimed, profile.EqualVolume(rawjson.Value(inj.in.Rendered.Elements[podtext.Volumes][i].Raw), inj.now.Pod.Element(inj.now.Pod.Lists[podtext.Volumes].From+at).Text):
		if (held || inj.in.Profile.HasOnlyVolumes()) && inj.in.Earlier != nil && slices.Contains(inj.in.Earlier.Volumes, e.Name) {
			f.kind = present
		}
	default:
		inj.conflict(fmt.Sprintf("spec.volumes[%d].name", at), "rename the volume, make it equal, or "+inj.in.Profile.DeclineHint(),
			fmt.Sprintf("volume %q differs from the volume of the same name that sidecar profile %q adds", e.Name, inj.in.Profile.Name))
	}
	return f.kind
}
