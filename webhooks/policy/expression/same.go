package expression

import (
	"bytes"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// SameIn tells whether the expression can see no more in the object than it
// could see in an older version of it: everything that it looks at is in both
// and equal, but that elements of lists and members of maps that it goes through
// may be gone, and may stand in another order. Values that take too long to
// compare are taken to differ. Neither has a name twice: such an object has no
// value.
func (r *Reads) SameIn(object, old rawjson.Value) bool {
	c := &comparison{left: mostCompared}
	return c.seen(r, object, old)
}

// mostCompared is how many bytes are gone through to compare two objects, each as
// often as it is: some tens of milliseconds, and twenty times two objects of the
// size that the API server takes. Without it, elements of lists in lists would be
// compared each with each.
const mostCompared = 1 << 26

// comparison is one call of SameIn.
type comparison struct{ left int }

// charge counts values that are gone through, and is false if there were too
// many.
func (c *comparison) charge(values ...rawjson.Value) bool {
	const least = 16
	for _, v := range values {
		c.left -= least + len(v)
	}
	return c.left >= 0
}

// seen is SameIn for a part of both.
func (c *comparison) seen(r *Reads, object, old rawjson.Value) bool {
	switch {
	case r == nil:
		return true
	case !c.charge(object, old):
		return false
	case bytes.Equal(object, old):
		return true
	case r.whole:
		return c.equal(object, old)
	case r.presence && (len(object) == 0) != (len(old) == 0),
		r.null && (object.Kind() == rawjson.Null) != (old.Kind() == rawjson.Null),
		!r.sameKind(object, old):
		return false
	}
	for _, text := range r.contained {
		if !c.charge(object, old) || contains(object, text) != contains(old, text) {
			return false
		}
	}
	for name, member := range r.members {
		if !c.charge(object, old) || !c.seen(member, object.Get(name), old.Get(name)) {
			return false
		}
	}
	return r.each == nil || c.sameEach(r.each, object, old)
}

// sameKind tells whether the kinds are the same, as far as they matter.
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

// contains tells whether the text is the name of a member, or an element.
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

// sameEach tells whether each element has one of its own among the old ones in
// which the same is seen. The kinds are the same, or what is absent has no
// elements.
func (c *comparison) sameEach(r *Reads, object, old rawjson.Value) bool {
	switch object.Kind() {
	case rawjson.Invalid:
		return true
	case rawjson.Object:
		before := membersOf(old)
		for name, member := range object.Members() {
			was := before.get(name)
			if len(was) == 0 || !c.seen(r, member, was) {
				return false
			}
		}
		return true
	case rawjson.Array:
		before := elementsOf(old)
		// Mostly they stand in the same order.
		next := 0
		for _, element := range object.Elements() {
			found := false
			for n := range before {
				i := (next + n) % len(before)
				if before[i] == nil {
					if !c.charge(nil) {
						return false
					}
					continue
				}
				if found = c.seen(r, element, before[i]); found {
					before[i], next = nil, i+1
					break
				}
			}
			if !found {
				return false
			}
		}
		return true
	case rawjson.Null, rawjson.Bool, rawjson.Number, rawjson.String:
		return c.equal(object, old)
	default:
		return false
	}
}

// equal tells whether two values are written alike, but for space, escapes and
// the order of members.
func (c *comparison) equal(a, b rawjson.Value) bool {
	if !c.charge(a, b) {
		return false
	}
	if bytes.Equal(a, b) {
		return true
	}
	kind := a.Kind()
	if kind != b.Kind() {
		return false
	}
	switch kind {
	case rawjson.Object:
		others, n := membersOf(b), 0
		for name, member := range a.Members() {
			n++
			if other := others.get(name); len(other) == 0 || !c.equal(member, other) {
				return false
			}
		}
		return n == len(others.names)
	case rawjson.Array:
		others, n := elementsOf(b), 0
		for i, element := range a.Elements() {
			n++
			if i >= len(others) || !c.equal(element, others[i]) {
				return false
			}
		}
		return n == len(others)
	case rawjson.String:
		return a.Text() == b.Text()
	case rawjson.Invalid, rawjson.Null, rawjson.Bool, rawjson.Number:
		return false // they are the same only if they are written alike
	default:
		return false
	}
}

func elementsOf(v rawjson.Value) []rawjson.Value {
	var out []rawjson.Value
	for _, element := range v.Elements() {
		out = append(out, element)
	}
	return out
}

// members are those of an object, to be asked for in about the order in which
// they stand.
type members struct {
	names, values []rawjson.Value
	next          int
	// index is nil until one is asked for out of order.
	index map[string]int
}

func membersOf(v rawjson.Value) *members {
	m := new(members)
	for name, value := range v.Members() {
		m.names, m.values = append(m.names, name), append(m.values, value)
	}
	return m
}

// get is the member of that name, and absent if there is none.
func (m *members) get(name rawjson.Value) rawjson.Value {
	if m.next < len(m.names) && bytes.Equal(m.names[m.next], name) {
		m.next++
		return m.values[m.next-1]
	}
	if m.index == nil {
		m.index = make(map[string]int, len(m.names))
		for i, name := range m.names {
			m.index[name.Text()] = i
		}
	}
	i, ok := m.index[name.Text()]
	if !ok {
		return nil
	}
	m.next = i + 1
	return m.values[i]
}
