package inject

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/status"
)

// entry returns what the status annotation lists: what the profile has added, now and
// before.
func (inj *injection) entry() status.Entry {
	e := status.Entry{Name: inj.in.Profile.Name, Revision: inj.in.Rendered.Revision, Added: inj.merger.Added}
	for l := range podtext.NumLists {
		if inj.actions[l] == nil {
			*e.List(l) = inj.in.Profile.Names[l]
			continue
		}
		for i, name := range inj.in.Profile.Names[l] {
			switch f := inj.action(l, i); {
			case f.kind == reuse:
				e.Reused = append(e.Reused, name)
			case f.kind == mergeInto || f.kind == present && slices.Contains(inj.in.Earlier.Merged, name):
				e.Merged = append(e.Merged, name)
			case f.kind == replace || f.kind == present && slices.Contains(inj.in.Earlier.Replaced, name):
				e.Replaced = append(e.Replaced, name)
			default:
				*e.List(l) = append(*e.List(l), name)
			}
		}
	}
	if inj.in.Earlier != nil {
		now := make(map[string]bool, len(e.Added))
		for _, fieldPath := range e.Added {
			now[fieldPath] = true
		}
		for _, fieldPath := range inj.in.Earlier.Added {
			if !now[fieldPath] && inj.in.Found.Found(fieldPath) {
				e.Added = append(e.Added, fieldPath)
			}
		}
		// Whatever the annotation claims decides what is the pod's own, so a
		// claim that went would change the next decision.
		there := inj.in.Earlier.Prune(inj.in.Found, inj.now.Pod.Names())
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
