package manifest

import (
	"bytes"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// reencoded is a document written anew from its nodes: with its comments, but
// without aliases, and with other blank lines and quotes than it had.
func reencoded(d *yaml.Node, root *node, written style) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(max(written.member, 2))
	if written.sequence == 0 {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(&yaml.Node{
		Kind: yaml.DocumentNode, Content: []*yaml.Node{root.yaml()},
		HeadComment: d.HeadComment, LineComment: d.LineComment, FootComment: d.FootComment,
	}); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	if written.newline != "\n" {
		return bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte(written.newline)), nil
	}
	return b.Bytes(), nil
}

// yaml is the node of a value. What an alias stands for is written out.
func (n *node) yaml() *yaml.Node {
	if n.isAlias() {
		return commented(newNode(n.text).yaml(), n.at.yaml)
	}
	y := &yaml.Node{}
	if n.at != nil {
		*y = *n.at.yaml
	}
	y.Anchor, y.Content = "", nil
	switch n.kind {
	case rawjson.Object:
		y.Kind = yaml.MappingNode
	case rawjson.Array:
		y.Kind = yaml.SequenceNode
	default:
		if n.at == nil {
			y = newScalar(n.text)
		}
		return y
	}
	if n.at == nil || (len(n.at.entries) == 0 && len(n.entries) > 0) {
		y.Style &^= yaml.FlowStyle
	}
	for _, e := range n.entries {
		if n.kind == rawjson.Object {
			y.Content = append(y.Content, e.yamlKey())
		}
		value := e.value.yaml()
		if e.was != nil {
			value = commented(value, e.was.at.yaml)
		}
		y.Content = append(y.Content, value)
	}
	return y
}

func (e *entry) yamlKey() *yaml.Node {
	if e.key == nil || e.key.Kind != yaml.ScalarNode {
		return newScalar(rawjson.AppendString(nil, e.name))
	}
	key := *e.key
	key.Anchor = ""
	return &key
}

// newScalar is the node of a new value.
func newScalar(v rawjson.Value) *yaml.Node {
	y := &yaml.Node{Kind: yaml.ScalarNode, Value: string(v)}
	if v.Kind() != rawjson.String {
		return y
	}
	y.Tag, y.Value = "!!str", v.Text()
	if _, _, ok := literal(y.Value); ok {
		y.Style = yaml.LiteralStyle
		return y
	}
	switch quoted(y.Value, false)[:1] {
	case "'":
		y.Style = yaml.SingleQuotedStyle
	case `"`:
		y.Style = yaml.DoubleQuotedStyle
	}
	return y
}

// commented is a node with the comments of another.
func commented(y, from *yaml.Node) *yaml.Node {
	y.HeadComment, y.LineComment, y.FootComment = from.HeadComment, from.LineComment, from.FootComment
	return y
}
