package expression

import "slices"

// A rule can depend on a value without reading its content: has(object.a) reads only
// whether it is present, object.a.size() only its length. If such a value violates a rule,
// another value in its place violates it in the same way, and must not pass as an existing
// violation. So a cause is computed for each part of an expression: the values whose
// presence or size alone a violation may depend on.

// cause is what a condition depends on to be false, and to be true. For any other
// expression, both are what its value depends on.
type cause struct{ whenFalse, whenTrue outcome }

// outcome is what one result of a condition depends on.
type outcome struct {
	// impossible is true if a condition never has this result.
	impossible bool
	// presences are the values of which it may depend on the presence or size alone.
	presences []presence
	// read are values whose content is read, or that are absent, whenever a
	// condition has this result.
	read []*Reads
}

// presence is a value, or, if isMissing is true, a list without that string.
type presence struct {
	*Reads
	text      string
	isMissing bool
}

// maxNoted is how many presences and how many read values an outcome has. It is
// far above what real expressions have; beyond it, presences count as such
// whatever else is read, and what is read is not noted.
const maxNoted = 64

// tracer collects the cause of the expression that is being visited.
type tracer struct{ cause }

// addCause adds a cause.
func (t *tracer) addCause(why cause) { t.cause = why.after(t.cause) }

func (t *tracer) noteRead(r *Reads) {
	if t != nil {
		t.whenFalse.noteRead(r)
		t.whenTrue.noteRead(r)
	}
}

func (o *outcome) noteRead(values ...*Reads) {
	for _, r := range values {
		if len(o.read) < maxNoted && !slices.Contains(o.read, r) {
			o.read = append(o.read, r)
		}
	}
}

func (o *outcome) dependOn(on ...presence) {
	for _, p := range on {
		switch {
		case slices.Contains(o.presences, p):
		case len(o.presences) < maxNoted:
			o.presences = append(o.presences, p)
		default:
			p.requireContent()
		}
	}
}

// requireContent makes comparisons include the content of the value.
func (p presence) requireContent() {
	if !p.isMissing {
		p.content = true
	} else if !slices.Contains(p.required, p.text) {
		p.required = append(p.required, p.text)
	}
}

// presencesOf returns the values at the places of a part.
func presencesOf(p *part) []presence {
	var out []presence
	if p != nil {
		for _, at := range p.places {
			out = append(out, presence{Reads: at.Reads})
		}
	}
	return out
}

// sizedBy returns the elements that the size of a list, map or string depends on.
func sizedBy(p *part) []presence {
	if p == nil {
		return nil
	}
	var out []presence
	for _, at := range p.places {
		out = append(out, presence{Reads: at.each})
	}
	return append(out, p.counted...)
}

// causeOf returns the cause of a value that may depend on the presence or size of others
// alone.
func causeOf(on []presence) cause {
	var o outcome
	o.dependOn(on...)
	return cause{o, o}
}

// addPresence adds a condition that is true, or false, if the values are present.
func (t *tracer) addPresence(is bool, values []presence) {
	present, absent := &t.whenTrue, &t.whenFalse
	if !is {
		present, absent = absent, present
	}
	present.dependOn(values...)
	for _, v := range values {
		absent.noteRead(v.Reads)
	}
}

// after returns the cause of an expression that evaluates both.
func (c cause) after(first cause) cause {
	return cause{first.whenFalse.with(c.whenFalse), first.whenTrue.with(c.whenTrue)}
}

func (c cause) negated() cause { return cause{c.whenTrue, c.whenFalse} }

// ofAny returns the cause of an expression that may depend on both results.
func (c cause) ofAny() cause {
	either := c.whenFalse.or(c.whenTrue)
	return cause{either, either}
}

// with returns what two independent outcomes depend on together.
func (o outcome) with(other outcome) outcome {
	out := outcome{impossible: o.impossible || other.impossible}
	out.dependOn(o.presences...)
	out.dependOn(other.presences...)
	out.noteRead(o.read...)
	out.noteRead(other.read...)
	return out
}

// and returns what the results of two conditions depend on together: a value that one of
// them reads does not count by its presence alone.
func (o outcome) and(other outcome) outcome {
	return o.withoutRead(other.read).with(other.withoutRead(o.read))
}

// withoutRead returns the outcome without the presences of values that are read elsewhere.
func (o outcome) withoutRead(read []*Reads) outcome {
	o.presences = withoutReadPresences(o.presences, read)
	return o
}

func withoutReadPresences(presences []presence, read []*Reads) []presence {
	return slices.DeleteFunc(slices.Clone(presences), func(p presence) bool {
		return !p.isMissing && slices.Contains(read, p.Reads)
	})
}

// or returns what it depends on that one of two conditions has its result.
func (o outcome) or(other outcome) outcome {
	switch {
	case o.impossible:
		return other
	case other.impossible:
		return o
	}
	out := outcome{}
	out.dependOn(o.presences...)
	out.dependOn(other.presences...)
	for _, r := range o.read {
		if slices.Contains(other.read, r) {
			out.noteRead(r)
		}
	}
	return out
}

// conditional returns the cause of c ? a : b.
func conditional(c, a, b cause) cause {
	return cause{
		whenFalse: c.whenTrue.and(a.whenFalse).or(c.whenFalse.and(b.whenFalse)),
		whenTrue:  c.whenTrue.and(a.whenTrue).or(c.whenFalse.and(b.whenTrue)),
	}
}

// ofAll returns the cause of "all", if its body is a condition with that cause: the
// other way round, that of "exists". The list has that cause, and the elements.
func (c cause) ofAll(list cause, elements []presence) cause {
	some := list.whenFalse.with(outcome{presences: elements})
	out := cause{whenFalse: some.and(c.whenFalse), whenTrue: list.whenTrue}
	if !c.whenTrue.impossible { // else only of no elements
		out.whenTrue = some.withoutRead(c.whenTrue.read)
		out.whenTrue.dependOn(c.whenTrue.presences...)
		out.whenTrue.read = list.whenTrue.read // there may be no elements
	}
	return out
}
