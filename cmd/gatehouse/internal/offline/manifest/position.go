package manifest

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
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
	return o.document.position(o.document.find(append(steps(o.prefix), path...)))
}

// Position returns where a part of a document is, as that of an Object. Documents count from 1, without those that are null.
// It returns false if there is no such document.
func (f *File) Position(number int, path ...string) (Position, bool) {
	d := f.document(number)
	if d == nil {
		return Position{}, false
	}
	return d.position(d.find(path)), true
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

// find follows a path as far as it leads, and returns where the last part begins.
func (d *document) find(path []string) (from int) {
	if !d.json {
		return d.findInYAML(path)
	}
	current := d.value
	for _, step := range path {
		next, name := member(current, step)
		at, ok := rawjson.Offset(d.text, name)
		if !ok {
			break
		}
		from, current = at, next
	}
	return from
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

// findInYAML is find in a YAML document.
func (d *document) findInYAML(path []string) (from int) {
	if d.nodes == nil {
		d.nodes = new(yaml.Node)
		if yaml.Unmarshal(d.text, d.nodes) != nil {
			d.nodes = new(yaml.Node) // another reader could; the document's first line will do
		}
	}
	if len(d.nodes.Content) != 1 {
		return 0
	}
	t, node := newText(d.text), d.nodes.Content[0]
	from, _ = t.offset(node)
	for _, step := range path {
		inner, name := memberNode(node, step)
		if inner == nil {
			break
		}
		node = inner
		from, _ = t.offset(name) // a node has a place in its own text
	}
	return from
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
