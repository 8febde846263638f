package expression

import (
	"bytes"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// MostCompared is the most that all comparisons of a request may spend, in bytes that
// are read, each as often as it is read: some tens of milliseconds. Without it, elements of
// lists in lists would be compared each with each.
const MostCompared = 1 << 25

// SameWithin reports whether the expression, as the condition of a rule, cannot have
// become worse from an older version of the object to this one: everything that it reads
// is equal in both, or a list has lost elements of which each had to satisfy it, as in
// object.spec.containers.all(c, c.image.startsWith("r/")).
//
// The budget is shared by many comparisons, and reduced by what this one spends. Once
// nothing is left, all values differ. Neither object has a name twice: such an object has
// no value.
func (r *Reads) SameWithin(object, old rawjson.Value, budget *int) bool {
	c := &comparison{left: budget}
	return c.same(r, object, old)
}

// comparison is one call of SameWithin.
type comparison struct{ left *int }

// charge charges the budget for values that are read, and is false if it is spent.
func (c *comparison) charge(a, b rawjson.Value) bool {
	const step = 32 // the cost of reading nothing
	*c.left -= step + len(a) + len(b)
	return *c.left >= 0
}

// same is SameWithin for a part of both.
func (c *comparison) same(r *Reads, object, old rawjson.Value) bool {
	switch {
	case r == nil:
		return true
	case bytes.Equal(object, old):
		*c.left -= len(object) / 8 // which is faster than to read it
		return *c.left >= 0
	case !r.whole && r.each == nil && r.areBoth(rawjson.Object, object, old):
		for _, name := range r.names {
			if !c.charge(object, old) || !c.same(r.members[name], object.Get(name), old.Get(name)) {
				return false
			}
		}
		return true
	case !r.whole && len(r.members) == 0 && r.areBoth(rawjson.Array, object, old):
		return c.sameElements(r, object, old)
	default:
		return c.equal(object, old)
	}
}

// areBoth reports whether both values are of a kind, or count as an empty one.
func (r *Reads) areBoth(kind rawjson.Kind, a, b rawjson.Value) bool {
	is := func(v rawjson.Value) bool { return v.Kind() == kind || len(v) == 0 && !r.strict }
	return is(a) && is(b)
}

// sameElements reports whether the elements of a list are the same as those of the older
// one, in that order, but for some that are gone, if none need be kept.
func (c *comparison) sameElements(r *Reads, object, old rawjson.Value) bool {
	if !c.charge(object, old) || len(old) == 0 || len(object) == 0 {
		return *c.left >= 0 && object.Len() == 0 && (!r.kept || old.Len() == 0)
	}
	elements, before := object.Cursor(), old.Cursor()
	elements.Enter()
	for before.Enter(); elements.Next(); {
		element, found := elements.Skip(), false
		for !found {
			if !before.Next() {
				return false
			}
			if found = c.same(r.each, element, before.Skip()); !found && (r.kept || *c.left < 0) {
				return false
			}
		}
	}
	return !r.kept || !before.Next()
}

// equal reports whether two values are equal: space, escapes and the order of members
// do not matter. Numbers are equal only if they are written alike.
func (c *comparison) equal(a, b rawjson.Value) bool {
	kind := a.Kind()
	switch {
	case !c.charge(a, b) || kind != b.Kind():
		return false
	case bytes.Equal(a, b):
		return true
	case kind == rawjson.String:
		return a.Text() == b.Text()
	case kind != rawjson.Object && kind != rawjson.Array:
		return false
	}
	values, others := a.Cursor(), b.Cursor()
	values.Enter()
	for others.Enter(); values.Next(); {
		if !others.Next() {
			return false
		}
		same := true
		name := ""
		if kind == rawjson.Object {
			written := values.PlainName()
			if same = bytes.Equal(written, others.PlainName()); !same {
				name = written.Text()
			}
		}
		value, other := values.Skip(), others.Skip()
		if !same {
			if !c.charge(b, nil) {
				return false
			}
			other = b.Get(name)
		}
		if !c.equal(value, other) {
			return false
		}
	}
	return !others.Next()
}
