package rawcel

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// scanned is what a scan has found in a text.
type scanned struct {
	nodes   []node
	entries []entry
}

// scans keeps the memory of scans for later ones.
var scans = sync.Pool{New: func() any { return new(scanned) }} //nolint:gochecknoglobals // a pool is shared by its nature

// node is an array or object of a text. A text's nodes are in the order in which
// they start.
type node struct {
	span
	// first is the number of its first entry, and size is how many it has.
	first, size int32
}

// entry is an element of an array or a member of an object. Those of one array or object stand next to
// each other, in the order of the text.
type entry struct {
	// name is the name of a member, as it is written.
	name span
	// at is where the value starts, and node is its number if it is an array or object.
	at, node int32
}

// span is a part of a text, which has fewer than 2 GiB.
type span struct{ start, end int32 }

func spanOf(start, end int) span { return span{int32(start), int32(end)} } //nolint:gosec // within the text

var errTooLong = errors.New("the text is too long")

// scan finds the nodes and entries of an array's or object's text, in time that is linear in
// its length, however it is nested: then a value is read without scanning the text again.
//
// The error is what makes Decode fail too. Of several it is the one that ends
// first.
func scan(text rawjson.Value) (*scanned, error) {
	const (
		// bytes of text for each node and each entry, in Kubernetes objects with many of them
		usualNode, usualEntry = 28, 18
		// nodes and entries to allocate before they are seen
		most = 4096
	)
	if len(text) > math.MaxInt32 {
		return nil, errTooLong
	}
	out, _ := scans.Get().(*scanned)
	var (
		nodes   = slices.Grow(out.nodes[:0], min(4+len(text)/usualNode, most))
		entries = slices.Grow(out.entries[:0], min(4+len(text)/usualEntry, most))
		// open are the nodes whose end has not been seen, the innermost last, and pending are their entries so far.
		open    = make([]opened, 0, 16)
		pending = make([]entry, 0, 64)
		set     nameSet
	)
	for i := 0; ; {
		// An entry starts at i, or the whole.
		if len(open) > 0 {
			top, e := &open[len(open)-1], entry{}
			if top.object {
				end, escaped := rawjson.TextEnd(text, i)
				e.name = spanOf(i, end)
				top.ambiguous = top.ambiguous || escaped && isAmbiguous(text[i:end])
				i = skipSpace(text, skipSpace(text, end)+1)
			}
			e.at, e.node = int32(i), int32(len(nodes)) //nolint:gosec // not longer than the text
			pending = append(pending, e)
		}
		switch text[i] {
		case '"':
			i, _ = rawjson.TextEnd(text, i)
		case '{', '[':
			open = append(open, opened{node: len(nodes), pending: len(pending), object: text[i] == '{'})
			nodes = append(nodes, node{span: spanOf(i, i)})
			if i = skipSpace(text, i+1); text[i] != '}' && text[i] != ']' {
				continue
			}
		case 't', 'f', 'n':
			i = scalarEnd(text, i)
		default:
			end := scalarEnd(text, i)
			if err := checkNumber(text[i:end:end]); err != nil {
				return nil, err
			}
			i = end
		}
		// A value ends before i. Close what ends with it.
		for {
			if i = skipSpace(text, i); text[i] == ',' {
				i = skipSpace(text, i+1)
				break
			}
			i++
			top := &open[len(open)-1]
			own := pending[top.pending:]
			if top.object {
				if name, found := set.duplicate(text, own, top.ambiguous); found {
					return nil, &rawjson.DuplicateKeyError{Key: name}
				}
			}
			n := &nodes[top.node]
			n.end, n.first, n.size = int32(i), int32(len(entries)), int32(len(own)) //nolint:gosec // not longer than the text
			entries = append(entries, own...)
			pending, open = pending[:top.pending], open[:len(open)-1]
			if len(open) == 0 {
				out.nodes, out.entries = nodes, entries
				return out, nil
			}
		}
	}
}

// opened is a node whose end has not been seen.
type opened struct {
	node int
	// pending is how many entries there were before its own.
	pending int
	// object is true for an object.
	object bool
	// ambiguous reports whether one of its names is.
	ambiguous bool
}

// checkNumber returns an error, as Decode does, if a number is out of range.
func checkNumber(text rawjson.Value) error {
	const certain = 308 // digits that fit into any float64
	if len(text) <= certain && bytes.IndexByte(text, 'e') < 0 && bytes.IndexByte(text, 'E') < 0 {
		return nil
	}
	_, err := text.Decode()
	return err
}

// scalarEnd returns where the number or word that starts at i ends. It stands in
// an array or object, so that something does end it.
func scalarEnd(text rawjson.Value, i int) int {
	for {
		switch text[i] {
		case ',', '}', ']', ' ', '\n', '\t', '\r':
			return i
		}
		i++
	}
}

// skipSpace returns the first index from i on at which the text has no space.
func skipSpace(text rawjson.Value, i int) int {
	for text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r' {
		i++
	}
	return i
}
