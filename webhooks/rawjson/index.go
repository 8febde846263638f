package rawjson

import (
	"bytes"
	"errors"
	"math"
	"slices"
)

// Index has the values of a text, so that a reader goes to a member or element without scanning the
// text again. Its memory is used again for the next text. It is not safe for concurrent use.
type Index struct {
	// Text is what was read. It must not change as long as the Index is used.
	Text Value
	// Nodes are the values of the text in the order in which they start.
	Nodes []Node

	// most is how many nodes there may be, and deepest how many arrays and objects may be in one another.
	most, deepest int
	// err is the first error of Decode, and full is true for a text with too many values, or nested too deeply. Then
	// nothing is noted any more.
	err  error
	full bool
	// open are the arrays and objects whose end has not been seen, the innermost last.
	open []opened
	// name is that of the member whose value comes next.
	name  Span
	names nameSet
}

// Node is where a value of a text is. What an array or object holds follows it.
type Node struct {
	// Name is that of a member, as it is written.
	Name Span
	Span
	// Size is how many elements or members it has, and Next the number of the node behind all that
	// is in it: of the next element or member beside it, if there is one.
	Size, Next int32
	// Escaped is true for an object if one of its names has an escape.
	Escaped bool
}

// Span is a part of a text.
type Span struct{ Start, End int32 }

// Part returns a part of the text.
func (x *Index) Part(s Span) Value { return x.Text[s.Start:s.End:s.End] }

// Root returns the number of the whole text's node, and false for an Index that was not filled.
func (x *Index) Root() (node int32, ok bool) { return 0, x != nil && len(x.Nodes) > 0 }

// Member returns the number of the member with the name of the object with that number, and false if it has none, or is no object. The
// name has no escape in the text.
func (x *Index) Member(object int32, name string) (node int32, ok bool) {
	if x.Text[x.Nodes[object].Start] != '{' {
		return 0, false
	}
	node = object + 1
	for range x.Nodes[object].Size {
		if at := x.Nodes[node].Name; string(x.Text[at.Start+1:at.End-1]) == name {
			return node, true
		}
		node = x.Nodes[node].Next
	}
	return 0, false
}

// Read reads a text as Parse does, and finds what Decode finds: if any object inside has a
// member twice, or any number is out of range, that is an error. Of several errors it is the one that
// ends first.
func (x *Index) Read(text []byte) error {
	if len(text) > math.MaxInt32 {
		return errTooLong
	}
	c := checker{data: text, index: x}
	x.reset(text, math.MaxInt, MaxDepth)
	if _, err := c.whole(); err != nil {
		return err
	}
	return x.err
}

var errTooLong = errors.New("the text is too long")

const (
	// usualValue is how many bytes of text there are for each value, in Kubernetes objects with many of them, and
	// leastValue how many there must be for a text to be indexed by Outline.
	usualValue, leastValue = 18, 12
	// mostOutlined is how many values a text may have to be indexed by Outline, and deepestOutlined how deep it may be nested.
	mostOutlined, deepestOutlined = 8192, 64
	// nodeBytes is the memory for a node: its own, and that of finding its name twice.
	nodeBytes = 28 + 20
)

// OutlineBytes returns how much memory Outline may take for the Index of a text with so many bytes.
func OutlineBytes(text int) int64 { return nodeBytes * int64(mostNodes(text)) }

// mostNodes returns how many values a text with so many bytes may have to be indexed by Outline.
func mostNodes(text int) int { return min(text/leastValue+64, mostOutlined) }

func (x *Index) reset(text []byte, most, deepest int) {
	x.Text, x.most, x.deepest, x.err, x.full = text, most, deepest, nil, false
	x.Nodes, x.open, x.name = slices.Grow(x.Nodes[:0], min(4+len(text)/usualValue, most, mostOutlined)), x.open[:0], Span{}
}

// Forget forgets the text. It keeps memory for the next one, as far as that is little.
func (x *Index) Forget() {
	x.Text, x.Nodes, x.err = nil, x.Nodes[:0], nil
	if cap(x.Nodes) > mostOutlined || cap(x.open) > deepestOutlined || cap(x.names.names) > mostOutlined {
		*x = Index{}
	}
}

// opened is an array or object whose end has not been seen.
type opened struct {
	node int32
	// size is how many elements or members were seen.
	size int32
	// seen has a bit for each name, which other names may share.
	seen uint64
	// escaped and ambiguous report whether one of its names is, and suspect whether two of them may be the same.
	escaped, ambiguous, suspect bool
}

// begin notes that a value starts at i.
func (x *Index) begin(i int) {
	n := len(x.Nodes)
	if n == cap(x.Nodes) {
		if n >= x.most {
			x.full = true
			return
		}
		x.Nodes = slices.Grow(x.Nodes, 1)
	}
	if last := len(x.open) - 1; last >= 0 {
		x.open[last].size++
	}
	x.Nodes = x.Nodes[:n+1]
	node := &x.Nodes[n]
	node.Name, node.Start, node.End = x.name, int32(i), 0     //nolint:gosec // within the text
	node.Size, node.Next, node.Escaped = 0, int32(n)+1, false //nolint:gosec // fewer than bytes
	x.name.End = 0
}

// end notes that the value that began last ends before i, and is no array or object with anything in it.
func (x *Index) end(i int) { x.Nodes[len(x.Nodes)-1].End = int32(i) } //nolint:gosec // within the text

// enter notes that the value that began last has elements, or members.
func (x *Index) enter() {
	n := len(x.open)
	if n == x.deepest {
		x.full = true
		return
	}
	if n == cap(x.open) {
		x.open = slices.Grow(x.open, 16)
	}
	x.open = x.open[:n+1]
	o := &x.open[n]
	o.node, o.size, o.seen = int32(len(x.Nodes))-1, 0, 0 //nolint:gosec // fewer than bytes
	o.escaped, o.ambiguous, o.suspect = false, false, false
}

// leave notes that the array or object that was entered last ends before i.
func (x *Index) leave(i int) {
	o := &x.open[len(x.open)-1]
	if o.suspect && x.err == nil {
		if name, found := x.names.duplicate(x, int(o.node)+1, o.size, o.ambiguous); found {
			x.err = &DuplicateKeyError{Key: name}
		}
	}
	n := &x.Nodes[o.node]
	n.End, n.Size, n.Next, n.Escaped = int32(i), o.size, int32(len(x.Nodes)), o.escaped //nolint:gosec // within the text
	x.open = x.open[:len(x.open)-1]
}

// member notes the name of the member that comes next.
func (x *Index) member(start, end int, escaped bool) {
	x.name.Start, x.name.End = int32(start), int32(end) //nolint:gosec // within the text
	name, o := x.Text[start:end], &x.open[len(x.open)-1]
	if escaped {
		o.escaped = true
		o.ambiguous = o.ambiguous || isAmbiguous(name)
	}
	bit := uint64(1) << ((len(name) + 5*int(name[1]) + 11*int(name[len(name)-2])) & 63)
	o.suspect = o.suspect || o.ambiguous || o.seen&bit != 0
	o.seen |= bit
}

// number notes an error, as of Decode, if a number is out of range.
func (x *Index) number(text Value) {
	const certain = 308 // digits that fit into any float64
	if x.err != nil || len(text) <= certain && bytes.IndexByte(text, 'e') < 0 && bytes.IndexByte(text, 'E') < 0 {
		return
	}
	_, x.err = text.Decode()
}
