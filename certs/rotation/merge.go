package rotation

import (
	"cmp"
	"slices"
	"time"
)

// Merge decides what holds, of what this process remembers and what it found:
// either may be nil, for a process that has just begun, and for a Secret that was
// deleted or damaged. The result must be written if it is not what was found.
//
// Of two states of one lineage the later one holds, as it is: one that is
// restored from memory keeps its generation, so that somebody who remembers a
// later one puts that in its place. Of what was made independently, by somebody
// who found nothing, the older lineage holds, so that all come to the same end
// whoever writes first. What either side serves stays trusted meanwhile: a CA
// that gives way goes on signing until the other is trusted everywhere if this
// process remembers it, and becomes the previous one if it was found.
func Merge(remembered, found *State, now time.Time) *State {
	switch {
	case remembered == nil:
		return found
	case found == nil:
		return remembered
	case remembered.Lineage == found.Lineage:
		if cmp.Or(cmp.Compare(found.Generation, remembered.Generation), remembered.rank(found)) >= 0 {
			return found
		}
		return remembered
	case remembered.rank(found) < 0:
		return remembered.keep(found, now)
	default:
		return remembered.yield(found, now)
	}
}

// keep is the state after another, which gives way to it, was found.
func (s *State) keep(found *State, now time.Time) *State {
	n := s.absorb(found)
	// What replicas of ours serve comes first, where there is a place for one alone.
	if s.Previous == nil && !s.has(found.Current) && !found.Current.ended(now) {
		n.Previous = &Authority{Cert: found.Current.Cert}
		if s.Phase == Stable {
			n.Phase, n.Since, n.Cause = Activate, now, Recovery
		}
	}
	return n
}

// yield is the state that was found, with the CA that signed until now.
func (s *State) yield(found *State, now time.Time) *State {
	if found.has(s.Current) || s.Current.ended(now) || found.absorbed(s) {
		return found
	}
	n := found.absorb(s)
	n.Phase, n.Since, n.Current, n.Previous = Publish, now, s.Current, s.Previous
	if n.Previous == nil && s.Pending != nil {
		// Others may have gone on since, and serve that one.
		n.Previous = &Authority{Cert: s.Pending.Cert}
	}
	switch {
	case n.Pending == nil:
		n.Pending, n.Cause = found.Current, Recovery
	case n.Previous == nil:
		// What becomes of a rotation stays so.
		n.Previous = &Authority{Cert: found.Current.Cert}
	}
	return n
}

// mostAbsorbed is of how many lineages a state keeps the names. Each is an
// accident, and whoever remembers one is back soon after it.
const mostAbsorbed = 8

// absorb is a copy of the state to which another gives way, with a generation
// that is later than both. What that one had absorbed is absorbed with it.
func (s *State) absorb(o *State) *State {
	n := *s
	n.Generation = max(s.Generation, o.Generation) + 1
	n.Absorbed = nil
	for _, a := range slices.Concat(s.Absorbed, o.Absorbed, []Absorbed{{Lineage: o.Lineage, Generation: o.Generation}}) {
		if a.Lineage == s.Lineage {
			continue
		}
		if i := slices.IndexFunc(n.Absorbed, func(b Absorbed) bool { return b.Lineage == a.Lineage }); i >= 0 {
			a.Generation = max(a.Generation, n.Absorbed[i].Generation)
			n.Absorbed = slices.Delete(n.Absorbed, i, i+1)
		}
		n.Absorbed = append(n.Absorbed, a)
	}
	n.Absorbed = n.Absorbed[max(0, len(n.Absorbed)-mostAbsorbed):]
	return &n
}

// absorbed reports whether somebody who remembered the other state, or a later one
// of its lineage, has merged it. Without that, a replica that was cut off for
// long would put the CA of its time in the place of what is served now.
func (s *State) absorbed(o *State) bool {
	return slices.ContainsFunc(s.Absorbed, func(a Absorbed) bool { return a.Lineage == o.Lineage && a.Generation >= o.Generation })
}

// rank orders states that do not follow from each other, the one that holds
// first. The clocks that say which lineage is older may differ; what matters is
// that all agree. States of one lineage and generation differ only after what was
// stored had been lost, and any order will do.
func (s *State) rank(o *State) int {
	return cmp.Or(
		s.Created.Compare(o.Created), cmp.Compare(s.Lineage, o.Lineage),
		cmp.Compare(s.Current.name(), o.Current.name()), cmp.Compare(s.Pending.name(), o.Pending.name()),
		cmp.Compare(s.Previous.name(), o.Previous.name()), cmp.Compare(s.Phase, o.Phase),
	)
}

// name is the ID of an authority, "" if there is none.
func (a *Authority) name() string {
	if a == nil {
		return ""
	}
	return a.ID()
}
