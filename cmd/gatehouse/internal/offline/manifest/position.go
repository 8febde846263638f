package manifest

import (
	"bytes"
	"strconv"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// Line returns the line of the file, from 1, of a part of the object. The path has names and indexes from the object. For a part that
// is not in the text it is the line of the nearest part around it, and for a document that cannot be read where reading ended.
func (o *Object) Line(path ...string) int {
	if o.Unreadable != nil {
		return max(o.document.unreadable.line, o.document.line)
	}
	whole := append(steps(o.prefix), path...)
	if o.document.json {
		return o.document.lineInJSON(whole)
	}
	return o.document.lineInYAML(whole)
}

// lineInJSON follows a path as far as it leads.
func (d *document) lineInJSON(path []string) int {
	at := 0
	value := d.value
	for _, step := range path {
		next, from := member(value, step)
		offset, ok := rawjson.Offset(d.text, from)
		if !ok {
			break
		}
		at, value = offset, next
	}
	return d.line + bytes.Count(d.text[:at], []byte("\n"))
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

// lineInYAML is lineInJSON of a YAML document.
func (d *document) lineInYAML(path []string) int {
	if d.nodes == nil {
		d.nodes = new(yaml.Node)
		if yaml.Unmarshal(d.text, d.nodes) != nil {
			d.nodes = new(yaml.Node) // another reader could; the document's first line will do
		}
	}
	if len(d.nodes.Content) != 1 {
		return d.line
	}
	node := d.nodes.Content[0]
	line := node.Line
	for _, step := range path {
		var from *yaml.Node
		if node, from = memberNode(node, step); node == nil {
			break
		}
		line = from.Line
	}
	return d.line + line - 1
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
