package manifest

import (
	"bytes"
	"strconv"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// JSON is the JSON text of the object, as it was written but for what a typed
// list, such as PodList, says about all of its items. It shares memory with the
// file and must not be changed. It is nil for what is no object.
func (o *Object) JSON() []byte {
	if o.value.Kind() != rawjson.Object {
		return nil
	}
	var missing []byte
	for _, member := range []struct{ name, value string }{{"apiVersion", o.apiVersion}, {"kind", o.Kind}} {
		if absent(o.value.Get(member.name)) && member.value != "" {
			missing = append(rawjson.AppendString(append(missing, ','), member.name), ':')
			missing = rawjson.AppendString(missing, member.value)
		}
	}
	if missing == nil {
		return o.value
	}
	text := []byte{'{'}
	for name, value := range o.value.Members() {
		if !name.Is("apiVersion") && !name.Is("kind") || !absent(value) {
			text = append(append(append(append(text, name...), ':'), value...), ',')
		}
	}
	return append(append(text, missing[1:]...), '}')
}

// GroupVersionKind is what the object says that it is. A version that is none
// leaves group and version empty.
func (o *Object) GroupVersionKind() schema.GroupVersionKind {
	version, err := schema.ParseGroupVersion(o.apiVersion)
	if err != nil {
		return schema.GroupVersionKind{Kind: o.Kind}
	}
	return version.WithKind(o.Kind)
}

// Line is the line of the file, from 1, in which a part of the object stands:
// that of a member its name, that of an element its beginning. The path is that
// of names, and indexes of lists, from the object. Of what is not there, as an
// alias brings it or nobody has written it, it is the line of the nearest part
// around it that is. Of a document that cannot be read it is where reading ended,
// as far as that is known.
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

// member is a member or element of a value, and where it begins.
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
