package expression

import (
	"bytes"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Lists and maps are gone through side by side for as long as they stand in the
// same order, which is mostly to the end. Only what is left of the older one then
// is remembered.

// entry is where in a text an element stands, or a member and its name. The
// end of one that was found is 0.
type entry struct{ name, nameEnd, at, end int }

func (e entry) nameIn(text rawjson.Value) rawjson.Value  { return text[e.name:e.nameEnd:e.nameEnd] }
func (e entry) valueIn(text rawjson.Value) rawjson.Value { return text[e.at:e.end:e.end] }

// entryCost is what it costs to remember an entry. It keeps what is remembered
// in a request to a few megabytes.
const entryCost = 64

// read reads an element, or a member and its name.
func read(from *rawjson.Cursor, named bool) (name, value rawjson.Value, at entry) {
	if named {
		at.name = from.At()
		name = from.Name()
		at.nameEnd = at.name + len(name)
	}
	at.at = from.At()
	value = from.Skip()
	at.end = from.At()
	return name, value, at
}

// remember adds an entry and all that follow it, and is false if they are too
// many. They are from the given place on, and must be forgotten.
func (c *comparison) remember(first entry, following *rawjson.Cursor, named bool) (from int, ok bool) {
	from = len(c.entries)
	count := 1
	for ahead := *following; ahead.Next(); count++ {
		read(&ahead, named)
	}
	if count*entryCost > *c.left {
		return from, false
	}
	*c.left -= count * entryCost
	c.entries = append(slices.Grow(c.entries, count), first)
	for following.Next() {
		_, _, e := read(following, named)
		c.entries = append(c.entries, e)
	}
	return from, true
}

func (c *comparison) forget(from int) { c.entries = c.entries[:from] }

// sameElements is sameEach for lists.
func (c *comparison) sameElements(r *Reads, object, old rawjson.Value) bool {
	if old.Kind() != rawjson.Array {
		return object.Len() == 0
	}
	inOrder := r.inOrder || r.indexed
	elements, before := object.Cursor(), old.Cursor()
	elements.Enter()
	before.Enter()
	for elements.Next() {
		element := elements.Skip()
		if !before.Next() {
			return false
		}
		_, was, at := read(&before, false)
		switch {
		case c.seen(r.each, element, was):
		case inOrder || *c.left < 0:
			return false
		default:
			return c.findElements(r, element, &elements, old, at, &before)
		}
	}
	return !r.kept && !inOrder || !before.Next()
}

// findElements reports whether an element and those that follow it each have one of
// their own among an old one and those that follow that.
func (c *comparison) findElements(r *Reads, element rawjson.Value, elements *rawjson.Cursor, old rawjson.Value, at entry, before *rawjson.Cursor) bool {
	from, ok := c.remember(at, before, false)
	defer c.forget(from)
	if !ok {
		return false
	}
	count := len(c.entries) - from
	left, next := count, 0
	for {
		found := false
		for n := 0; n < count && !found && *c.left >= 0; n++ {
			i := (next + n) % count
			e := &c.entries[from+i]
			if e.end == 0 {
				*c.left -= least
				continue
			}
			if found = c.seen(r.each, element, e.valueIn(old)); found {
				c.entries[from+i].end, next = 0, i+1
				left--
			}
		}
		if !found {
			return false
		}
		if !elements.Next() {
			return left == 0 || !r.kept
		}
		element = elements.Skip()
	}
}

// sameMembers reports whether each member has one of the same name among the old
// ones that is the same to it, and whether none is gone or out of order if that
// matters.
func (c *comparison) sameMembers(object, old rawjson.Value, kept, inOrder bool, same func(member, was rawjson.Value) bool) bool {
	if old.Kind() != rawjson.Object {
		return object.Len() == 0
	}
	members, before := object.Cursor(), old.Cursor()
	members.Enter()
	before.Enter()
	for members.Next() {
		name, member, _ := read(&members, true)
		if !before.Next() {
			return false
		}
		other, was, at := read(&before, true)
		switch {
		case bytes.Equal(name, other) || c.compareNames(name, other) == 0:
			if !same(member, was) {
				return false
			}
		case inOrder:
			return false
		default:
			return c.findMembers(name, member, &members, old, at, &before, kept, same)
		}
	}
	return !kept && !inOrder || !before.Next()
}

// findMembers reports whether a member and those that follow it each are the same
// to the one of that name among an old one and those that follow that.
func (c *comparison) findMembers(name, member rawjson.Value, members *rawjson.Cursor, old rawjson.Value, at entry, before *rawjson.Cursor, kept bool,
	same func(member, was rawjson.Value) bool,
) bool {
	from, ok := c.remember(at, before, true)
	defer c.forget(from)
	if !ok {
		return false
	}
	end := len(c.entries)
	slices.SortFunc(c.entries[from:], func(a, b entry) int { return c.compareNames(a.nameIn(old), b.nameIn(old)) })
	for left := end - from; ; {
		i, found := slices.BinarySearchFunc(c.entries[from:end], name, func(e entry, name rawjson.Value) int {
			return c.compareNames(e.nameIn(old), name)
		})
		if !found || *c.left < 0 || !same(member, c.entries[from+i].valueIn(old)) {
			return false
		}
		left--
		if !members.Next() {
			return left == 0 || !kept
		}
		name, member, _ = read(members, true)
	}
}

// compareNames compares two names as they are read, which costs more if they are
// written with escapes.
func (c *comparison) compareNames(a, b rawjson.Value) int {
	const slower = 4 // than to go through them
	if escaped := bytes.IndexByte(a, '\\') >= 0 || bytes.IndexByte(b, '\\') >= 0; escaped && *c.left >= 0 {
		*c.left -= slower * (least + len(a) + len(b))
		return strings.Compare(a.Text(), b.Text())
	}
	return bytes.Compare(a[1:len(a)-1], b[1:len(b)-1])
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
