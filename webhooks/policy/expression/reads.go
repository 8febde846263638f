package expression

import (
	"maps"
	"slices"
)

// Reads are the parts of the object that an expression reads, through variables too: a
// whole value, whether it is present, some of its members, or some of each of its
// elements. The zero value reads nothing. Reads are immutable, and safe for concurrent
// use, once they are made.
type Reads struct {
	// whole is true if all of the value is read, presence if it is read whether it is
	// present, and null if it is read whether it is null.
	whole, presence, null bool
	// exact is true if the expression reads parts of the value, so that its kind
	// matters. With orObject alone, or orArray alone, an absent value is equal to an
	// empty object, or an empty array.
	exact, orObject, orArray bool
	members                  map[string]*Reads
	// names are those of the members, sorted.
	names []string
	each  *Reads
	// kept is true if it matters whether an element or member is removed, inOrder if
	// its position matters too, and indexed if the position matters for elements alone.
	// Without kept, inOrder or indexed, removing an element can only help: see use.
	kept, inOrder, indexed bool
	// contained are names of members, or strings among the elements, whose presence is
	// read.
	contained []string
	// content is true if a violation may rest on the presence or the size of the
	// value alone, so that all of it counts, of a list in any order. The same holds
	// of a list in which one of the required strings is missing.
	content  bool
	required []string
	// unread is true if an expression selects the value, and may use nothing of it but
	// an error.
	unread bool
	// tracer is nil once the Reads are made.
	tracer *tracer
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
	case r.each != nil, slices.Contains(r.contained, path[0]):
		return true
	default:
		return r.members[path[0]].Touches(path[1:]...)
	}
}

// IsNothing reports whether the expression reads nothing of the object.
func (r *Reads) IsNothing() bool {
	return r == nil || r.onlyOfConditions || !r.whole && !r.presence && !r.null && !r.exact && !r.orObject && !r.orArray &&
		len(r.members) == 0 && r.each == nil && len(r.contained) == 0
}

// seal ends the construction: the members get an order, so that a comparison takes
// the same steps each time.
func (r *Reads) seal() {
	if r == nil {
		return
	}
	r.tracer = nil
	r.content = r.content || r.unread && len(r.members) == 0 && r.each == nil && len(r.contained) == 0
	r.names = slices.Sorted(maps.Keys(r.members))
	for _, member := range r.members {
		member.seal()
	}
	r.each.seal()
}

// part is the part of the object that may be an expression's value: the value at each of
// the places, or a list made of elements.
type part struct {
	places   []place
	elements *part
	// counted are the elements that the length of a list made of elements depends on,
	// whatever their content.
	counted []presence
}

// place is a value of the object, and what an expression gets if it is absent.
type place struct {
	*Reads
	absent absence
}

// absence is what an expression gets for a value that is absent.
type absence uint8

const (
	// isError is the failure that there is no such key.
	isError absence = iota
	// isNone is optional.none(): the value is an optional, and so is what is
	// selected of it.
	isNone
	// isEmptyObject and isEmptyArray are {} and [].
	isEmptyObject
	isEmptyArray
)

func (p *part) isNothing() bool {
	return p == nil || len(p.places) == 0 && p.elements == nil && len(p.counted) == 0
}

// maxPlaces is how many places a value may be at. It is far above what real
// expressions have; beyond it, all of them count as read.
const maxPlaces = 64

func join(a, b *part) *part {
	switch {
	case a.isNothing():
		return b
	case b.isNothing():
		return a
	}
	out := &part{places: slices.Clone(a.places)}
	for _, p := range b.places {
		if !slices.Contains(out.places, p) {
			out.places = append(out.places, p)
		}
	}
	if len(out.places) > maxPlaces {
		out.readWhole()
		out.places = nil
	}
	out.elements = join(a.elements, b.elements)
	var both outcome
	both.dependOn(a.counted...)
	both.dependOn(b.counted...)
	out.counted = both.presences
	return out
}

// enter notes that something inside of the value is read, or that its kind matters.
func (p *part) enter() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		place.tracer.noteRead(place.Reads)
		switch place.absent {
		case isError:
			place.exact = true
		case isNone, isEmptyObject:
			place.orObject = true
		case isEmptyArray:
			place.orArray = true
		}
	}
}

// member returns the member of that name. If that is optional, an absent one is no error.
func (p *part) member(name string, optional bool) *part {
	if p.isNothing() {
		return nil
	}
	p.enter()
	out := new(part)
	for _, of := range p.places {
		found := place{Reads: of.reads(name), absent: isError}
		if optional || of.absent == isNone {
			found.absent = isNone
		} else {
			found.presence, found.unread = true, true
		}
		out.places = append(out.places, found)
	}
	return out
}

// reads returns the Reads of the member of that name.
func (r *Reads) reads(name string) *Reads {
	if r.members == nil {
		r.members = map[string]*Reads{}
	}
	if r.members[name] == nil {
		r.members[name] = &Reads{tracer: r.tracer}
	}
	return r.members[name]
}

// element returns an element of a list with that use.
func (p *part) element(u use) *part {
	if p.isNothing() {
		return nil
	}
	p.enter()
	out := new(part)
	for _, of := range p.places {
		switch u {
		case fewer, empty:
		case anyOrder:
			of.kept = true
		case exactly, holds, fails:
			of.kept, of.inOrder = true, true
		}
		if of.each == nil {
			of.each = &Reads{tracer: of.tracer}
		}
		// There is no element that is absent.
		found := place{Reads: of.each}
		if of.absent == isNone {
			found.absent = isNone
		}
		out.places = append(out.places, found)
	}
	return join(out, p.elements)
}

// markIndexed notes that the positions of elements matter.
func (p *part) markIndexed() { p.mark(func(r *Reads) { r.indexed = true }) }

// withAbsence returns the part with another replacement for absent values.
func (p *part) withAbsence(absent absence) *part {
	if p.isNothing() {
		return nil
	}
	out := &part{elements: p.elements, counted: p.counted}
	for _, at := range p.places {
		out.places = append(out.places, place{Reads: at.Reads, absent: absent})
	}
	return out
}

// readWhole notes that all of the value is read.
func (p *part) readWhole() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		place.tracer.noteRead(place.Reads)
		place.whole = true
	}
	for _, of := range p.counted {
		// How many there are is read, too.
		if !slices.Contains(of.tracer.whenFalse.read, of.Reads) {
			of.tracer.addCause(causeOf([]presence{of}))
		}
	}
	p.elements.readWhole()
}

// mark marks the Reads at each of the places.
func (p *part) mark(mark func(*Reads)) {
	if p == nil {
		return
	}
	for _, place := range p.places {
		mark(place.Reads)
	}
}

// markUnread notes that the value is selected, and may not be read.
func (p *part) markUnread() { p.mark(func(r *Reads) { r.unread = true }) }

// readPresence notes that it is read whether the value is present.
func (p *part) readPresence() { p.mark(func(r *Reads) { r.presence = true }) }

// readNull notes that it is read whether the value is null.
func (p *part) readNull() { p.mark(func(r *Reads) { r.presence, r.null = true, true }) }

// readContains notes that it is read whether the value contains a string.
func (p *part) readContains(text string) {
	p.enter()
	for _, place := range p.places {
		if !slices.Contains(place.contained, text) {
			place.contained = append(place.contained, text)
		}
	}
	// A list that is made of elements is made anew each time.
	p.elements.readWhole()
}
