package json

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

	// memory is that of Nodes.
	memory []Node
	// most is how many nodes there may be, and deepest how many arrays and objects may be in one another. outlined is true
	// for an Index of Outline, which takes no more memory than was announced.
	most, deepest int
	outlined      bool
	// err is the first error of Decode, and full is true for a text that Outline does not index.
	err  error
	full bool
	// innermost is the array or object that was entered last and not left, and outer are those around it.
	innermost opened
	outer     []opened
	names     nameSet
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
// member twice, or any number is out of range, that is an error. Of several errors it is any one: a
// member twice in an object with escaped names is found at the end of the object.
func (x *Index) Read(text []byte) error {
	if len(text) > math.MaxInt32 {
		return errTooLong
	}
	c := checker{data: text, index: x}
	x.reset(text, math.MaxInt, MaxDepth, false)
	if _, err := c.whole(); err != nil {
		return err
	}
	return x.err
}

var errTooLong = errors.New("the text is too long")

const (
	// usualValue is how many bytes of text there are for each value, in Kubernetes objects with many of them, and
	// leastValue how many there must be for a text to be indexed by Outline.
	usualValue, leastValue = 18, 6
	// mostOutlined is how many values a text may have to be indexed by Outline, and deepestOutlined how deep it may be nested.
	mostOutlined, deepestOutlined = 32_768, 64
	// mostKept is how many nodes or names are kept for the next text.
	mostKept = 8192
	// mostAmbiguous is how many names an object with ambiguous ones may have to be indexed by Outline, and ambiguousBytes how
	// large it may be. The names are decoded.
	mostAmbiguous, ambiguousBytes = 256, 8 << 10
	// sizes in bytes
	nodeBytes, nameBytes, slotBytes, openedBytes = 28, 8, 4, 32
	// outlinedBytes is the memory for a value: its node, the nodes before the last growth, and finding its name twice.
	outlinedBytes = 2*nodeBytes + nameBytes + 4*slotBytes
)

// OutlineBytes returns how much memory Outline may take for an Index without memory, of a text with so many bytes.
func OutlineBytes(text int) int64 {
	return outlinedBytes*int64(mostNodes(text)) + openedBytes*deepestOutlined
}

// Bytes returns how much memory the Index has, whether it is filled or not.
func (x *Index) Bytes() int64 {
	return int64(nodeBytes*cap(x.memory) + openedBytes*cap(x.outer) + nameBytes*cap(x.names.names) + slotBytes*cap(x.names.slots))
}

// mostNodes returns how many values a text with so many bytes may have to be indexed by Outline.
func mostNodes(text int) int { return min(text/leastValue+64, mostOutlined) }

func (x *Index) reset(text []byte, most, deepest int, outlined bool) {
	x.Text, x.most, x.deepest, x.outlined, x.err, x.full = text, most, deepest, outlined, nil, false
	if usual := min(4+len(text)/usualValue, most); cap(x.memory) < usual {
		x.memory = make([]Node, 0, usual)
	}
	x.Nodes = x.memory[:0:min(cap(x.memory), most)]
	x.innermost, x.outer = opened{}, x.outer[:0]
}

// trim gives up memory for nodes if there is much and few of them are used, as of a large text with long values.
func (x *Index) trim() {
	if cap(x.memory) > mostKept && cap(x.memory) > 4*len(x.Nodes) {
		x.memory = slices.Clone(x.Nodes)
		x.Nodes = x.memory
	}
}

// Forget forgets the text. It keeps memory for the next one, as far as that is little.
func (x *Index) Forget() {
	x.Text, x.Nodes, x.err = nil, nil, nil
	if cap(x.memory) > mostKept || cap(x.outer) > 2*deepestOutlined || cap(x.names.names) > mostKept {
		*x = Index{}
	}
}

// opened is an array or object whose end has not been seen. It is copied by fields: a copy as a whole would wait for fields
// that were written just before.
type opened struct {
	// node is its number, and size how many elements or members were seen.
	node, size int
	// seen has a bit for each name, which other names may share.
	seen uint64
	// suspect reports whether two of its names may be the same, and ambiguous whether one of them isAmbiguous.
	suspect, ambiguous bool
}

// add notes a value, and its name if it is a member. It returns false if there are too many.
func (x *Index) add(name Span, start, end int) bool {
	n := len(x.Nodes)
	if n == cap(x.Nodes) {
		return x.grow() && x.add(name, start, end)
	}
	x.Nodes = x.Nodes[:n+1]
	node := &x.Nodes[n]
	node.Name, node.Start, node.End = name, int32(start), int32(end) //nolint:gosec // within the text
	node.Size, node.Next, node.Escaped = 0, int32(n)+1, false        //nolint:gosec // fewer than bytes
	x.innermost.size++
	return true
}

// grow allocates memory for another value. It returns false if there are too many. It is not inlined: add is faster without it.
//
//go:noinline
func (x *Index) grow() bool {
	if len(x.Nodes) >= x.most {
		x.full = true
		return false
	}
	x.memory = append(make([]Node, 0, min(2*len(x.Nodes), x.most)), x.Nodes...)
	x.Nodes = x.memory
	return true
}

// enter notes an array or object whose elements or members come next. It returns false if there are too many values, or it is
// nested too deeply.
func (x *Index) enter(name Span, start int) bool {
	n, o := len(x.outer), &x.innermost
	if n == x.deepest {
		x.full = true
		return false
	}
	if !x.add(name, start, 0) {
		return false
	}
	if n == cap(x.outer) {
		x.outer = slices.Grow(x.outer, 16)
	}
	x.outer = x.outer[:n+1]
	around := &x.outer[n]
	around.node, around.size, around.seen, around.suspect, around.ambiguous = o.node, o.size, o.seen, o.suspect, o.ambiguous
	o.node, o.size, o.seen, o.suspect, o.ambiguous = len(x.Nodes)-1, 0, 0, false, false
	return true
}

// leave notes that the array or object that was entered last ends before i.
func (x *Index) leave(i int) {
	o, last := &x.innermost, len(x.outer)-1
	n := &x.Nodes[o.node]
	if o.suspect && x.err == nil && !x.full {
		x.findDuplicate(o, i-int(n.Start))
	}
	n.End, n.Size, n.Next = int32(i), int32(o.size), int32(len(x.Nodes)) //nolint:gosec // within the text
	around := &x.outer[last]
	o.node, o.size, o.seen, o.suspect, o.ambiguous = around.node, around.size, around.seen, around.suspect, around.ambiguous
	x.outer = x.outer[:last]
}

// findDuplicate notes an error if the names of an object, whose text has that length, are not unique.
func (x *Index) findDuplicate(o *opened, length int) {
	if x.outlined && o.ambiguous && (o.size > mostAmbiguous || length > ambiguousBytes) {
		x.full = true
		return
	}
	name, found := x.names.duplicate(x, o.node+1, o.size, o.ambiguous)
	switch {
	case !found:
	case x.outlined:
		x.full = true // Outline does not return the error, and copying a long name takes memory
	default:
		x.err = &DuplicateKeyError{Key: name.Text()}
	}
}

// noteName notes the name of the member that comes next, and returns it. A plain name has no escape.
func (x *Index) noteName(start, end int, plain bool) Span {
	o, name := &x.innermost, x.Text[start:end]
	bit := uint64(1) << ((len(name) + 5*int(name[1]) + 11*int(name[len(name)-2])) & 63)
	if !plain || o.seen&bit != 0 {
		x.compare(name, plain)
	}
	o.seen |= bit
	return Span{int32(start), int32(end)} //nolint:gosec // within the text
}

// compare notes whether a name may be that of an earlier member of the innermost object.
func (x *Index) compare(name Value, plain bool) {
	o := &x.innermost
	if !plain && bytes.IndexByte(name, '\\') >= 0 {
		x.Nodes[o.node].Escaped = true
		o.ambiguous = o.ambiguous || isAmbiguous(name)
	}
	o.suspect = o.suspect || o.ambiguous || o.size > few
	for n := o.node + 1; !o.suspect && n < len(x.Nodes); n = int(x.Nodes[n].Next) {
		at := x.Nodes[n].Name
		o.suspect = bytes.Equal(x.Text[at.Start:at.End], name)
	}
}

// number notes an error, as of Decode, if a number is out of range. Decoding a long one takes several times its memory.
func (x *Index) number(text Value) {
	const certain = 308 // digits that fit into any float64
	switch {
	case x.err != nil || x.full:
	case len(text) > certain && x.outlined:
		x.full = true
	case len(text) > certain || bytes.IndexByte(text, 'e') >= 0 || bytes.IndexByte(text, 'E') >= 0:
		_, x.err = text.Decode()
	}
}
