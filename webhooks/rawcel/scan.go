package rawcel

import (
	"bytes"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// node is an array or object of a text. A text's nodes are in the order in which
// they start, so that those inside of one follow it.
type node struct {
	// end is where it ends: the index behind its last byte.
	end int
	// next is the number of the first node that starts behind its end.
	next int
	// size is the number of its elements or members.
	size int
}

// span is a part of a text.
type span struct{ start, end int }

// scan finds the nodes of an array's or object's text, in time that is linear in
// its length, however it is nested: then an object is read without scanning the ones
// inside of it.
//
// The error is what makes Decode fail too. Of several it is the one that ends
// first.
func scan(text rawjson.Value) ([]node, error) {
	const (
		usual = 32   // bytes of text for each node, in Kubernetes objects
		most  = 4096 // nodes to allocate before they are seen
	)
	var (
		nodes = make([]node, 0, min(4+len(text)/usual, most))
		// names are those of the members of all open objects so far.
		names = make([]span, 0, 64)
		open  = make([]opened, 0, 16)
		last  span // the string read last
		set   nameSet
		// slash is where the next backslash is, from the last string on.
		slash   = indexFrom(text, 0, '\\')
		escaped bool // whether the last string has one
	)
	for i := 0; i < len(text); {
		switch b := text[i]; b {
		case '"':
			last = span{i, textEnd(text, i)}
			i = last.end
			if escaped = slash < i; escaped {
				slash = indexFrom(text, i, '\\')
			}
		case ':':
			names = append(names, last)
			top := &open[len(open)-1]
			top.ambiguous = top.ambiguous || escaped && isAmbiguous(text[last.start:last.end])
			i++
		case ',':
			nodes[open[len(open)-1].node].size++
			i++
		case '{', '[':
			open = append(open, opened{node: len(nodes), names: len(names)})
			nodes = append(nodes, node{})
			i++
		case '}', ']':
			top := open[len(open)-1]
			n := &nodes[top.node]
			if b == '}' {
				members := names[top.names:]
				if name, found := set.duplicate(text, members, top.ambiguous); found {
					return nil, &rawjson.DuplicateKeyError{Key: name}
				}
				n.size = len(members)
			} else if !opensBefore(text, i) {
				n.size++ // one more than commas
			}
			i++
			n.end, n.next = i, len(nodes)
			names, open = names[:top.names], open[:len(open)-1]
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := scalarEnd(text, i)
			if err := checkNumber(text[i:end:end]); err != nil {
				return nil, err
			}
			i = end
		default:
			i++ // space, or a letter of true, false or null
		}
	}
	return nodes, nil
}

// opened is a node whose end has not been seen.
type opened struct {
	node int
	// names is how many names there were before its own.
	names int
	// ambiguous reports whether one of its own is.
	ambiguous bool
}

// indexFrom returns the index of the first such byte from i on, and that of the
// text's end if there is none.
func indexFrom(text rawjson.Value, i int, b byte) int {
	if n := bytes.IndexByte(text[i:], b); n >= 0 {
		return i + n
	}
	return len(text)
}

// opensBefore reports whether the last byte before i that is no space opens an
// array.
func opensBefore(text rawjson.Value, i int) bool {
	i--
	for isSpace(text[i]) {
		i--
	}
	return text[i] == '['
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

// textEnd returns where the string that starts at i ends.
func textEnd(text rawjson.Value, i int) int {
	for {
		i++
		i += bytes.IndexByte(text[i:], '"')
		// The quote ends the string unless an odd number of backslashes stands
		// before it.
		back := i
		for text[back-1] == '\\' {
			back--
		}
		if (i-back)&1 == 0 {
			return i + 1
		}
	}
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

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// skipTo returns the first index from i on at which the text has one of what
// can start a member or value: that is, what is neither space nor comma nor
// colon.
func skipTo(text rawjson.Value, i int) int {
	for isSpace(text[i]) || text[i] == ',' || text[i] == ':' {
		i++
	}
	return i
}
