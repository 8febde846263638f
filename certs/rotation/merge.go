package rotation

import (
	"cmp"
	"slices"
	"time"
)

// Merge merges the state that this process remembers with the stored one. Either may be
// nil: for a process that has just started, and for a Secret that was deleted or damaged.
// The result must be stored unless it is found.
//
// Of two states of one lineage the later one wins unchanged: one that is restored from
// memory keeps its generation, so that a replica that remembers a later one replaces it. Of
// two lineages the older one wins, so that all replicas come to the same result, whoever
// writes first. The CAs of both stay trusted: the CA of the lineage that loses continues to
// sign until the other is trusted everywhere if this process remembers it, and becomes the
// previous one if it was found.
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

// keep returns the state, which wins, merged with the one that was found.
func (s *State) keep(found *State, now time.Time) *State {
	n := s.absorb(found)
	// There is one Previous only, and what these replicas serve comes first.
	if s.Previous == nil && !s.has(found.Current) && !found.Current.hasExpired(now) {
		n.Previous = &Authority{Cert: found.Current.Cert}
		if s.Phase == Stable {
			n.Phase, n.Since, n.Cause = Activate, now, Recovery
		}
	}
	return n
}

// yield returns the state that was found, which wins, with the CA that signed until now.
func (s *State) yield(found *State, now time.Time) *State {
	if found.has(s.Current) || s.Current.hasExpired(now) || found.absorbed(s) {
		return found
	}
	n := found.absorb(s)
	n.Phase, n.Since, n.Current, n.Previous = Publish, now, s.Current, s.Previous
	if n.Previous == nil && s.Pending != nil {
		// Others may have rotated since, and serve that one.
		n.Previous = &Authority{Cert: s.Pending.Cert}
	}
	switch {
	case n.Pending == nil:
		n.Pending, n.Cause = found.Current, Recovery
	case n.Previous == nil:
		// The rotation that was found continues.
		n.Previous = &Authority{Cert: found.Current.Cert}
	}
	return n
}

// mostAbsorbed is how many lineages a state records. Each is an accident, and replicas that
// remember one return soon after it.
const mostAbsorbed = 8

// absorb returns a copy of the state that records another and what that had absorbed, with a
// later generation than both.
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

// absorbed reports whether the other state, or a later one of its lineage, was merged.
// Otherwise a replica that was isolated for long would restore an old CA.
func (s *State) absorbed(o *State) bool {
	return slices.ContainsFunc(s.Absorbed, func(a Absorbed) bool { return a.Lineage == o.Lineage && a.Generation >= o.Generation })
}

// rank orders states that do not follow from each other, the one that wins first. Clocks
// may differ; what matters is that all replicas agree. States of one lineage and generation
// differ only after a loss, and any order will do.
func (s *State) rank(o *State) int {
	return cmp.Or(
		s.Created.Compare(o.Created), cmp.Compare(s.Lineage, o.Lineage),
		cmp.Compare(s.Current.name(), o.Current.name()), cmp.Compare(s.Pending.name(), o.Pending.name()),
		cmp.Compare(s.Previous.name(), o.Previous.name()), cmp.Compare(s.Phase, o.Phase),
	)
}

// name returns the ID of an authority, "" if there is none.
func (a *Authority) name() string {
	if a == nil {
		return ""
	}
	return a.ID()
}
