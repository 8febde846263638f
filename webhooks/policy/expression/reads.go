package expression

import (
	"maps"
	"slices"
)

// Reads is what of the object an expression looks at, through variables too: all
// of a value, whether it is there, some of its members, or some of each of its
// elements. The zero value looks at nothing. It is immutable, and safe for
// concurrent use, once it is made.
type Reads struct {
	// whole is true if all of it is looked at, presence if it is whether it is
	// there, and null if it is whether it is null.
	whole, presence, null bool
	// exact is true if the expression goes into it, and what it finds depends on
	// the kind that it has. With orObject alone, or orArray alone, what is absent
	// looks as an empty object does, or an empty array.
	exact, orObject, orArray bool
	members                  map[string]*Reads
	// names are those of the members, sorted.
	names []string
	each  *Reads
	// kept is true if it matters whether an element or member is gone, inOrder if
	// it matters too where it stands, and indexed if that matters for elements
	// alone. Without kept, inOrder or indexed, to take something away from what is
	// gone through can only help: see use.
	kept, inOrder, indexed bool
	// contained are names of members, or texts among the elements, of which it is
	// asked whether they are there.
	contained []string
	// content is true if a violation may rest on the presence or the size of the
	// value alone, so that all of it counts, of a list in any order. The same holds
	// of a list in which one of the required strings is missing.
	content  bool
	required []string
	// unread is true if an expression selects the value, and nothing may come of
	// that but an error.
	unread bool
	// tracer is nil once the Reads are made.
	tracer *tracer
	// onlyOfConditions is true if the expression itself looks at nothing of the
	// object, but a match condition does.
	onlyOfConditions bool
}

// Touches reports whether the expression may look at what is at the path.
func (r *Reads) Touches(path ...string) bool {
	switch {
	case r == nil:
		return false
	case r.whole, len(path) == 0:
		return true
	case r.each != nil, slices.Contains(r.contained, path[0]):
		return true
	default:
		return r.members[path[0]].Touches(path[1:]...)
	}
}

// IsNothing reports whether the expression looks at nothing of the object.
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

// part is what an expression's value may be of the object: the value at each of
// the places, or a list made of elements.
type part struct {
	places   []place
	elements *part
	// counted are the elements, of a list made of elements, that there are as
	// many of because the object has them, and not because of what is in them.
	counted []presence
}

// place is a value of the object, and what an expression has if it is absent.
type place struct {
	*Reads
	absent absence
}

// absence is what stands for a value that is absent.
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

// mostPlaces is how many places a value may be at. It is far above what real
// expressions have; beyond it, all of them are taken to be looked at.
const mostPlaces = 64

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
	if len(out.places) > mostPlaces {
		out.all()
		out.places = nil
	}
	out.elements = join(a.elements, b.elements)
	var both outcome
	both.rests(a.counted...)
	both.rests(b.counted...)
	out.counted = both.presences
	return out
}

// goInto notes that something inside of it is looked at, or that it is taken for
// a value of its kind.
func (p *part) goInto() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		place.tracer.isRead(place.Reads)
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

// member returns what is under a name. It is absent without an error if that is
// optional.
func (p *part) member(name string, optional bool) *part {
	if p.isNothing() {
		return nil
	}
	p.goInto()
	out := new(part)
	for _, of := range p.places {
		found := place{Reads: of.under(name), absent: isError}
		if optional || of.absent == isNone {
			found.absent = isNone
		} else {
			found.presence, found.unread = true, true
		}
		out.places = append(out.places, found)
	}
	return out
}

// under returns what is looked at under a name.
func (r *Reads) under(name string) *Reads {
	if r.members == nil {
		r.members = map[string]*Reads{}
	}
	if r.members[name] == nil {
		r.members[name] = &Reads{tracer: r.tracer}
	}
	return r.members[name]
}

// element returns what an element may be, of a list that is put to that use.
func (p *part) element(u use) *part {
	if p.isNothing() {
		return nil
	}
	p.goInto()
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

// numbered notes that elements are known by where they stand.
func (p *part) numbered() { p.mark(func(r *Reads) { r.indexed = true }) }

// instead returns the value with something else to stand for it where it is absent.
func (p *part) instead(absent absence) *part {
	if p.isNothing() {
		return nil
	}
	out := &part{elements: p.elements, counted: p.counted}
	for _, at := range p.places {
		out.places = append(out.places, place{Reads: at.Reads, absent: absent})
	}
	return out
}

// all notes that all of it is looked at.
func (p *part) all() {
	if p == nil {
		return
	}
	for _, place := range p.places {
		place.tracer.isRead(place.Reads)
		place.whole = true
	}
	for _, of := range p.counted {
		// How many there are is looked at, too.
		if !slices.Contains(of.tracer.whenFalse.read, of.Reads) {
			of.tracer.because(resting([]presence{of}))
		}
	}
	p.elements.all()
}

// mark marks what is looked at at each of the places.
func (p *part) mark(mark func(*Reads)) {
	if p == nil {
		return
	}
	for _, place := range p.places {
		mark(place.Reads)
	}
}

// unused notes that nothing may be looked at but whether it can be selected.
func (p *part) unused() { p.mark(func(r *Reads) { r.unread = true }) }

// there notes that it is looked at whether it is there.
func (p *part) there() { p.mark(func(r *Reads) { r.presence = true }) }

// isNull notes that it is looked at whether it is null.
func (p *part) isNull() { p.mark(func(r *Reads) { r.presence, r.null = true, true }) }

// contains notes that it is looked at whether a text is in it.
func (p *part) contains(text string) {
	p.goInto()
	for _, place := range p.places {
		if !slices.Contains(place.contained, text) {
			place.contained = append(place.contained, text)
		}
	}
	// A list that is made of elements is made anew each time.
	p.elements.all()
}
