package rawcel

import (
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// document is a text that has been scanned. It does not change.
type document struct {
	text  rawjson.Value
	nodes []node
}

func (d *document) part(s span) rawjson.Value { return d.text[s.start:s.end:s.end] }

// slot is a value's place in a document, and what it was read as.
type slot struct {
	span
	// node is the value's number if it is an object or array.
	node int
	// read is nil until it is needed.
	read ref.Val
}

// slot returns the place of the value that starts at an index, and the number
// of the first node behind it. node is the number of the first node that starts
// there or later.
func (d *document) slot(at, node int) (s slot, next int) {
	s, next = slot{span: span{start: at}, node: node}, node
	switch d.text[at] {
	case '{', '[':
		s.end, next = d.nodes[node].end, d.nodes[node].next
	case '"':
		s.end = textEnd(d.text, at)
	default:
		s.end = scalarEnd(d.text, at)
	}
	return s, next
}

// value reads a slot as a value of the type. The caller holds the lock of the slot's owner.
func (d *document) value(s *slot, of *Type) ref.Val {
	if s.read != nil {
		return s.read
	}
	switch d.text[s.start] {
	case '{':
		if of != nil && (of.kind == structType || of.kind == mapType) {
			s.read = &typedObject{mapping: mapping{composite: composite{document: d, at: s.start, node: s.node, of: of}}}
		} else {
			s.read = &object{mapping{composite: composite{document: d, at: s.start, node: s.node}}}
		}
	case '[':
		if of != nil && of.kind == listType {
			s.read = &typedList{sequence: sequence{composite: composite{document: d, at: s.start, node: s.node, of: of}}}
		} else {
			s.read = &list{sequence{composite: composite{document: d, at: s.start, node: s.node}}}
		}
	default:
		s.read = scalar(d.part(s.span))
		if n, ok := s.read.(types.Int); ok && of != nil && of.kind == floatType {
			s.read = types.Double(n)
		}
	}
	return s.read
}

// composite is what objects and lists share.
type composite struct {
	document *document
	at, node int
	// of is nil for values that are not typed.
	of *Type
	// mutex guards what the object or list notes while it is read.
	mutex sync.Mutex
}

func (c *composite) size() int { return c.document.nodes[c.node].size }

func (c *composite) text() rawjson.Value {
	end := c.document.nodes[c.node].end
	return c.document.text[c.at:end:end]
}

// decode returns the tree of it all.
func (c *composite) decode() any {
	tree, _ := c.text().Decode() // the scan has found no error
	return tree
}

// equal is types.Equal for what is inside of values whose texts differ. It does
// not compare texts again, which at each level of deep values would take time in
// proportion to the square of their length.
func equal(a, b ref.Val) ref.Val {
	switch a := a.(type) {
	case *object:
		return a.equal(b)
	case *list:
		return a.equal(b)
	default:
		return types.Equal(a, b)
	}
}
