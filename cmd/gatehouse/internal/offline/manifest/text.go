package manifest

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// text is a YAML document with its lines as the YAML parser counts them.
type text struct {
	data []byte
	// starts are where the lines begin.
	starts []int
}

func newText(data []byte) *text {
	t := &text{data: data, starts: []int{0}}
	for i := 0; i < len(data); {
		if size := breakAt(data, i); size > 0 {
			i += size
			t.starts = append(t.starts, i)
			continue
		}
		i++
	}
	return t
}

// breakAt returns the size of the line break at i, or 0. YAML 1.1 has more of them than \n.
func breakAt(data []byte, i int) int {
	rest := data[i:]
	switch {
	case len(rest) == 0:
		return 0
	case rest[0] == '\n':
		return 1
	case rest[0] == '\r':
		if len(rest) > 1 && rest[1] == '\n' {
			return 2
		}
		return 1
	case bytes.HasPrefix(rest, []byte("\u0085")):
		return len("\u0085")
	case bytes.HasPrefix(rest, []byte("\u2028")), bytes.HasPrefix(rest, []byte("\u2029")):
		return len("\u2028")
	default:
		return 0
	}
}

// lineOf returns the index of the line of offset i.
func (t *text) lineOf(i int) int {
	at, found := slices.BinarySearch(t.starts, i)
	if found {
		return at
	}
	return at - 1
}

// start returns where a line begins. Behind the last line it is the end of the text.
func (t *text) start(line int) int {
	if line < len(t.starts) {
		return t.starts[line]
	}
	return len(t.data)
}

// line returns a line without its break.
func (t *text) line(line int) []byte {
	return bytes.TrimRight(t.data[t.start(line):t.start(line+1)], "\r\n\u0085\u2028\u2029")
}

// indent returns how many spaces a line begins with.
func (t *text) indent(line int) int {
	return len(t.line(line)) - len(bytes.TrimLeft(t.line(line), " "))
}

// isComment reports whether a line is a comment or blank.
func (t *text) isComment(line int) bool { return !hasContent(t.line(line)) }

// offset returns where a node is, and false if the text has no such place.
func (t *text) offset(n *yaml.Node) (int, bool) {
	if n.Line < 1 || n.Line > len(t.starts) {
		return 0, false
	}
	i := t.starts[n.Line-1]
	for range n.Column - 1 {
		if i >= len(t.data) {
			return 0, false
		}
		_, size := utf8.DecodeRune(t.data[i:])
		i += size
	}
	return i, true
}

// colon returns the offset behind the colon of a key, and false if the key is not written in a simple way, on one line.
func (t *text) colon(key *yaml.Node) (int, bool) {
	i, ok := t.offset(key)
	if !ok || key.Kind != yaml.ScalarNode || i >= len(t.data) {
		return 0, false
	}
	switch quote := t.data[i]; {
	case key.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		if quote != '"' && quote != '\'' {
			return 0, false
		}
		for i++; i < len(t.data) && (t.data[i] != quote || quote == '\'' && i+1 < len(t.data) && t.data[i+1] == quote); i++ {
			if quote == '"' && t.data[i] == '\\' || quote == '\'' && t.data[i] == quote {
				i++
			}
		}
		i++
	case bytes.HasPrefix(t.data[i:], []byte(key.Value)):
		i += len(key.Value)
	default:
		return 0, false
	}
	for i < len(t.data) && (t.data[i] == ' ' || t.data[i] == '\t') {
		i++
	}
	return i + 1, i < len(t.data) && t.data[i] == ':'
}
