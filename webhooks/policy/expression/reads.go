package expression

import (
	"maps"
	"slices"
)

// Reads are the parts of the object that an expression reads, through variables too: a
// whole value, some of its members, or some of each of its elements. The zero value reads
// nothing. Reads are immutable, and safe for concurrent use, once they are sealed.
type Reads struct {
	// whole is true if all of the value is read.
	whole bool
	// strict is true if an absent value is not equal to an empty object or list, as where
	// it is an error.
	strict bool
	// kept is true if no element may be gone: see fewer.
	kept    bool
	members map[string]*Reads
	// names are those of the members, sorted.
	names []string
	each  *Reads
	// onlyOfConditions is true if the expression itself reads nothing of the object,
	// but a match condition does.
	onlyOfConditions bool
}

// EachElement in a path is each of the elements of a list.
const EachElement = "[]"

// Touches reports whether the expression may read the value at the path.
func (r *Reads) Touches(path ...string) bool {
	switch {
	case r == nil:
		return false
	case r.whole, len(path) == 0:
		return true
	case path[0] == EachElement:
		return r.each.Touches(path[1:]...)
	default:
		return r.each != nil || r.members[path[0]].Touches(path[1:]...)
	}
}

// CanSpare reports whether elements of the lists can be left out without hiding what the expression asks of the rest of the
// object: it asks each element by itself, as in object.spec.containers.all(c, …), or reads nothing but the lists.
func (r *Reads) CanSpare(lists ...[]string) bool {
	return !slices.ContainsFunc(lists, func(list []string) bool { return !r.asksEach(list) }) || r.isWithin(lists)
}

// asksEach reports whether the list at the path is read element by element, or not at all. Of a list that is asked whether it is empty,
// the elements count as read whole.
func (r *Reads) asksEach(path []string) bool {
	switch {
	case r == nil:
		return true
	case len(path) == 0:
		return !r.whole && !r.kept && len(r.members) == 0 && (r.each == nil || !r.each.whole)
	case r.whole, r.each != nil:
		return false
	default:
		return r.members[path[0]].asksEach(path[1:])
	}
}

// Shape says what the Reads are made of, for who compares objects by other means than SameWithin.
type Shape struct {
	// Whole is true if all of the value is read, Strict if an absent value is not equal to an empty one, and Kept if no element may be
	// gone.
	Whole, Strict, Kept bool
	// Members are the names of those that are read, sorted, and Each is what is read of each element, nil for nothing.
	Members []string
	Each    *Reads
}

// Shape returns what the Reads are made of.
func (r *Reads) Shape() Shape {
	return Shape{Whole: r.whole, Strict: r.strict, Kept: r.kept, Members: r.names, Each: r.each}
}

// Member returns what is read of a member, nil for nothing.
func (r *Reads) Member(name string) *Reads { return r.members[name] }

// isWithin reports whether nothing is read but what is at the paths.
func (r *Reads) isWithin(paths [][]string) bool {
	if slices.ContainsFunc(paths, func(path []string) bool { return len(path) == 0 }) {
		return true
	}
	if r.whole || r.each != nil {
		return false
	}
	for name, member := range r.members {
		var below [][]string
		for _, path := range paths {
			if path[0] == name {
				below = append(below, path[1:])
			}
		}
		if len(below) == 0 || !member.isWithin(below) {
			return false
		}
	}
	return true
}

// IsNothing reports whether the expression reads nothing of the object.
func (r *Reads) IsNothing() bool { return r == nil || r.onlyOfConditions || r.isEmpty() }

func (r *Reads) isEmpty() bool { return !r.whole && len(r.members) == 0 && r.each == nil }

// seal ends the construction: the members get an order, so that a comparison takes the
// same steps each time. Of a value of which nothing is read, it counts that it is there, and
// another value in its place would be there as well: so all of it counts.
func (r *Reads) seal() {
	r.names = slices.Sorted(maps.Keys(r.members))
	for _, member := range r.members {
		member.whole = member.whole || member.isEmpty()
		member.seal()
	}
	if r.each != nil {
		r.each.whole = r.each.whole || r.each.isEmpty()
		r.each.seal()
	}
}

// part is what may be an expression's value: one of some places in the object, or else
// something of which all that it is made of was noted.
type part []place

// place is a value of the object.
type place struct {
	*Reads
	// absent is what an expression gets for a value that is absent.
	absent absence
	// selected is true for some elements of a list, of which conditions were noted that
	// say which.
	selected bool
}

type absence uint8

const (
	// isError is the failure that there is no such key.
	isError absence = iota
	// isNone is optional.none(): the value is an optional, and so is what is
	// selected of it.
	isNone
	// isEmptyObject and isEmptyList are {} and [].
	isEmptyObject
	isEmptyList
)

// maxPlaces is how many places a value may be at. It is far above what real
// expressions have; beyond it, all of them count as read.
const maxPlaces = 64

// join returns what may be the value of one of two.
func join(a, b part) part {
	out := slices.Clone(a)
	for _, at := range b {
		if !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	if len(out) > maxPlaces {
		out.readWhole()
		return nil
	}
	return out
}

// readWhole notes that all of the value is read.
func (p part) readWhole() {
	for _, at := range p {
		at.whole = true
	}
}

// markStrict notes that it is read whether the value is there.
func (p part) markStrict() {
	for _, at := range p {
		at.strict = true
	}
}

// with returns the part with another replacement for absent values.
func (p part) with(absent absence) part {
	out := slices.Clone(p)
	for i := range out {
		out[i].absent = absent
	}
	return out
}

// member returns the member of that name. If that is optional, an absent one is no error.
func (p part) member(name string, optional bool) part {
	var out part
	for _, of := range p {
		of.strict = of.strict || of.absent == isError || of.absent == isEmptyList
		if of.members == nil {
			of.members = map[string]*Reads{}
		}
		if of.members[name] == nil {
			of.members[name] = new(Reads)
		}
		found := place{Reads: of.members[name]}
		if optional || of.absent == isNone {
			found.absent = isNone
		}
		out = append(out, found)
	}
	return out
}

// element returns an element of a list with that use.
func (p part) element(u use) part {
	var out part
	for _, of := range p {
		of.strict = of.strict || of.absent != isEmptyList
		of.kept = of.kept || u != fewer
		if of.each == nil {
			of.each = new(Reads)
		}
		out = append(out, place{Reads: of.each})
	}
	return out
}

// counted notes that the size of a list with that use is read.
func (p part) counted(u use) {
	for i, of := range p.element(u) {
		of.whole = of.whole || !p[i].selected
	}
}
