package rawjson

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is how deeply arrays and objects may nest. It is the limit of
// encoding/json, which the API server uses, so that no object that it can send
// is refused here.
const MaxDepth = 10_000

// SyntaxError says why a text is not JSON.
type SyntaxError struct {
	// Offset is the number of bytes before the offending one.
	Offset int
	reason string
}

// Error names the offset, and never quotes the text, which may be secret.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.reason)
}

// Parse checks that data is one JSON value in valid UTF-8, nested no deeper
// than MaxDepth, with nothing but space around it, and returns that value. The
// value shares the memory of data. The error is a *SyntaxError.
//
// Everything that Parse accepts encoding/json accepts too. The reverse does not
// hold: encoding/json replaces invalid UTF-8, Parse refuses it, so that no two
// readers of one text disagree.
func Parse(data []byte) (Value, error) {
	c := checker{data: data}
	return c.whole()
}

// Member is a member of an object that Outline passed by.
type Member struct {
	// Depth is 1 for a member of the outermost object, 2 for a member of an
	// object that is a member of that, and so on.
	Depth int
	Name  Value
	Value Value
}

// Outline is Parse that notes, in the same pass, the members down to a depth:
// those of the outermost object, of the objects in these, and so on. It appends
// them to dst in the order in which they start, so that a member is followed by
// its own members. Objects inside arrays are not noted. A text with more members
// to note than fit into the capacity of dst is refused, so that a hostile one
// costs no memory.
//
// It also counts the values in the text, at any depth: that, and not the text's
// length, tells what decoding it would take.
func Outline(dst []Member, data []byte, depth int) (members []Member, values int, err error) {
	c := checker{data: data, outline: min(depth, maxOutline), members: dst}
	_, err = c.whole()
	return c.members, c.values, err
}

// maxOutline is how deep Outline can note members.
const maxOutline = 4

func (c *checker) whole() (Value, error) {
	start := skipSpace(c.data, 0)
	end := c.value(start)
	if c.err != nil {
		return nil, c.err
	}
	if rest := skipSpace(c.data, end); rest != len(c.data) {
		return nil, &SyntaxError{Offset: rest, reason: "text after the value"}
	}
	return Value(c.data[start:end:end]), nil
}

// checker walks the text once. It keeps its own stack, one bit a level, so that
// hostile nesting costs no memory.
type checker struct {
	data []byte
	err  *SyntaxError
	// inObject has a bit for each open level: set for an object.
	inObject [MaxDepth/64 + 1]uint64

	// outline is the depth down to which members are noted.
	outline int
	members []Member
	// values is how many have started.
	values int
	// open has, for each noted depth, the index in members of the member whose
	// value is being read and where that value starts.
	open [maxOutline]struct{ index, start int }
}

func (c *checker) fail(at int, reason string) int {
	if c.err == nil {
		if at >= len(c.data) {
			at, reason = len(c.data), "text ends too early"
		}
		c.err = &SyntaxError{Offset: at, reason: reason}
	}
	return -1
}

// value checks one value that starts at i and returns where it ends, or -1.
func (c *checker) value(i int) int {
	data := c.data
	depth := 0
	for {
		// Here a value must start at i.
		c.values++
		if i >= len(data) {
			return c.fail(i, "")
		}
		switch b := data[i]; {
		case b == '"':
			i = c.text(i)
		case b == '{':
			if depth == MaxDepth {
				return c.fail(i, "nested too deeply")
			}
			c.inObject[depth>>6] |= 1 << (depth & 63)
			depth++
			i = skipSpace(data, i+1)
			if i < len(data) && data[i] == '}' {
				depth--
				i++
				break
			}
			i = c.key(i, depth)
			if i < 0 {
				return i
			}
			continue
		case b == '[':
			if depth == MaxDepth {
				return c.fail(i, "nested too deeply")
			}
			c.inObject[depth>>6] &^= 1 << (depth & 63)
			depth++
			i = skipSpace(data, i+1)
			if i < len(data) && data[i] == ']' {
				depth--
				i++
				break
			}
			continue
		case b == '-' || '0' <= b && b <= '9':
			i = c.number(i)
		case b == 't':
			i = c.word(i, "true")
		case b == 'f':
			i = c.word(i, "false")
		case b == 'n':
			i = c.word(i, "null")
		default:
			return c.fail(i, "a value must start here")
		}
		if i < 0 {
			return i
		}
		// Here a value has ended before i: close what ends with it.
		for {
			if depth == 0 {
				return i
			}
			ended := i
			i = skipSpace(data, i)
			if i >= len(data) {
				return c.fail(i, "")
			}
			object := c.inObject[(depth-1)>>6]&(1<<((depth-1)&63)) != 0
			if depth <= c.outline && c.objectsOnly(depth) {
				open := c.open[depth-1]
				c.members[open.index].Value = c.data[open.start:ended:ended]
			}
			if data[i] == ',' {
				i = skipSpace(data, i+1)
				if object {
					i = c.key(i, depth)
					if i < 0 {
						return i
					}
				}
				break
			}
			if object && data[i] == '}' || !object && data[i] == ']' {
				depth--
				i++
				continue
			}
			if object {
				return c.fail(i, "a comma or } must stand here")
			}
			return c.fail(i, "a comma or ] must stand here")
		}
	}
}

// key checks the name and colon of a member at the given depth and returns
// where its value starts.
func (c *checker) key(i, depth int) int {
	if i >= len(c.data) || c.data[i] != '"' {
		return c.fail(i, "a member's name must start here")
	}
	start := i
	end := c.text(i)
	if end < 0 {
		return end
	}
	i = skipSpace(c.data, end)
	if i >= len(c.data) || c.data[i] != ':' {
		return c.fail(i, "a colon must stand here")
	}
	i = skipSpace(c.data, i+1)
	// A noted object's members are noted only if every object around it is: an
	// array in between would leave the member above without its own.
	if depth <= c.outline && c.objectsOnly(depth) {
		if len(c.members) == cap(c.members) {
			return c.fail(start, "too many members")
		}
		c.open[depth-1].index = len(c.members)
		c.open[depth-1].start = i
		c.members = append(c.members, Member{Depth: depth, Name: c.data[start:end:end]})
	}
	return i
}

// objectsOnly tells whether the outermost depth levels are all objects.
func (c *checker) objectsOnly(depth int) bool {
	mask := uint64(1)<<depth - 1
	return c.inObject[0]&mask == mask
}

func (c *checker) word(i int, word string) int {
	if len(c.data)-i < len(word) || string(c.data[i:i+len(word)]) != word {
		return c.fail(i, "a value must start here")
	}
	return i + len(word)
}

// number follows the grammar of RFC 8259, section 6.
func (c *checker) number(i int) int {
	data := c.data
	if data[i] == '-' {
		i++
	}
	switch {
	case i >= len(data):
		return c.fail(i, "")
	case data[i] == '0':
		i++
	case '1' <= data[i] && data[i] <= '9':
		i = digits(data, i)
	default:
		return c.fail(i, "a digit must stand here")
	}
	if i < len(data) && data[i] == '.' {
		from := i + 1
		if i = digits(data, from); i == from {
			return c.fail(i, "a digit must stand here")
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		from := i
		if i = digits(data, from); i == from {
			return c.fail(i, "a digit must stand here")
		}
	}
	return i
}

func digits(data []byte, i int) int {
	for i < len(data) && '0' <= data[i] && data[i] <= '9' {
		i++
	}
	return i
}

// text checks a string that starts with the quote at i.
func (c *checker) text(i int) int {
	data := c.data
	i++
	for {
		i = plain(data, i)
		if i >= len(data) {
			return c.fail(i, "")
		}
		switch b := data[i]; {
		case b == '"':
			return i + 1
		case b == '\\':
			i = c.escape(i)
			if i < 0 {
				return i
			}
		case b < 0x20:
			return c.fail(i, "control character in a string")
		default:
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size <= 1 {
				return c.fail(i, "invalid UTF-8")
			}
			i += size
		}
	}
}

// plain returns the first index from i on whose byte is not plain text: a
// quote, a backslash, a control character or the start of a longer rune.
func plain(data []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for i+8 <= len(data) {
		w := binary.LittleEndian.Uint64(data[i:])
		// The classic test for a zero byte, x-ones &^ x & highs, may err above
		// the first hit, never below it, and only the first hit is used.
		quote := w ^ ones*'"'
		slash := w ^ ones*'\\'
		hit := (quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w | w
		if hit &= highs; hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
		i += 8
	}
	for i < len(data) {
		if b := data[i]; b == '"' || b == '\\' || b < 0x20 || b >= utf8.RuneSelf {
			return i
		}
		i++
	}
	return i
}

// escape checks the escape that starts with the backslash at i.
func (c *checker) escape(i int) int {
	data := c.data
	if i+1 >= len(data) {
		return c.fail(len(data), "")
	}
	switch data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(data) {
				return c.fail(k, "")
			}
			if _, ok := hex(data[k]); !ok {
				return c.fail(k, "a hexadecimal digit must stand here")
			}
		}
		return i + 6
	default:
		return c.fail(i+1, "unknown escape")
	}
}

func hex(b byte) (rune, bool) {
	switch {
	case '0' <= b && b <= '9':
		return rune(b - '0'), true
	case 'a' <= b && b <= 'f':
		return rune(b-'a') + 10, true
	case 'A' <= b && b <= 'F':
		return rune(b-'A') + 10, true
	default:
		return 0, false
	}
}

func skipSpace(data []byte, i int) int {
	for i < len(data) {
		switch data[i] {
		case ' ', '\n', '\t', '\r':
			i++
		default:
			return i
		}
	}
	return i
}
