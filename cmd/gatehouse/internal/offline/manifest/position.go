package manifest

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// JSON returns the JSON of the object as written, with the version and kind of a typed list such as PodList. It shares memory with the
// file and must not be changed. It is nil for what is no object.
func (o *Object) JSON() []byte {
	if o.value.Kind() != rawjson.Object {
		return nil
	}
	var missing []byte
	var names []string
	for _, member := range []struct{ name, value string }{{"apiVersion", o.apiVersion}, {"kind", o.Kind}} {
		if isAbsent(o.value.Get(member.name)) && member.value != "" {
			names = append(names, member.name)
			missing = append(rawjson.AppendString(append(missing, ','), member.name), ':')
			missing = rawjson.AppendString(missing, member.value)
		}
	}
	if missing == nil {
		return o.value
	}
	text := append(appendMembers(nil, o.value, names...), missing...)
	text[0] = '{'
	return append(text, '}')
}

// GroupVersionKind returns the kind of the object. Group and version are empty if apiVersion is invalid.
func (o *Object) GroupVersionKind() schema.GroupVersionKind {
	version, err := schema.ParseGroupVersion(o.apiVersion)
	if err != nil {
		return schema.GroupVersionKind{Kind: o.Kind}
	}
	return version.WithKind(o.Kind)
}

// Position is a place in a file. Line and Column count from 1, and Column counts characters.
type Position struct{ Line, Column int }

// Line returns the line of a part of the object, see Position.
func (o *Object) Line(path ...string) int { return o.Position(path...).Line }

// Position returns where a part of the object begins: the name of a member, or an element. The path has names and indexes
// from the object. For a part that is not in the text it is the position of the nearest part around it, and for a document that
// cannot be read where reading ended. If the object is Rendered, lines count from the first line behind the comment.
func (o *Object) Position(path ...string) Position {
	if o.Unreadable != nil {
		return Position{max(o.document.unreadable.line, o.document.line, 1), 1}
	}
	from, _, _ := o.document.find(append(steps(o.prefix), path...))
	return o.document.position(from)
}

// Position returns where a part of a document is, as that of an Object. Documents count from 1, without those that are null.
// It returns false if there is no such document.
func (f *File) Position(number int, path ...string) (Position, bool) {
	d := f.document(number)
	if d == nil {
		return Position{}, false
	}
	from, _, _ := d.find(path)
	return d.position(from), true
}

// ExpressionPosition returns where a place in the expression at the path is. It returns false if the expression is not in the
// text as it is, or as one scalar.
func (f *File) ExpressionPosition(number int, in diagnostic.Place, path ...string) (Position, bool) {
	d := f.document(number)
	if d == nil {
		return Position{}, false
	}
	_, value, found := d.find(path)
	if !found {
		return Position{}, false
	}
	offset, found := findExpression(d.text[value:], in)
	return d.position(value + offset), found
}

func (f *File) document(number int) *document {
	for _, d := range f.documents {
		if d.unreadable == nil && d.value.Kind() == rawjson.Null {
			continue
		}
		if number--; number == 0 {
			return d
		}
	}
	return nil
}

// position returns the position of an offset.
func (d *document) position(offset int) Position {
	before, line := d.text[:offset], 0
	if d.json {
		line = bytes.Count(before, []byte("\n"))
		before = before[bytes.LastIndexByte(before, '\n')+1:]
	} else {
		t := newText(d.text)
		line = t.lineOf(offset)
		before = d.text[t.start(line):offset]
	}
	column := utf8.RuneCount(before) + 1
	if line == 0 {
		column += d.indent
	}
	return Position{max(d.line+line, 1), column}
}

// find follows a path as far as it leads, and returns where the last part and its value begin. It returns false if the path
// leads further.
func (d *document) find(path []string) (from, value int, found bool) {
	if d.json {
		return d.findInJSON(path)
	}
	return d.findInYAML(path)
}

func (d *document) findInJSON(path []string) (from, value int, found bool) {
	current := d.value
	for _, step := range path {
		next, name := member(current, step)
		at, ok := rawjson.Offset(d.text, name)
		if !ok {
			return from, value, false
		}
		from, current = at, next
		value, _ = rawjson.Offset(d.text, next) // it stands behind the name
	}
	return from, value, true
}

// member returns a member or element of a value, and where it begins.
func member(value rawjson.Value, step string) (inner, from rawjson.Value) {
	for name, inner := range value.Members() {
		if name.Is(step) {
			return inner, name
		}
	}
	for i, inner := range value.Elements() {
		if strconv.Itoa(i) == step {
			return inner, inner
		}
	}
	return nil, nil
}

// findInYAML is findInJSON of a YAML document.
func (d *document) findInYAML(path []string) (from, value int, found bool) {
	if d.nodes == nil {
		d.nodes = new(yaml.Node)
		if yaml.Unmarshal(d.text, d.nodes) != nil {
			d.nodes = new(yaml.Node) // another reader could; the document's first line will do
		}
	}
	if len(d.nodes.Content) != 1 {
		return 0, 0, false
	}
	t, node := newText(d.text), d.nodes.Content[0]
	from, _ = t.offset(node)
	value = from
	for _, step := range path {
		inner, name := memberNode(node, step)
		if inner == nil {
			return from, value, false
		}
		node = inner
		from, _ = t.offset(name) // a node has a place in its own text, here and below
		value, _ = t.offset(inner)
	}
	return from, value, true
}

// memberNode is member of a YAML node.
func memberNode(node *yaml.Node, step string) (inner, from *yaml.Node) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1], node.Content[i]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	case yaml.DocumentNode, yaml.ScalarNode, yaml.AliasNode:
	}
	return nil, nil
}

// findExpression returns the offset in the source of a scalar of a place in the expression that is part of it. Source and expression are
// compared without white space, which block scalars, folded lines and escapes change.
func findExpression(source []byte, in diagnostic.Place) (int, bool) {
	lines := strings.SplitAfter(in.Text, "\n")
	if in.Line > len(lines) {
		return 0, false
	}
	last := []rune(lines[in.Line-1])
	before := 0
	for _, r := range strings.Join(lines[:in.Line-1], "") + string(last[:min(in.Column-1, len(last))]) {
		if !unicode.IsSpace(r) {
			before++
		}
	}
	const header = 200 // bytes: a tag, the header of a block scalar, text in front of a placeholder
	most := min(len(source), header+2*len(in.Text))
	var starts []int // those of placeholders first
	for i := range most {
		if rest, ok := bytes.CutPrefix(source[i:], []byte("${")); ok {
			starts = append(starts, len(source)-len(bytes.TrimLeftFunc(rest, unicode.IsSpace)))
		}
	}
	for i := range min(header, most) {
		starts = append(starts, i)
	}
	for _, start := range starts {
		if at, ok := matchExpression(source, start, in.Text, before); ok {
			return at, true
		}
	}
	return 0, false
}

// matchExpression reports whether the source from start on is the expression, and returns the offset of the character behind this many
// others.
func matchExpression(source []byte, start int, text string, before int) (offset int, ok bool) {
	i := start
	skip := func() {
		for i < len(source) {
			switch {
			case source[0] == '"' && (bytes.HasPrefix(source[i:], []byte(`\n`)) || bytes.HasPrefix(source[i:], []byte(`\t`))):
				i += 2
			case source[i] == ' ' || breakAt(source, i) > 0 || source[i] == '\t':
				i++
			default:
				return
			}
		}
	}
	for _, r := range text {
		if unicode.IsSpace(r) {
			continue
		}
		if skip(); before == 0 {
			offset = i
		}
		before--
		if i+1 < len(source) && (source[0] == '"' && source[i] == '\\' || source[0] == '\'' && source[i] == '\'' && source[i+1] == '\'') {
			i++
		}
		next, size := utf8.DecodeRune(source[min(i, len(source)):])
		if next != r || size == 0 {
			return 0, false
		}
		i += size
	}
	if before >= 0 {
		offset = i
	}
	return offset, true
}
