// Package json reads JSON in place: Parse checks a text once, and a Value of it is then read without building a tree.
// Parts that are not read keep every byte.
//
// An admission review is mostly an object of which the webhook reads little. Decoding it into Go values costs ten times as
// much, and encoding it again loses unknown fields.
package json

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Kind is the kind of a JSON value.
type Kind byte

// The kinds of JSON values. Invalid is the kind of an empty Value, which is an absent value.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// String returns the kind with its article, for messages.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "a boolean"
	case Number:
		return "a number"
	case String:
		return "a string"
	case Array:
		return "an array"
	case Object:
		return "an object"
	case Invalid:
		return "nothing"
	default:
		return "unknown"
	}
}

// Value is the text of one JSON value, without surrounding space. It comes from
// Parse, or from a Value that did: its methods require valid text and may panic otherwise.
// An empty Value is an absent one, and all methods accept it. A Value shares the memory that
// it was parsed from and is safe for concurrent reading.
type Value []byte

// Kind returns the value's kind, by its first byte.
func (v Value) Kind() Kind {
	if len(v) == 0 {
		return Invalid
	}
	switch v[0] {
	case '"':
		return String
	case '{':
		return Object
	case '[':
		return Array
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	default:
		return Number
	}
}

// Members yields an object's members in the order written: the name, which is a
// String value, and the value. Duplicates are yielded as they come. For any
// other kind there is nothing to yield.
func (v Value) Members() iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		if v.Kind() != Object {
			return
		}
		c := v.Cursor()
		for c.Enter(); c.Next(); {
			if !yield(c.Name(), c.Skip()) {
				return
			}
		}
	}
}

// Elements yields an array's elements with their indexes. For any other kind
// there is nothing to yield.
func (v Value) Elements() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		if v.Kind() != Array {
			return
		}
		c := v.Cursor()
		c.Enter()
		for n := 0; c.Next(); n++ {
			if !yield(n, c.Skip()) {
				return
			}
		}
	}
}

// Len returns the number of an array's elements or an object's members, and 0 for
// any other kind.
func (v Value) Len() int {
	n := 0
	for range v.Elements() {
		n++
	}
	for range v.Members() {
		n++
	}
	return n
}

// Get returns the value at a path of member names, and an empty Value if one is absent or
// its owner is not an object. Names are compared exactly, as in the API server. Of duplicate
// members it uses the first; DuplicateKey finds them.
func (v Value) Get(path ...string) Value {
	for _, name := range path {
		found := Value(nil)
		for key, value := range v.Members() {
			if key.Is(name) {
				found = value
				break
			}
		}
		v = found
	}
	return v
}

// DuplicateKey returns the first member name of this object that occurs twice.
// It checks this object alone, not those inside it.
func (v Value) DuplicateKey() (string, bool) {
	if v.Kind() != Object {
		return "", false
	}
	// Most objects are small: comparing pairs is faster than a map.
	const few = 16
	var (
		seen [few]Value
		more map[string]bool
		n    int
	)
	c := v.Cursor()
	for c.Enter(); c.Next(); c.Skip() {
		name := c.PlainName()
		if n < few {
			for _, before := range seen[:n] {
				if bytes.Equal(before, name) {
					return name.Text(), true
				}
			}
			seen[n] = name
			n++
			continue
		}
		if more == nil {
			more = make(map[string]bool, 2*few)
			for _, before := range seen {
				more[string(before)] = true
			}
		}
		if more[string(name)] {
			return name.Text(), true
		}
		more[string(name)] = true
	}
	return "", false
}

// Is reports whether the value is a String with exactly this text.
func (v Value) Is(s string) bool {
	if v.Kind() != String {
		return false
	}
	inner := v[1 : len(v)-1]
	if len(inner) < len(s) {
		return false // An escape is never shorter than what it stands for.
	}
	if string(inner) == s {
		// s itself may hold a backslash, which inner writes as an escape.
		return bytes.IndexByte(inner, '\\') < 0
	}
	if len(inner) == len(s) || bytes.IndexByte(inner, '\\') < 0 {
		return false
	}
	return v.Text() == s
}

// IsTrue reports whether the value is the boolean true.
func (v Value) IsTrue() bool { return len(v) > 0 && v[0] == 't' }

// Text returns the text of a String, decoded and copied. For any other kind it is
// empty. As in encoding/json, a lone surrogate becomes U+FFFD.
func (v Value) Text() string {
	if v.Kind() != String {
		return ""
	}
	inner := v[1 : len(v)-1]
	slash := bytes.IndexByte(inner, '\\')
	if slash < 0 {
		return string(inner)
	}
	out := make([]byte, 0, len(inner))
	for {
		if slash < 0 {
			return string(append(out, inner...))
		}
		out = append(out, inner[:slash]...)
		r, size := unescape(inner[slash:])
		out = utf8.AppendRune(out, r)
		inner = inner[slash+size:]
		slash = bytes.IndexByte(inner, '\\')
	}
}

// unescape decodes the escape at the start of a checked text and returns its length there.
func unescape(text []byte) (rune, int) {
	switch text[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := hex4(text[2:])
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(text[8:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	default: // a quote, a backslash or a slash stands for itself
		return rune(text[1]), 2
	}
}

func hex4(text []byte) rune {
	var r rune
	for _, b := range text[:4] {
		digit, _ := hex(b)
		r = r<<4 | digit
	}
	return r
}

// skipValue returns where the value that starts at i ends.
func skipValue(data []byte, i int) int {
	switch data[i] {
	case '"':
		return skipText(data, i)
	case '{', '[':
		depth := 0
		for {
			b := data[i]
			if b == '"' {
				i = skipText(data, i)
				continue
			}
			i++
			switch b | 0x20 { // makes a brace of a bracket
			case '{':
				depth++
			case '}':
				depth--
				if depth == 0 {
					return i
				}
			}
		}
	default:
		for i < len(data) {
			switch data[i] {
			case ',', '}', ']', ' ', '\n', '\t', '\r':
				return i
			}
			i++
		}
		return i
	}
}

// skipText returns where the string that starts with the quote at i ends.
func skipText(data []byte, i int) int {
	i++
	for {
		for ; i+8 <= len(data); i += 8 {
			w := binary.LittleEndian.Uint64(data[i:]) ^ ones*'"'
			if hit := (w - ones) &^ w & highs; hit != 0 { // as in special
				i += bits.TrailingZeros64(hit) >> 3
				break
			}
		}
		for data[i] != '"' {
			i++
		}
		// The quote ends the string unless an odd number of backslashes stands
		// before it.
		back := i
		for data[back-1] == '\\' {
			back--
		}
		if (i-back)&1 == 0 {
			return i + 1
		}
		i++
	}
}

// word returns the first eight bytes of a string.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		if len(s)-i >= 8 {
			hit := special(word(s[i:]))
			if hit == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(hit) >> 3
		}
		b := s[i]
		if b >= 0x20 && b != '"' && b != '\\' && b < utf8.RuneSelf {
			i++
			continue
		}
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			if b < 0x20 {
				dst = append(dst, '\\', 'u', '0', '0', digits[b>>4], digits[b&15])
			} else {
				dst = append(dst, "\uFFFD"...)
			}
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
