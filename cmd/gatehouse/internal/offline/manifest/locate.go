package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// text is a YAML document with its lines as the YAML parser counts them.
type text struct {
	data []byte
	// lines are where they begin.
	lines []int
}

func newText(data []byte) *text {
	t := &text{data: data, lines: []int{0}}
	for i := 0; i < len(data); {
		if size := breakAt(data, i); size > 0 {
			i += size
			t.lines = append(t.lines, i)
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

// line returns the index of the line of offset i.
func (t *text) line(i int) int {
	at, found := slices.BinarySearch(t.lines, i)
	if found {
		return at
	}
	return at - 1
}

// lineStart and lineEnd return where the line of i starts, and the next one.
func (t *text) lineStart(i int) int { return t.lines[t.line(i)] }

func (t *text) lineEnd(i int) int {
	if next := t.line(i) + 1; next < len(t.lines) {
		return t.lines[next]
	}
	return len(t.data)
}

// column returns the number of characters before i in its line.
func (t *text) column(i int) int { return utf8.RuneCount(t.data[t.lineStart(i):i]) }

// offset returns where a node is, and false if the text has no such place.
func (t *text) offset(n *yaml.Node) (int, bool) {
	if n.Line < 1 || n.Line > len(t.lines) {
		return 0, false
	}
	i := t.lines[n.Line-1]
	for range n.Column - 1 {
		if i >= len(t.data) {
			return 0, false
		}
		_, size := utf8.DecodeRune(t.data[i:])
		i += size
	}
	return i, true
}

// byteAt returns the byte at i, and a line break after the end.
func (t *text) byteAt(i int) byte {
	if i >= len(t.data) {
		return '\n'
	}
	return t.data[i]
}

// isBlank reports whether there is space, or the end of a line, at i.
func (t *text) isBlank(i int) bool {
	return t.byteAt(i) == ' ' || t.byteAt(i) == '\t' || i >= len(t.data) || breakAt(t.data, i) > 0
}

// skip returns the first offset from i on that is neither space nor in a comment.
func (t *text) skip(i int) int {
	for i < len(t.data) {
		switch {
		case t.data[i] == ' ', t.data[i] == '\t':
			i++
		case breakAt(t.data, i) > 0:
			i += breakAt(t.data, i)
		case t.data[i] == '#' && (i == 0 || t.isBlank(i-1) || i == t.lineStart(i)):
			i = t.lineEnd(i)
		default:
			return i
		}
	}
	return i
}

// locator links the nodes of a YAML document with its value, and finds where they end, which the parser does not return.
type locator struct {
	*text
	// failed reports whether the text is not as the parser's positions say. Then it cannot be changed in place.
	failed bool
}

// expect fails unless ok, and reports whether nothing has failed yet.
func (l *locator) expect(ok bool) bool {
	l.failed = l.failed || !ok
	return !l.failed
}

// locate returns the tree of a YAML document, and the document's node.
func locate(data []byte, value rawjson.Value) (*node, *yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, nil, fmt.Errorf("the text cannot be read: %w", err)
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, nil, errLink
	}
	l := locator{text: newText(data)}
	root, err := l.link(document.Content[0], value)
	if err != nil {
		return nil, nil, err
	}
	if l.place(root, -1, false); l.failed {
		root.at.start = -1 // the tree is good enough to encode the document anew
	}
	return root, &document, nil
}

// link builds the tree of a node that has a value.
func (l *locator) link(y *yaml.Node, v rawjson.Value) (*node, error) {
	n := &node{kind: v.Kind(), at: &place{yaml: y}}
	switch {
	case y.Kind == yaml.MappingNode && n.kind == rawjson.Object:
		return n, l.linkObject(n, y, v)
	case y.Kind == yaml.SequenceNode && n.kind == rawjson.Array:
		if v.Len() != len(y.Content) {
			return nil, errLink
		}
		for i, value := range v.Elements() {
			element, err := l.link(y.Content[i], value)
			if err != nil {
				return nil, err
			}
			n.entries = append(n.entries, &entry{value: element})
		}
		n.at.entries = slices.Clone(n.entries)
		return n, nil
	case y.Kind == yaml.ScalarNode && n.kind != rawjson.Object && n.kind != rawjson.Array, y.Kind == yaml.AliasNode:
		n.text = v
		return n, nil
	default:
		return nil, errLink
	}
}

// errLink is the error for a text that two readers read differently.
var errLink = errors.New("the text means different things to different readers of YAML")

func (l *locator) linkObject(n *node, y *yaml.Node, v rawjson.Value) error {
	left := make(map[string]rawjson.Value, v.Len())
	for name, value := range v.Members() {
		left[name.Text()] = value
	}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		if isMerge(key) {
			n.at.merges = append(n.at.merges, mergedFrom(y.Content[i+1])...)
			merge, err := l.link(y.Content[i+1], rawjson.Value("null"))
			if err != nil { // something other than an alias
				merge = &node{kind: rawjson.Null, text: rawjson.Value("null"), at: &place{yaml: y.Content[i+1]}}
			}
			n.at.entries = append(n.at.entries, &entry{key: key, value: merge})
			continue
		}
		name, err := keyName(key, left)
		if err != nil {
			return err
		}
		value, err := l.link(y.Content[i+1], left[name])
		if err != nil {
			return err
		}
		delete(left, name)
		e := &entry{name: name, value: value, key: key}
		n.entries = append(n.entries, e)
		n.at.entries = append(n.at.entries, e)
	}
	if len(left) > 0 && len(n.at.merges) == 0 {
		return errLink
	}
	for name, value := range v.Members() {
		if _, ok := left[name.Text()]; ok {
			inherited := &node{kind: value.Kind(), text: value, at: &place{yaml: &yaml.Node{Kind: yaml.AliasNode}}}
			n.entries = append(n.entries, &entry{name: name.Text(), value: inherited, inherited: true})
		}
	}
	return nil
}

func isMerge(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.Tag == "!!merge" }

// mergedFrom returns the nodes of the value of a merge key.
func mergedFrom(value *yaml.Node) []*yaml.Node {
	switch value.Kind {
	case yaml.AliasNode:
		return []*yaml.Node{value.Alias}
	case yaml.SequenceNode:
		var all []*yaml.Node
		for _, element := range value.Content {
			all = append(all, mergedFrom(element)...)
		}
		return all
	case yaml.DocumentNode, yaml.MappingNode, yaml.ScalarNode:
		return []*yaml.Node{value}
	default:
		return nil
	}
}

// keyName returns the name of a key in JSON, which differs for plain numbers and booleans.
func keyName(key *yaml.Node, names map[string]rawjson.Value) (string, error) {
	for key.Kind == yaml.AliasNode {
		key = key.Alias
	}
	if key.Kind != yaml.ScalarNode {
		return "", errLink
	}
	if _, ok := names[key.Value]; ok {
		return key.Value, nil
	}
	if key.Style == 0 {
		text, err := sigsyaml.YAMLToJSON([]byte("{? " + key.Value + " : null}"))
		if value, wrong := rawjson.Parse(text); err == nil && wrong == nil {
			for name := range value.Members() {
				if _, ok := names[name.Text()]; ok {
					return name.Text(), nil
				}
			}
		}
	}
	return "", errLink
}

// place finds where a node is. The indentation is that of the block around it; flow reports whether it is in brackets.
func (l *locator) place(n *node, indent int, flow bool) {
	y, at := n.at.yaml, n.at
	start, ok := l.offset(y)
	if at.start, at.content, at.end = start, start, start; !l.expect(ok) {
		return
	}
	if y.Kind == yaml.ScalarNode && y.Style&^yaml.TaggedStyle == 0 && y.Value == "" {
		l.placeEmpty(at)
		return
	}
	for range 2 { // tag and anchor
		if c := l.byteAt(at.content); c == '&' || c == '!' {
			at.content = l.skip(l.token(at.content, false))
		}
	}
	isCollection := y.Kind == yaml.MappingNode || y.Kind == yaml.SequenceNode
	switch {
	case !l.expect(at.content < len(l.data)):
	case y.Kind == yaml.AliasNode:
		at.end = l.token(at.content, flow)
	case y.Kind == yaml.ScalarNode:
		at.end = l.scalarEnd(y, at.content, indent, flow)
	case isCollection && y.Style&yaml.FlowStyle != 0:
		l.placeFlow(n)
	case y.Kind == yaml.MappingNode:
		l.placeMapping(at)
	default:
		l.placeSequence(at)
	}
}

// placeEmpty finds where a value is that has at most a tag or an anchor.
func (l *locator) placeEmpty(at *place) {
	if at.yaml.Anchor == "" && at.yaml.Style&yaml.TaggedStyle == 0 {
		return
	}
	for i := at.start; l.byteAt(i) == '&' || l.byteAt(i) == '!'; i = l.skip(at.end) {
		at.end = l.token(i, true)
	}
	at.content = at.end
}

// token returns the end of the tag, anchor or alias at i.
func (l *locator) token(i int, flow bool) int {
	for !l.isBlank(i) && (!flow || strings.IndexByte(",[]{}", l.byteAt(i)) < 0) {
		i++
	}
	return i
}

func (l *locator) placeMapping(at *place) {
	at.block, at.column = true, l.column(at.content)
	next := at.content
	for _, e := range at.entries {
		from, ok := l.offset(e.key)
		// Another place is that of a complex key (? …).
		if e.from = from; !l.expect(ok && from == next && l.column(from) == at.column) {
			return
		}
		end := l.keyEnd(e.key, e.from, false)
		for l.byteAt(end) == ' ' || l.byteAt(end) == '\t' {
			end++
		}
		if e.colon = end + 1; !l.expect(l.byteAt(end) == ':') || !l.placeValue(e, at.column, false) {
			return
		}
		at.end = e.end()
		next = l.skip(at.end)
	}
}

func (l *locator) placeSequence(at *place) {
	at.block, at.column = true, l.column(at.content)
	dash := at.content
	for _, e := range at.entries {
		e.from, e.colon = dash, dash+1
		if !l.expect(l.byteAt(dash) == '-' && l.isBlank(dash+1) && l.column(dash) == at.column) || !l.placeValue(e, at.column, false) {
			return
		}
		at.end = e.end()
		dash = l.skip(at.end)
	}
}

// placeValue finds where the value of an entry is, or would be, and reports whether nothing has failed.
func (l *locator) placeValue(e *entry, indent int, flow bool) bool {
	l.place(e.value, indent, flow)
	at := e.value.at
	if at.start == at.end {
		at.start, at.content, at.end = e.colon, e.colon, e.colon
		return !l.failed
	}
	return l.expect(l.skip(e.colon) == at.start)
}

func (l *locator) placeFlow(n *node) {
	at := n.at
	brackets := "[]"
	if n.kind == rawjson.Object {
		brackets = "{}"
	}
	at.bare = l.byteAt(at.content) != brackets[0]
	if !l.expect(!at.bare || n.kind == rawjson.Object && len(at.entries) == 1) {
		return
	}
	next := at.content
	if !at.bare {
		next++
	}
	for i, e := range at.entries {
		next = l.skip(next)
		if i > 0 {
			if !l.expect(l.byteAt(next) == ',') {
				return
			}
			next = l.skip(next + 1)
		}
		if e.from, e.colon = next, next; n.kind == rawjson.Object {
			l.placeKey(e)
		}
		if l.failed || !l.placeValue(e, -1, true) {
			return
		}
		next = e.end()
	}
	if at.end = next; at.bare {
		return
	}
	if at.end = l.skip(at.end); l.byteAt(at.end) == ',' && len(at.entries) > 0 {
		at.end = l.skip(at.end + 1)
	}
	l.expect(l.byteAt(at.end) == brackets[1])
	at.end++
}

// placeKey finds the key of a member in flow style, and the colon if it has one.
func (l *locator) placeKey(e *entry) {
	from, ok := l.offset(e.key)
	if !l.expect(ok && from == e.from) {
		return
	}
	e.colon = l.keyEnd(e.key, from, true)
	if colon := l.skip(e.colon); l.byteAt(colon) == ':' {
		e.colon = colon + 1
	}
}

func (l *locator) keyEnd(key *yaml.Node, i int, flow bool) int {
	c := l.byteAt(i)
	if !l.expect(key.Kind == yaml.ScalarNode && c != '&' && c != '!' && (c != '?' || !l.isBlank(i+1))) || key.Value == "" && key.Style == 0 {
		return i
	}
	return l.scalarEnd(key, i, -1, flow)
}

// scalarEnd returns the end of a scalar that starts at i.
func (l *locator) scalarEnd(y *yaml.Node, i, indent int, flow bool) int {
	switch {
	case y.Style&yaml.DoubleQuotedStyle != 0:
		return l.quotedEnd(i, '"')
	case y.Style&yaml.SingleQuotedStyle != 0:
		return l.quotedEnd(i, '\'')
	case y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return l.blockEnd(i, indent)
	default:
		return l.plainEnd(i, indent, flow)
	}
}

func (l *locator) quotedEnd(i int, quote byte) int {
	if !l.expect(l.byteAt(i) == quote) {
		return i
	}
	for i++; i < len(l.data); i++ {
		switch {
		case quote == '"' && l.data[i] == '\\':
			i++
		case l.data[i] != quote:
		case quote == '\'' && l.byteAt(i+1) == quote:
			i++
		default:
			return i + 1
		}
	}
	l.failed = true
	return len(l.data)
}

// blockEnd returns the end of a literal or folded scalar. Blank lines after it belong to it if its header has a "+".
func (l *locator) blockEnd(i, indent int) int {
	if c := l.byteAt(i); !l.expect(c == '|' || c == '>') {
		return i
	}
	header := l.data[i:l.token(i, false)]
	end := i + len(header)
	least := -1 // the indentation of the content
	if at := bytes.IndexAny(header, "123456789"); at >= 0 {
		least = max(indent, 0) + int(header[at]-'0')
	}
	keep := bytes.IndexByte(header, '+') >= 0
	for next := l.lineEnd(i); next < len(l.data); next = l.lineEnd(next) {
		line := bytes.TrimRight(l.data[next:l.lineEnd(next)], "\r\n\u0085\u2028\u2029")
		spaces := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case spaces == len(line) && (least < 0 || spaces <= least):
			if keep {
				end = next + len(line)
			}
			continue
		case least < 0 && spaces > indent:
			least = spaces
		case spaces < least, least < 0:
			return end
		}
		end = next + len(line)
	}
	return end
}

// plainEnd returns the end of a scalar without quotes.
func (l *locator) plainEnd(i, indent int, flow bool) int {
	end := i
	for {
		for i < len(l.data) && breakAt(l.data, i) == 0 {
			c := l.data[i]
			switch {
			case c == ':' && (l.isBlank(i+1) || flow && strings.IndexByte(",[]{}", l.byteAt(i+1)) >= 0):
				return end
			case c == '#' && (i == 0 || l.isBlank(i-1) || i == l.lineStart(i)):
				return end
			case flow && strings.IndexByte(",[]{}", c) >= 0:
				return end
			case c != ' ' && c != '\t':
				end = i + 1
			}
			i++
		}
		// A line that is indented more than the block goes on with it.
		for i < len(l.data) && l.isBlank(i) {
			i += max(1, breakAt(l.data, i))
		}
		if i >= len(l.data) || l.data[i] == '#' || (!flow && l.column(i) <= indent) {
			return end
		}
	}
}
