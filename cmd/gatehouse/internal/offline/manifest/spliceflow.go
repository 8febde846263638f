package manifest

import (
	"bytes"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// rewriteFlow replaces a value in brackets.
func (s *splicer) rewriteFlow(n *node, e *entry) error {
	text := s.flowValue(e.value, s.indent(e.from), s.unitIn(n))
	old := e.was.at
	switch {
	case old.start < old.end:
		s.put(old.start, old.end, []byte(text))
	case n.kind == rawjson.Object && s.byteAt(e.colon-1) == ':':
		s.put(e.colon, e.colon, []byte(" "+text))
	default:
		return errReencode
	}
	return nil
}

// changeFlow removes entries in brackets and inserts new ones.
func (s *splicer) changeFlow(n *node, kept []bool) error {
	entries := n.at.entries
	if n.at.bare {
		return errReencode
	}
	if !slices.Contains(kept, true) {
		return s.refill(n)
	}
	separator, unit := s.separator(n), s.unitIn(n)
	prefix := s.indent(entries[0].from)
	var front strings.Builder
	last := -1
	for _, e := range n.entries {
		switch {
		case !e.fresh:
			last = slices.Index(entries, e)
		case last < 0:
			front.WriteString(s.flowEntry(n, e, prefix, unit) + separator)
		default:
			s.put(entries[last].end(), entries[last].end(), []byte(separator+s.flowEntry(n, e, prefix, unit)))
		}
	}
	first := slices.Index(kept, true)
	s.put(entries[first].from, entries[first].from, []byte(front.String()))
	if first > 0 {
		if s.hasComment(entries[:first+1]) {
			return errReencode
		}
		s.put(entries[0].from, entries[first].from, nil)
	}
	for i := first + 1; i < len(entries); i++ {
		if kept[i] {
			continue
		}
		if s.hasComment(entries[i-1 : i+1]) {
			return errReencode
		}
		s.put(entries[i-1].end(), entries[i].end(), nil)
	}
	return nil
}

// refill replaces all entries in brackets.
func (s *splicer) refill(n *node) error {
	from, to := n.at.content+1, n.at.end-1
	entries := n.at.entries
	edges := [][]byte{s.data[from:to]}
	if len(entries) > 0 {
		edges = [][]byte{s.data[from:entries[0].from], s.data[entries[len(entries)-1].end():to]}
	}
	if slices.ContainsFunc(edges, func(edge []byte) bool { return bytes.IndexByte(edge, '#') >= 0 }) || s.hasComment(entries) {
		return errReencode
	}
	outer, unit := s.indent(n.at.content), s.unit()
	// A space after the opening bracket is kept at both ends.
	opened, separator, closed := "", s.comma(), ""
	if edge := edges[0]; bytes.IndexByte(edge, '\n') < 0 && bytes.Equal(edge, edges[len(edges)-1]) {
		opened, closed = string(edge), string(edge)
	}
	if unit != "" {
		opened, separator, closed = s.newline+outer+unit, ","+s.newline+outer+unit, s.newline+outer
	}
	texts := make([]string, len(n.entries))
	for i, e := range n.entries {
		texts[i] = s.flowEntry(n, e, outer+unit, unit)
	}
	if len(texts) == 0 {
		closed = ""
		if unit != "" {
			opened = ""
		}
	}
	s.put(from, to, []byte(opened+strings.Join(texts, separator)+closed))
	return nil
}

// separator returns the text between two entries in these brackets.
func (s *splicer) separator(n *node) string {
	entries := n.at.entries
	if len(entries) > 1 && !s.hasComment(entries[:2]) {
		return string(s.data[entries[0].end():entries[1].from])
	}
	if s.line(entries[0].from) > s.line(n.at.content) {
		return "," + s.newline + s.indent(entries[0].from)
	}
	return s.comma()
}

// comma returns the text between two entries on one line.
func (s *splicer) comma() string {
	if s.json && s.unit() == "" && !bytes.Contains(s.data, []byte(", ")) {
		return ","
	}
	return ", "
}

// flowEntry returns an entry in brackets.
func (s *splicer) flowEntry(n *node, e *entry, prefix, unit string) string {
	value := s.flowValue(e.value, prefix, unit)
	switch {
	case n.kind != rawjson.Object:
		return value
	case !s.json:
		return quoted(e.name, true) + ": " + value
	case bytes.Contains(s.data, []byte(`": `)) || s.unit() != "":
		return string(rawjson.AppendString(nil, e.name)) + ": " + value
	default:
		return string(rawjson.AppendString(nil, e.name)) + ":" + value
	}
}

// flowValue returns a value in brackets. In JSON its lines begin with the prefix and are indented by the unit; without a unit it is on
// one line, as always in YAML.
func (s *splicer) flowValue(n *node, prefix, unit string) string {
	if s.json {
		return string(indentJSON(n, prefix, unit, s.newline))
	}
	var b strings.Builder
	writeFlow(&b, n, true)
	return b.String()
}

// unit returns the indentation of a level of JSON. It is empty for JSON on one line, and in YAML.
func (s *splicer) unit() string {
	if entries := s.root.at.entries; s.json && len(entries) > 0 && s.line(entries[0].from) > s.line(s.root.at.content) {
		return s.indent(entries[0].from)
	}
	return ""
}

// unitIn returns the unit in brackets: none if they are on one line.
func (s *splicer) unitIn(n *node) string {
	if len(n.at.entries) > 0 && s.line(n.at.content) == s.line(n.at.end) {
		return ""
	}
	return s.unit()
}

// indent returns the space at the beginning of the line of i.
func (s *splicer) indent(i int) string {
	line := s.data[s.lineStart(i):i]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}
