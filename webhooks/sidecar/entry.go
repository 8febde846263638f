package sidecar

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// entry returns what the status annotation lists: what the profile has added, now and
// before.
func (inj *injection) entry() status.Entry {
	e := status.Entry{Name: inj.in.profile.Name, Revision: inj.in.rendered.Revision, Added: inj.merger.Added}
	for l := range podtext.NumLists {
		if inj.actions[l] == nil {
			*e.List(l) = inj.in.profile.Names[l]
			continue
		}
		for i, name := range inj.in.profile.Names[l] {
			switch f := inj.action(l, i); {
			case f.kind == reuse:
				e.Reused = append(e.Reused, name)
			case f.kind == mergeInto || f.kind == present && slices.Contains(inj.in.earlier.Merged, name):
				e.Merged = append(e.Merged, name)
			case f.kind == replace || f.kind == present && slices.Contains(inj.in.earlier.Replaced, name):
				e.Replaced = append(e.Replaced, name)
			default:
				*e.List(l) = append(*e.List(l), name)
			}
		}
	}
	if inj.in.earlier != nil {
		now := make(map[string]bool, len(e.Added))
		for _, trail := range e.Added {
			now[trail] = true
		}
		for _, trail := range inj.in.earlier.Added {
			if !now[trail] && inj.in.found.Found(trail) {
				e.Added = append(e.Added, trail)
			}
		}
		// Whatever the annotation claims decides what is the pod's own, so a
		// claim that went would change the next decision.
		there := inj.in.earlier.Prune(inj.in.found, inj.now.pod.Names())
		for l := range podtext.NumLists {
			earlier := *there.List(l)
			if len(earlier) == 0 {
				continue
			}
			claimed := e.Names(l)
			*e.List(l) = slices.Clone(*e.List(l)) // it may be the profile's own
			for _, name := range earlier {
				if !claimed[name] {
					claimed[name] = true
					*e.List(l) = append(*e.List(l), name)
				}
			}
		}
	}
	return e
}
