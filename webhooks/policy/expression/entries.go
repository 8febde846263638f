package expression

import (
	"bytes"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// entry is a member of an object, or an element of a list, which has no name.
type entry struct{ name, value rawjson.Value }

// entryCost is what it costs to keep an entry, about its bytes and those of a map of it. It
// bounds what is kept in a request to some megabytes.
const entryCost = 104

// entries returns the entries of two lists or objects, and false if there are too many.
func (c *comparison) entries(a, b rawjson.Value) (ofA, ofB []entry, ok bool) {
	n, m := a.Len(), b.Len()
	if (n+m)*entryCost > *c.left {
		return nil, nil, false
	}
	*c.left -= (n + m) * entryCost
	return appendEntries(make([]entry, 0, n), a), appendEntries(make([]entry, 0, m), b), true
}

func appendEntries(to []entry, v rawjson.Value) []entry {
	for name, value := range v.Members() {
		to = append(to, entry{name, value})
	}
	for _, value := range v.Elements() {
		to = append(to, entry{value: value})
	}
	return to
}

// sameElements is sameEach for lists.
func (c *comparison) sameElements(r *Reads, object, old rawjson.Value) bool {
	if old.Kind() != rawjson.Array {
		return object.Len() == 0
	}
	inOrder := r.inOrder || r.indexed
	elements, before, ok := c.entries(object, old)
	if !ok || len(elements) > len(before) || (r.kept || inOrder) && len(elements) < len(before) {
		return false
	}
	// Most are in the same order.
	for len(elements) > 0 && c.sameReads(r.each, elements[0].value, before[0].value) {
		elements, before = elements[1:], before[1:]
	}
	if inOrder {
		return len(elements) == 0
	}
	next := 0
	for _, element := range elements {
		found := false
		for n := 0; n < len(before) && !found && *c.left >= 0; n++ {
			i := (next + n) % len(before)
			if before[i].value == nil {
				*c.left -= stepCost // it is that of another element
			} else if found = c.sameReads(r.each, element.value, before[i].value); found {
				before[i].value, next = nil, i+1
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// sameMembers reports whether each member has one of the same name among the old
// ones that is the same to it, and whether none is gone or out of order if that
// matters.
func (c *comparison) sameMembers(object, old rawjson.Value, kept, inOrder bool, same func(member, was rawjson.Value) bool) bool {
	if old.Kind() != rawjson.Object {
		return object.Len() == 0
	}
	members, before, ok := c.entries(object, old)
	if !ok || len(members) > len(before) || (kept || inOrder) && len(members) < len(before) {
		return false
	}
	for len(members) > 0 && sameName(members[0].name, before[0].name) {
		if !same(members[0].value, before[0].value) {
			return false
		}
		members, before = members[1:], before[1:]
	}
	if len(members) == 0 || inOrder {
		return len(members) == 0
	}
	byName := make(map[string]rawjson.Value, len(before))
	for _, e := range before {
		byName[e.name.Text()] = e.value
	}
	for _, e := range members {
		was, found := byName[e.name.Text()]
		if !found || *c.left < 0 || !same(e.value, was) {
			return false
		}
	}
	return true
}

// sameName reports whether two names are equal, written with escapes or without.
func sameName(a, b rawjson.Value) bool {
	return bytes.Equal(a, b) || (bytes.IndexByte(a, '\\') >= 0 || bytes.IndexByte(b, '\\') >= 0) && a.Text() == b.Text()
}

// equalElements is equal for lists.
func (c *comparison) equalElements(a, b rawjson.Value) bool {
	elements, others := a.Cursor(), b.Cursor()
	elements.Enter()
	others.Enter()
	for elements.Next() {
		element := elements.Skip()
		if !others.Next() || !c.equal(element, others.Skip()) {
			return false
		}
	}
	return !others.Next()
}
