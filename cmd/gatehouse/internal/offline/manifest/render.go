package manifest

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// style is how a document is written.
type style struct {
	// member is how far the members of an object are indented below the key
	// that they belong to, sequence the dashes of an array.
	member, sequence int
	// dash is how far the elements of an array stand from their dash.
	dash    int
	newline string
}

// styleOf returns the style of a value, completed by that of the whole document.
func styleOf(n, root *node, t *text, newline string) style {
	s := style{member: -1, sequence: -1, dash: -1, newline: newline}
	s.learn(n, t)
	s.learn(root, t)
	for _, field := range []struct {
		value *int
		usual int
	}{{&s.member, 2}, {&s.sequence, 0}, {&s.dash, 2}} {
		if *field.value < 0 {
			*field.value = field.usual
		}
	}
	return s
}

// learn completes the style by that of a value.
func (s *style) learn(n *node, t *text) {
	if n.at == nil || !n.at.block || s.member >= 0 && s.sequence >= 0 && s.dash >= 0 {
		return
	}
	for _, e := range n.at.entries {
		v := e.written()
		if v.at == nil {
			continue
		}
		inside := v.at.block && t.line(v.at.content) > t.line(e.colon)
		switch {
		case n.kind == rawjson.Array && s.dash < 0 && v.at.start > e.colon && t.line(v.at.start) == t.line(e.from):
			s.dash = t.column(v.at.start) - n.at.column
		case n.kind == rawjson.Object && inside && v.kind == rawjson.Object && s.member < 0:
			s.member = v.at.column - n.at.column
		case n.kind == rawjson.Object && inside && v.kind == rawjson.Array && s.sequence < 0:
			s.sequence = v.at.column - n.at.column
		}
		s.learn(v, t)
	}
}

// block returns a value in block style: the head follows the key or the dash, which is at the column, and the body is below.
func (s *style) block(n *node, column int) (head string, body []byte) {
	switch {
	case n.kind == rawjson.Object && len(n.entries) > 0:
		return "", s.lines(n, column+s.member)
	case n.kind == rawjson.Array && len(n.entries) > 0:
		return "", s.lines(n, column+s.sequence)
	case n.kind == rawjson.String:
		if indicator, lines, ok := literal(n.text.Text()); ok {
			for _, line := range lines {
				if line != "" {
					body = append(spaces(body, column+max(s.member, 1)), line...)
				}
				body = append(body, s.newline...)
			}
			return indicator, body
		}
	}
	return flow(n), nil
}

// lines returns the members of an object, or the elements of an array.
func (s *style) lines(n *node, column int) []byte {
	var dst []byte
	for _, e := range n.entries {
		if n.kind == rawjson.Object {
			dst = s.appendMember(dst, e, column)
		} else {
			dst = s.appendElement(dst, e.value, column)
		}
	}
	return dst
}

func (s *style) appendMember(dst []byte, e *entry, column int) []byte {
	head, body := s.block(e.value, column)
	dst = append(append(spaces(dst, column), quoted(e.name, false)...), ':')
	if head != "" {
		dst = append(append(dst, ' '), head...)
	}
	return append(append(dst, s.newline...), body...)
}

func (s *style) appendElement(dst []byte, n *node, column int) []byte {
	lines := s.lines(n, column+s.dash)
	if lines == nil {
		head, body := s.block(n, column)
		lines = append(spaces(nil, column+s.dash), head...)
		lines = append(append(lines, s.newline...), body...)
	}
	dst = append(spaces(dst, column), '-')
	return append(spaces(dst, s.dash-1), lines[column+s.dash:]...)
}

func spaces(dst []byte, n int) []byte { return append(dst, strings.Repeat(" ", n)...) }

// flow returns a value on one line of YAML.
func flow(n *node) string {
	var b strings.Builder
	writeFlow(&b, n, len(n.entries) > 0)
	return b.String()
}

func writeFlow(b *strings.Builder, n *node, inside bool) {
	switch n.kind {
	case rawjson.Object:
		b.WriteByte('{')
		for i, e := range n.entries {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(quoted(e.name, true) + ": ")
			writeFlow(b, e.value, true)
		}
		b.WriteByte('}')
	case rawjson.Array:
		b.WriteByte('[')
		for i, e := range n.entries {
			if i > 0 {
				b.WriteString(", ")
			}
			writeFlow(b, e.value, true)
		}
		b.WriteByte(']')
	default:
		b.WriteString(scalar(n.text, inside))
	}
}

// indentJSON returns a value as JSON, on lines that begin with a prefix and are indented by a unit, or on one line without a unit.
func indentJSON(n *node, prefix, unit, newline string) []byte {
	text := n.appendJSON(nil)
	if unit == "" {
		return text
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, prefix, unit); err != nil {
		return text
	}
	if newline != "\n" {
		return bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte(newline))
	}
	return b.Bytes()
}
