package expression

import "slices"

// A rule can depend on a value without reading what is in it: has(object.a)
// only asks whether it is there, object.a.size() how long it is. If such a
// value violates a rule, another value in its place would violate it in the
// same way and must not pass as what was there before. So while an expression is
// read, a cause is computed for each of its parts: which values a violation may
// rest on by their presence or size alone.

// cause is what it rests on that a condition is false, and that it is true. Of
// any other expression, both are what its value rests on.
type cause struct{ whenFalse, whenTrue outcome }

// outcome is what one result of a condition rests on.
type outcome struct {
	// impossible is true if a condition never has this result.
	impossible bool
	// presences are the values whose presence or size may be all that it rests
	// on.
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

// mostNoted is how many presences and how many read values an outcome has. It is
// far above what real expressions have; beyond it, presences count as such
// whatever else is read, and what is read is not noted.
const mostNoted = 64

// tracer gathers the cause of the expression that is being read.
type tracer struct{ cause }

// because notes a cause.
func (t *tracer) because(why cause) { t.cause = why.follows(t.cause) }

func (t *tracer) isRead(r *Reads) {
	if t != nil {
		t.whenFalse.isRead(r)
		t.whenTrue.isRead(r)
	}
}

func (o *outcome) isRead(values ...*Reads) {
	for _, r := range values {
		if len(o.read) < mostNoted && !slices.Contains(o.read, r) {
			o.read = append(o.read, r)
		}
	}
}

func (o *outcome) rests(on ...presence) {
	for _, p := range on {
		switch {
		case slices.Contains(o.presences, p):
		case len(o.presences) < mostNoted:
			o.presences = append(o.presences, p)
		default:
			p.count()
		}
	}
}

// count makes the content of the value count in comparisons.
func (p presence) count() {
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

// sizedBy returns the elements that the size of a list, map or string depends on,
// once it is gone through.
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

// resting returns the cause of a value that may rest on the presence or size of others
// alone.
func resting(on []presence) cause {
	var o outcome
	o.rests(on...)
	return cause{o, o}
}

// presentIf notes a condition that is true, or false, if the values are there.
func (t *tracer) presentIf(is bool, values []presence) {
	present, absent := &t.whenTrue, &t.whenFalse
	if !is {
		present, absent = absent, present
	}
	present.rests(values...)
	for _, v := range values {
		absent.isRead(v.Reads)
	}
}

// follows returns the cause of an expression that evaluates both.
func (c cause) follows(first cause) cause {
	return cause{first.whenFalse.with(c.whenFalse), first.whenTrue.with(c.whenTrue)}
}

func (c cause) negated() cause { return cause{c.whenTrue, c.whenFalse} }

// ofAny returns the cause of an expression that may depend on both results.
func (c cause) ofAny() cause {
	either := c.whenFalse.or(c.whenTrue)
	return cause{either, either}
}

// with returns what it rests on that both come about, where neither says anything
// about the other.
func (o outcome) with(other outcome) outcome {
	out := outcome{impossible: o.impossible || other.impossible}
	out.rests(o.presences...)
	out.rests(other.presences...)
	out.isRead(o.read...)
	out.isRead(other.read...)
	return out
}

// and returns what it rests on that two conditions have their results: a value that
// one of them reads is not there by its presence alone.
func (o outcome) and(other outcome) outcome {
	return o.unless(other.read).with(other.unless(o.read))
}

// unless returns the outcome without the presences of values that are read elsewhere.
func (o outcome) unless(read []*Reads) outcome {
	o.presences = withoutThose(o.presences, read)
	return o
}

func withoutThose(presences []presence, read []*Reads) []presence {
	return slices.DeleteFunc(slices.Clone(presences), func(p presence) bool {
		return !p.isMissing && slices.Contains(read, p.Reads)
	})
}

// or returns what it rests on that one of two conditions has its result.
func (o outcome) or(other outcome) outcome {
	switch {
	case o.impossible:
		return other
	case other.impossible:
		return o
	}
	out := outcome{}
	out.rests(o.presences...)
	out.rests(other.presences...)
	for _, r := range o.read {
		if slices.Contains(other.read, r) {
			out.isRead(r)
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
		out.whenTrue = some.unless(c.whenTrue.read)
		out.whenTrue.rests(c.whenTrue.presences...)
		out.whenTrue.read = list.whenTrue.read // there may be no elements
	}
	return out
}
