package json

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is the maximum nesting of arrays and objects. It is the limit of encoding/json,
// which the API server uses, so that no object that it can send is rejected.
const MaxDepth = 10_000

// SyntaxError is the error of a text that is not JSON.
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
// encoding/json accepts everything that Parse accepts. The reverse does not hold:
// encoding/json replaces invalid UTF-8, which Parse rejects, so that all readers of a text
// agree.
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

// Outline is Parse that also returns, in the same pass, the members down to a depth: those of
// the outermost object, of the objects in these, and so on. It appends them to dst in the
// order in which they start, so that a member is followed by its own members. Members of
// objects inside arrays are not returned. A text with more members than fit into the capacity
// of dst is rejected, so that a hostile one costs no memory.
//
// It also counts the values in the text, at any depth, which determine the memory of decoding
// it.
//
// If index is not nil, the text is read into it in the same pass. It stays empty if Index.Read
// finds an error, and for a text with too many values, nested too deeply, or with numbers or ambiguous names that would have to be
// decoded and are long, so that all of this takes no more than OutlineBytes.
func Outline(dst []Member, data []byte, depth int, index *Index) (members []Member, values int, err error) {
	c := checker{data: data, outline: min(depth, maxOutline), members: dst, index: index}
	if index != nil {
		index.reset(data, mostNodes(len(data)), deepestOutlined, true)
	}
	_, err = c.whole()
	switch {
	case index == nil:
	case err != nil || index.err != nil || index.full:
		index.Forget()
	default:
		index.trim()
	}
	return c.members, c.values, err
}

// maxOutline is the maximum depth of Outline.
const maxOutline = 4

func (c *checker) whole() (Value, error) {
	start := skipSpace(c.data, 0)
	end := c.value(start)
	if c.err != nil {
		return nil, c.err
	}
	if rest := skipSpace(c.data, end); rest != len(c.data) {
		return nil, &SyntaxError{Offset: rest, reason: "unexpected data after the value"}
	}
	return Value(c.data[start:end:end]), nil
}

// checker walks the text once. It keeps its own stack, one bit a level, so that
// hostile nesting costs next to no memory.
type checker struct {
	data []byte
	err  *SyntaxError

	// outline is the depth down to which members are noted.
	outline int
	members []Member
	// values is how many have started.
	values int
	// open has, for each noted depth, the index in members of the member whose
	// value is being read and where that value starts.
	open [maxOutline]struct{ index, start int }
	// outer has the levels that do not fit into the innermost word.
	outer []levels
	// index is what values are noted in, nil for none.
	index *Index
}

// levels has a bit for each open level, the innermost lowest: set for an object.
type levels uint64

// levelsInWord is how many levels fit into one word.
const levelsInWord = 64

// objects reports whether all of the open levels, depth in number, are objects. It
// is for small depths.
func (l levels) objects(depth int) bool { return l == 1<<uint(depth)-1 }

// fail notes the first error, and returns -1. It is not inlined: its callers are faster without it.
//
//go:noinline
func (c *checker) fail(at int, reason string) int {
	if c.err == nil {
		if at >= len(c.data) {
			at, reason = len(c.data), "unexpected end"
		}
		c.err = &SyntaxError{Offset: at, reason: reason}
	}
	return -1
}

// value checks one value that starts at i and returns where it ends, or -1.
func (c *checker) value(i int) int {
	var (
		data  = c.data
		open  levels
		depth int
	)
	for {
		var name Span
		if open&1 != 0 {
			// Here a name must start at i.
			if i >= len(data) || data[i] != '"' {
				return c.fail(i, "expected a member name")
			}
			start := i
			end := plainText(data, start+1)
			plain := end > 0
			if !plain {
				if end = c.anyText(start + 1); end < 0 {
					return end
				}
			}
			if i = skipSpace(data, end); i >= len(data) || data[i] != ':' {
				return c.fail(i, "expected a colon")
			}
			i = skipSpace(data, i+1)
			if c.index != nil {
				name = c.index.noteName(start, end, plain)
			}
			// A noted object's members are noted only if every object around it is: an
			// array in between would leave the member above without its own.
			if depth <= c.outline && open.objects(depth) && !c.note(start, end, i, depth) {
				return -1
			}
		}
		// Here a value must start at i.
		c.values++
		if i >= len(data) {
			return c.fail(i, "")
		}
		start := i
		switch b := data[i]; b {
		case '"':
			if i = plainText(data, i+1); i == 0 {
				i = c.anyText(start + 1)
			}
		case '{', '[':
			if depth == MaxDepth {
				return c.fail(i, "nested too deeply")
			}
			if i = skipSpace(data, i+1); i < len(data) && data[i] == b+2 { // its closer, in ASCII
				i++
				break
			}
			if depth > 0 && depth%levelsInWord == 0 {
				c.outer = append(c.outer, open)
			}
			depth++
			open <<= 1
			if c.index != nil && !c.index.enter(name, start) {
				c.index = nil
			}
			if b == '{' {
				open |= 1
			}
			continue
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			if i = c.number(i); i > 0 && c.index != nil {
				c.index.number(data[start:i])
			}
		case 't':
			i = c.word(i, "true")
		case 'f':
			i = c.word(i, "false")
		case 'n':
			i = c.word(i, "null")
		default:
			return c.fail(i, "expected a value")
		}
		if i < 0 {
			return i
		}
		if c.index != nil && !c.index.add(name, start, i) {
			c.index = nil
		}
		// Here a value has ended before i: close what ends with it.
		for {
			if depth == 0 {
				return i
			}
			if depth <= c.outline && open.objects(depth) {
				noted := c.open[depth-1]
				c.members[noted.index].Value = data[noted.start:i:i]
			}
			i = skipSpace(data, i)
			if i >= len(data) {
				return c.fail(i, "")
			}
			if data[i] == ',' {
				i = skipSpace(data, i+1)
				break
			}
			if open&1 != 0 && data[i] != '}' {
				return c.fail(i, "expected a comma or }")
			}
			if open&1 == 0 && data[i] != ']' {
				return c.fail(i, "expected a comma or ]")
			}
			i++
			if c.index != nil {
				c.index.leave(i)
			}
			depth--
			open >>= 1
			if depth > 0 && depth%levelsInWord == 0 {
				last := len(c.outer) - 1
				open, c.outer = c.outer[last], c.outer[:last]
			}
		}
	}
}

// note appends a member at the given depth, whose value starts at i, to members. It returns false if it does not fit.
func (c *checker) note(start, end, i, depth int) bool {
	if len(c.members) == cap(c.members) {
		c.fail(start, "too many members")
		return false
	}
	c.open[depth-1].index = len(c.members)
	c.open[depth-1].start = i
	c.members = append(c.members, Member{Depth: depth, Name: c.data[start:end:end]})
	return true
}

func (c *checker) word(i int, word string) int {
	if len(c.data)-i < len(word) || string(c.data[i:i+len(word)]) != word {
		return c.fail(i, "expected a value")
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
		return c.fail(i, "expected a digit")
	}
	if i < len(data) && data[i] == '.' {
		from := i + 1
		if i = digits(data, from); i == from {
			return c.fail(i, "expected a digit")
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		from := i
		if i = digits(data, from); i == from {
			return c.fail(i, "expected a digit")
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

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special returns a word whose lowest bit is in the first byte of w that is a quote, a backslash, a control character or
// not ASCII. The word is 0 if there is none.
func special(w uint64) uint64 {
	// Of the bytes below 0x80, x^2 < 0x21 holds for control characters and
	// quotes, and then x^2 - 0x21 has its high bit set, as has x itself from
	// 0x80 on. A borrow may err above the first hit, never below it, and
	// only the first hit is used.
	return (((w ^ ones*2) - ones*0x21) | ((w ^ ones*'\\') - ones) | w) & highs
}

// plainText returns where the string ends that starts with the quote before i, or 0 if anyText must check it: it has
// escapes, other than ASCII or an error, or is at the end of the text. It is small enough to be inlined.
func plainText(data []byte, i int) int {
	for ; i+8 <= len(data); i += 8 {
		w := binary.LittleEndian.Uint64(data[i : i+8 : i+8])
		if hit := special(w); hit != 0 {
			first := bits.TrailingZeros64(hit)
			if w>>(first&56)&0xff != '"' {
				break
			}
			return i + first>>3 + 1
		}
	}
	return 0
}

// anyText checks a string from i on, behind its quote, and returns where it ends, or -1.
func (c *checker) anyText(i int) int {
	data := c.data
	for {
		for ; i+8 <= len(data); i += 8 {
			if hit := special(binary.LittleEndian.Uint64(data[i : i+8 : i+8])); hit != 0 {
				i += bits.TrailingZeros64(hit) >> 3
				break
			}
		}
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
		case b < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size <= 1 {
				return c.fail(i, "invalid UTF-8")
			}
			i += size
		}
	}
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
				return c.fail(k, "expected a hexadecimal digit")
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

// skipSpace returns the first index from i on at which there is no space.
func skipSpace(data []byte, i int) int {
	if i < len(data) && data[i] > ' ' {
		return i // nearly always
	}
	return skipSpaces(data, i)
}

func skipSpaces(data []byte, i int) int {
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
