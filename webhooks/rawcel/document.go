package rawcel

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// document is a text that has been scanned. It does not change until it is released.
type document struct {
	text rawjson.Value
	*scanned
}

// mostKept is how many nodes and entries are kept for the next scan.
const mostKept = 8192

// release gives back the memory of the scan.
func (d *document) release() {
	if s := d.scanned; s != nil && cap(s.nodes)+cap(s.entries) <= mostKept {
		scans.Put(s)
	}
	d.text, d.scanned = nil, nil
}

func (d *document) part(s span) rawjson.Value { return d.text[s.start:s.end:s.end] }

// value returns the value of an entry, which is of the type.
func (d *document) value(e *entry, of *Type) ref.Val {
	switch d.text[e.at] {
	case '{', '[':
		return d.composite(e.node, of)
	case '"':
		end, _ := rawjson.TextEnd(d.text, int(e.at))
		return scalar(d.text[e.at:end:end])
	default:
		end := scalarEnd(d.text, int(e.at))
		value := scalar(d.text[e.at:end:end])
		if n, ok := value.(types.Int); ok && of != nil && of.kind == floatType {
			return types.Double(n)
		}
		return value
	}
}

// composite returns the array or object of that number, which is of the type.
func (d *document) composite(number int32, of *Type) ref.Val {
	c := composite{document: d, node: d.nodes[number]}
	isObject := d.text[c.node.start] == '{'
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

// composite is what objects and lists share.
type composite struct {
	document *document
	node     node
	// of is nil for values that are not typed.
	of *Type
	// values are those of the entries that have been read, nil until one is.
	values []ref.Val
}

func (c *composite) release() { c.document.release() }

func (c *composite) size() int { return int(c.node.size) }

// entries are the elements or members.
func (c *composite) entries() []entry {
	return c.document.entries[c.node.first : c.node.first+c.node.size]
}

// read returns the value of an entry, which is of the type.
func (c *composite) read(i int, of *Type) ref.Val {
	if c.values == nil {
		c.values = make([]ref.Val, c.node.size)
	}
	if c.values[i] == nil {
		c.values[i] = c.document.value(&c.entries()[i], of)
	}
	return c.values[i]
}

func (c *composite) text() rawjson.Value {
	return c.document.part(c.node.span)
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
