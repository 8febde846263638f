package sidecar

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// owners finds the profiles that have added the containers of a pod. It implements
// containerOwners.
type owners struct {
	set       *Set
	selection *selection
	// came is the status annotation that the pod came with, or nil, and next the one
	// that it gets.
	came, next *status.Status

	// indexed is how many entries of next are in the maps, once those of came are. A
	// status that an attacker has written can list thousands of containers, for a pod
	// that has as many.
	indexed  int
	added    [podtext.NumLists]map[string]bool
	profiles [podtext.NumLists]map[string]string
}

// IsEmpty reports whether no profile has added anything.
func (o *owners) IsEmpty() bool { return o.came == nil && len(o.next.Profiles) == 0 }

// IsApp reports whether a container is the pod's own: none that a profile has added, or
// merges with or replaces, in this decision or whenever it comes. A container that only
// the status of its own pod claims, and which its profile does not add, is the pod's own.
func (o *owners) IsApp(l podtext.List, name string) bool {
	if name == "" || o.isAdded(l, name) {
		return false
	}
	for i, k := range o.selection.profiles {
		switch o.selection.verdicts[i].Reason { //nolint:exhaustive // the others are not applied
		case "", Applied, AlreadyThere:
			if slices.ContainsFunc(o.set.profiles[k].Elements[l], func(e profile.Element) bool { return e.Name == name }) {
				return false
			}
		}
	}
	return true
}

func (o *owners) isAdded(l podtext.List, name string) bool {
	if o.came != nil {
		o.index()
		return o.added[l][name]
	}
	return slices.ContainsFunc(o.next.Profiles, func(e status.Entry) bool { return e.Lists(l, name) })
}

// Owner returns the profile of the set that has added a container, and its rank.
func (o *owners) Owner(l podtext.List, name string) (*profile.Profile, int) {
	owner := ""
	if o.came != nil {
		o.index()
		owner = o.profiles[l][name]
	} else if i := slices.IndexFunc(o.next.Profiles, func(e status.Entry) bool { return e.AddsContainer(l, name) }); i >= 0 {
		owner = o.next.Profiles[i].Name
	}
	i, ok := o.set.byName[owner]
	if !ok {
		return nil, 0
	}
	return o.set.profiles[i], o.set.ranks[i]
}

// index adds what both annotations list so far to the maps.
func (o *owners) index() {
	if o.added[0] == nil {
		for l := range podtext.NumLists {
			o.added[l], o.profiles[l] = map[string]bool{}, map[string]string{}
		}
		for i := range o.came.Profiles {
			o.addEntry(&o.came.Profiles[i])
		}
	}
	for ; o.indexed < len(o.next.Profiles); o.indexed++ {
		e := &o.next.Profiles[o.indexed]
		o.addEntry(e)
		for l := podtext.InitContainers; l <= podtext.Containers; l++ {
			for _, name := range slices.Concat(e.Merged, e.Replaced) {
				o.added[l][name] = true
			}
		}
	}
}

func (o *owners) addEntry(e *status.Entry) {
	_, known := o.set.byName[e.Name]
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		for _, name := range *e.List(l) {
			o.added[l][name] = true
			if _, owned := o.profiles[l][name]; known && !owned {
				o.profiles[l][name] = e.Name
			}
		}
	}
}
