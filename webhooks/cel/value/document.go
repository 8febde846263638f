package value

import (
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// document is a text that has been scanned. It does not change until it is released.
type document struct {
	*rawjson.Index
	*memory
}

// memory is what a document needs and the next one uses again.
type memory struct {
	// own is the Index of a text that was not indexed before.
	own rawjson.Index
	// parts are those of the arrays and objects that were opened.
	parts []part
}

var memories = sync.Pool{New: func() any { return new(memory) }} //nolint:gochecknoglobals // a pool is shared by its nature

// mostKept is how many parts are kept for the next document.
const mostKept = 4096

// release gives back the memory.
func (d *document) release() {
	if m := d.memory; m != nil && cap(m.parts) <= mostKept {
		m.own.Forget()
		clear(m.parts)
		m.parts = m.parts[:0]
		memories.Put(m)
	}
	d.Index, d.memory = nil, nil
}

// value returns the value with that number, which is of the type.
func (d *document) value(number int32, of *Type) ref.Val {
	n := &d.Nodes[number]
	if b := d.Text[n.Start]; b == '{' || b == '[' {
		return d.composite(number, of)
	}
	value := scalar(d.Part(n.Span))
	if n, ok := value.(types.Int); ok && of != nil && of.kind == floatType {
		return types.Double(n)
	}
	return value
}

// composite returns the array or object with that number, which is of the type.
func (d *document) composite(number int32, of *Type) ref.Val {
	c := composite{document: d, number: number}
	isObject := d.Text[d.Nodes[number].Start] == '{'
	switch {
	case isObject && of != nil && (of.kind == structType || of.kind == mapType):
		c.of = of
		return &typedObject{mapping: mapping{composite: c}}
	case isObject:
		return &object{mapping{composite: c}}
	case of != nil && of.kind == listType:
		c.of = of
		return &typedList{sequence: sequence{composite: c}}
	default:
		return &list{sequence{composite: c}}
	}
}

// part is an element or member of an array or object that was opened.
type part struct {
	// value is nil until it is read.
	value  ref.Val
	number int32
}

// composite is what objects and lists share.
type composite struct {
	document *document
	// of is nil for values that are not typed.
	of     *Type
	number int32
	// opened is the number of its first part and one more, and 0 as long as it has not been opened.
	opened int32
}

func (c *composite) release() { c.document.release() }

func (c *composite) size() int { return int(c.document.Nodes[c.number].Size) }

// parts are the elements or members.
func (c *composite) parts() []part {
	d, size := c.document, c.document.Nodes[c.number].Size
	if c.opened == 0 {
		c.opened = int32(len(d.parts)) + 1 //nolint:gosec // no more than nodes
		number := c.number + 1
		for range size {
			d.parts = append(d.parts, part{number: number})
			number = d.Nodes[number].Next
		}
	}
	return d.parts[c.opened-1 : c.opened-1+size]
}

// read returns the value of a part, which is of the type.
func (c *composite) read(p *part, of *Type) ref.Val {
	if p.value == nil {
		p.value = c.document.value(p.number, of)
	}
	return p.value
}

func (c *composite) text() rawjson.Value {
	return c.document.Part(c.document.Nodes[c.number].Span)
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
