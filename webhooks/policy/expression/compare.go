package expression

import (
	"bytes"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// MostCompared is the most that all comparisons of a request may spend, in bytes that
// are read, each as often as it is read: some tens of milliseconds. Without it, elements of
// lists in lists would be compared each with each.
const MostCompared = 1 << 25

// SameWithin reports whether the expression, as the condition of a rule, cannot have
// become worse from an older version of the object to this one: what was true in it
// then, and had to be for the rule to hold, is true now. For that, everything that it
// reads must be in both and equal, with these exceptions: elements of lists may be in
// another order where the order does not matter, and elements of lists and members of
// maps may be gone where that can only help, as from
// object.spec.containers.all(c, c.image.startsWith("r/")). If nothing that it reads is
// gone, its value is the same.
//
// The budget is shared by many comparisons, and reduced by what this one spends. Once
// nothing is left, all values differ. Neither object has a name twice: such an object has
// no value.
func (r *Reads) SameWithin(object, old rawjson.Value, budget *int) bool {
	c := &comparison{left: budget}
	return c.sameReads(r, object, old)
}

// comparison is one call of SameWithin.
type comparison struct{ left *int }

// charge charges the budget for values that are read, and is false if it is spent.
func (c *comparison) charge(values ...rawjson.Value) bool {
	for _, v := range values {
		*c.left -= stepCost + len(v)
	}
	return *c.left >= 0
}

// stepCost is the cost of the cheapest step.
const stepCost = 16

// sameBytes reports whether two values are the same bytes.
func (c *comparison) sameBytes(a, b rawjson.Value) bool {
	const faster = 8 // than to read them
	*c.left -= stepCost
	if len(a) != len(b) {
		return false
	}
	*c.left -= len(a) / faster
	return bytes.Equal(a, b)
}

// sameReads is SameWithin for a part of both.
func (c *comparison) sameReads(r *Reads, object, old rawjson.Value) bool {
	switch {
	case r == nil:
		return true
	case *c.left < 0:
		return false
	case c.sameBytes(object, old):
		return *c.left >= 0
	case r.whole:
		return c.equal(object, old)
	case r.presence && (len(object) == 0) != (len(old) == 0),
		r.null && (object.Kind() == rawjson.Null) != (old.Kind() == rawjson.Null),
		!r.sameKind(object, old),
		r.content && !c.sameContent(object, old):
		return false
	}
	for _, text := range r.contained {
		if !c.charge(object, old) {
			return false
		}
		has := contains(object, text)
		if has != contains(old, text) || !has && object.Kind() == rawjson.Array && slices.Contains(r.required, text) && !c.sameContent(object, old) {
			return false
		}
	}
	for _, name := range r.names {
		if !c.charge(object, old) || !c.sameReads(r.members[name], object.Get(name), old.Get(name)) {
			return false
		}
	}
	return r.each == nil || c.sameEach(r, object, old)
}

// sameContent reports whether two values are equal, lists in any order.
func (c *comparison) sameContent(object, old rawjson.Value) bool {
	return (len(object) == 0) == (len(old) == 0) && c.sameEach(&Reads{kept: true, each: &Reads{whole: true}}, object, old)
}

// sameKind reports whether the kinds are the same, as far as they matter.
func (r *Reads) sameKind(object, old rawjson.Value) bool {
	if !r.exact && !r.orObject && !r.orArray {
		return true
	}
	kind, before := object.Kind(), old.Kind()
	if kind == before {
		// Integers and others have different types.
		return kind != rawjson.Number
	}
	if kind == rawjson.Invalid {
		kind, before = before, kind
	}
	if before != rawjson.Invalid || r.exact || r.orObject == r.orArray {
		return false
	}
	return r.orObject && kind == rawjson.Object || r.orArray && kind == rawjson.Array
}

// contains reports whether the text is the name of a member, or an element.
func contains(v rawjson.Value, text string) bool {
	if v.Kind() == rawjson.Object {
		return len(v.Get(text)) > 0
	}
	for _, element := range v.Elements() {
		if element.Is(text) {
			return true
		}
	}
	return false
}

// sameEach reports whether each element has one of its own among the old ones in
// which the same is seen, and whether none is gone or out of order if that
// matters. The kinds are the same, or what is absent has no elements.
func (c *comparison) sameEach(r *Reads, object, old rawjson.Value) bool {
	if !c.charge(object, old) {
		return false
	}
	switch object.Kind() {
	case rawjson.Invalid:
		kept := r.kept || r.inOrder || r.indexed && old.Kind() == rawjson.Array
		return !kept || old.Len() == 0
	case rawjson.Object:
		return c.sameMembers(object, old, r.kept, r.inOrder, func(member, was rawjson.Value) bool { return c.sameReads(r.each, member, was) })
	case rawjson.Array:
		return c.sameElements(r, object, old)
	case rawjson.Null, rawjson.Bool, rawjson.Number, rawjson.String:
		return c.equal(object, old)
	default:
		return false
	}
}

// equal reports whether two values are equal: space, escapes and the order of members
// do not matter.
func (c *comparison) equal(a, b rawjson.Value) bool {
	if *c.left < 0 {
		return false
	}
	if c.sameBytes(a, b) {
		return true
	}
	kind := a.Kind()
	if kind != b.Kind() || !c.charge(a, b) {
		return false
	}
	switch kind {
	case rawjson.Object:
		return c.sameMembers(a, b, true, false, c.equal)
	case rawjson.Array:
		return c.equalElements(a, b)
	case rawjson.String:
		return a.Text() == b.Text()
	case rawjson.Invalid, rawjson.Null, rawjson.Bool, rawjson.Number:
		return false // they are the same only if they are written alike
	default:
		return false
	}
}
