package json

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Cursor reads a Value from front to back and never goes back: a reader who is
// after members at several depths pays for one pass over the text, where
// Members and Elements pay for one at each depth.
//
//	for c.Enter(); c.Next(); {
//		if c.Name().Is("spec") {
//			… // Enter, or Skip
//		} else {
//			c.Skip()
//		}
//	}
//
// A Cursor is not safe for concurrent use.
type Cursor struct {
	text Value
	at   int
	// index has the values of the text, which starts at base there, and node is the number of the value that comes next.
	// It is nil for a text that is not indexed.
	index *Index
	base  int
	node  int32
}

// Cursor returns a Cursor in front of the value, which must not be empty.
func (v Value) Cursor() Cursor { return Cursor{text: v} }

// Cursor returns a Cursor in front of the value with that number. It goes to the end of names and values without reading them.
func (x *Index) Cursor(node int32) Cursor {
	at := x.Nodes[node].Span
	return Cursor{text: x.Part(at), index: x, base: int(at.Start), node: node}
}

// IsUnique reports whether it is known that no object has a member twice.
func (c *Cursor) IsUnique() bool { return c.index != nil }

// Kind returns the kind of the value that comes next.
func (c *Cursor) Kind() Kind { return c.text[c.at:].Kind() }

// Enter goes into the object or array that comes next.
func (c *Cursor) Enter() {
	c.at = skipSpace(c.text, c.at+1)
	c.node++
}

// Next reports whether another member or element follows in the object or array
// that was entered last and not left. If none does, it leaves it.
func (c *Cursor) Next() bool {
	c.at = skipSpace(c.text, c.at)
	switch c.text[c.at] {
	case ',':
		c.at = skipSpace(c.text, c.at+1)
		return true
	case '}', ']':
		c.at++
		return false
	default: // the first
		return true
	}
}

// Name reads the name of the member that comes next, as written: a String.
func (c *Cursor) Name() Value {
	if c.index != nil {
		n := &c.index.Nodes[c.node]
		name := c.text[c.at : int(n.Name.End)-c.base : int(n.Name.End)-c.base]
		c.at = int(n.Start) - c.base
		return name
	}
	return c.named(skipText(c.text, c.at))
}

// PlainName returns Name in the form that AppendString writes, whatever escapes stand
// in the text: names are the same if, and only if, their bytes are.
func (c *Cursor) PlainName() Value {
	if c.index != nil {
		name := c.Name()
		if bytes.IndexByte(name, '\\') >= 0 {
			return AppendString(nil, name.Text())
		}
		return name
	}
	end, escaped := textEnd(c.text, c.at)
	name := c.named(end)
	if escaped {
		return AppendString(nil, name.Text())
	}
	return name
}

// named goes from a name, which ends there, to its value.
func (c *Cursor) named(end int) Value {
	name := c.text[c.at:end:end]
	c.at = skipSpace(c.text, skipSpace(c.text, end)+1)
	return name
}

// textEnd returns where the String that starts with the quote at i ends, in a text that has been checked, and
// whether there are escapes in it.
func textEnd(data []byte, i int) (end int, escaped bool) {
	start := i
	i++
	for ; i+8 <= len(data); i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		if hit := (((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones)) &^ w & highs; hit != 0 { // as in special
			i += bits.TrailingZeros64(hit) >> 3
			break
		}
	}
	for data[i] != '"' && data[i] != '\\' {
		i++
	}
	if data[i] == '"' {
		return i + 1, false
	}
	return skipText(data, start), true
}

// Skip passes by the value that comes next, and returns it.
func (c *Cursor) Skip() Value {
	start := c.at
	if c.index != nil {
		n := &c.index.Nodes[c.node]
		c.at, c.node = int(n.End)-c.base, n.Next
	} else {
		c.at = skipValue(c.text, c.at)
	}
	return c.text[start:c.at:c.at]
}

// At returns where the Cursor stands: the number of bytes that it has read.
func (c *Cursor) At() int { return c.at }

// Since returns the text from an earlier place to where the Cursor stands: taken
// before an object is entered and after it is left, that object.
func (c *Cursor) Since(at int) Value { return c.text[at:c.at:c.at] }

// Find returns the number of a value that is a member of the object at a path of names, and false for any other value, and for an
// Index that is nil or was not filled.
func (x *Index) Find(v Value, path ...string) (node int32, ok bool) {
	node, ok = x.Root()
	for i := 0; ok && i < len(path); i++ {
		node, ok = x.Member(node, path[i])
	}
	if !ok || len(v) == 0 || x.Text[x.Nodes[node].Start] != '{' {
		return 0, false
	}
	size := x.Nodes[node].Size
	node++
	for range size {
		if &x.Text[x.Nodes[node].Start] == &v[0] {
			return node, true
		}
		node = x.Nodes[node].Next
	}
	return 0, false
}
