package manifest

import (
	"bytes"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// encodeNodes returns a document encoded anew from its nodes, with its comments, but not its blank lines and quotes. Either the aliases
// outside of changes are kept, or all are written out.
func encodeNodes(d *yaml.Node, root *node, written style, keep bool) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(max(written.member, 2))
	if written.sequence == 0 {
		encoder.CompactSeqIndent()
	}
	content := root.yaml(keep)
	plainMerges(content)
	if err := encoder.Encode(&yaml.Node{
		Kind: yaml.DocumentNode, Content: []*yaml.Node{content},
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

// plainMerges removes the tags of merge keys, which the encoder would write.
func plainMerges(y *yaml.Node) {
	for i, child := range y.Content {
		if y.Kind == yaml.MappingNode && i%2 == 0 && isMerge(child) {
			key := *child
			key.Tag = ""
			y.Content[i] = &key
		}
		plainMerges(child)
	}
}

// yaml returns the node of a value. Aliases are written out, unless valid ones are to be kept.
func (n *node) yaml(keep bool) *yaml.Node {
	switch {
	case keep && n.at != nil && !n.changed:
		return n.at.yaml
	case n.isAlias():
		return withComments(newNode(n.text).yaml(keep), n.at.yaml)
	}
	y := &yaml.Node{}
	if n.at != nil {
		*y = *n.at.yaml
	}
	if y.Content = nil; !keep {
		y.Anchor = ""
	}
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
	merged := keep && n.at != nil && len(n.at.merges) > 0 && !n.unmerged
	if merged {
		for _, e := range n.at.entries {
			if isMerge(e.key) {
				y.Content = append(y.Content, e.key, e.value.at.yaml)
			}
		}
	}
	for _, e := range n.entries {
		if merged && e.inherited {
			continue
		}
		if n.kind == rawjson.Object {
			y.Content = append(y.Content, e.yamlKey())
		}
		value := e.value.yaml(keep)
		if e.was != nil {
			value = withComments(value, e.was.at.yaml)
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

// newScalar returns the node of a new value.
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

// withComments returns a node with the comments of another.
func withComments(y, from *yaml.Node) *yaml.Node {
	y.HeadComment, y.LineComment, y.FootComment = from.HeadComment, from.LineComment, from.FootComment
	return y
}
