package manifest

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// build returns the node of what a value is to become, with the comments, quotes and order of the text, and with aliases and merge keys
// written out.
func (p *pair) build() (*yaml.Node, error) {
	from := *p
	for from.node != nil && from.node.Kind == yaml.AliasNode {
		from.node = from.node.Alias
	}
	isObject := from.node != nil && from.node.Kind == yaml.MappingNode && from.old.Kind() == rawjson.Object && from.want.Kind() == rawjson.Object
	isArray := from.node != nil && from.node.Kind == yaml.SequenceNode && from.old.Kind() == rawjson.Array && from.want.Kind() == rawjson.Array
	isScalar := from.node != nil && from.node.Kind == yaml.ScalarNode && from.isEqual()
	var y *yaml.Node
	if isObject || isArray || isScalar {
		written := *from.node
		y = &written
		y.Content, y.Anchor = nil, ""
		if !from.isEqual() {
			y.Style &^= yaml.FlowStyle
		}
	} else {
		y = newNode(from.want)
	}
	if from.node != nil {
		y.HeadComment, y.LineComment, y.FootComment = p.node.HeadComment, p.node.LineComment, p.node.FootComment
	}
	if !isObject && !isArray {
		return y, nil
	}
	if from.node.Kind == yaml.MappingNode { // comments beside merge keys
		for i := 0; i+1 < len(from.node.Content); i += 2 {
			if key, value := *from.node.Content[i], *from.node.Content[i+1]; isMerge(&key) {
				for _, comment := range []*string{&key.HeadComment, &key.LineComment, &value.LineComment, &key.FootComment} {
					moveComment(&y.HeadComment, comment)
				}
			}
		}
	}
	inner, err := from.inner()
	if err != nil {
		return nil, err
	}
	for i := range inner {
		member := &inner[i]
		if member.isRemoved() {
			continue
		}
		value, err := member.build()
		if err != nil {
			return nil, err
		}
		head := &value.HeadComment
		if isObject {
			key := member.buildKey()
			head = &key.HeadComment
			if value.Kind != yaml.ScalarNode && len(value.Content) == 0 {
				moveComment(head, &key.LineComment)
			}
			y.Content = append(y.Content, key)
		}
		if value.Kind != yaml.ScalarNode && value.Style&yaml.FlowStyle == 0 {
			moveComment(head, &value.LineComment)
		}
		y.Content = append(y.Content, value)
	}
	return y, nil
}

// moveComment moves a comment that the encoder would put in a wrong place to a line of its own.
func moveComment(to, from *string) {
	*to, *from = strings.Trim(*to+"\n"+*from, "\n"), ""
}

func (p *pair) buildKey() *yaml.Node {
	if p.key == nil || p.key.Kind != yaml.ScalarNode {
		return newString(p.name)
	}
	key := *p.key
	key.Anchor = ""
	return &key
}

// newNode returns the node of a new value.
func newNode(v rawjson.Value) *yaml.Node {
	y := &yaml.Node{}
	switch v.Kind() {
	case rawjson.Object:
		type member struct {
			name  string
			value rawjson.Value
		}
		var members []member
		for name, value := range v.Members() {
			members = append(members, member{name.Text(), value})
		}
		slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(rank(a.name), rank(b.name)) })
		y.Kind = yaml.MappingNode
		for _, m := range members {
			y.Content = append(y.Content, newString(m.name), newNode(m.value))
		}
	case rawjson.Array:
		y.Kind = yaml.SequenceNode
		for _, element := range v.Elements() {
			y.Content = append(y.Content, newNode(element))
		}
	case rawjson.String:
		return newString(v.Text())
	default:
		y.Kind, y.Value = yaml.ScalarNode, string(v)
	}
	return y
}

// rank orders the members of a new object: name and image are first.
func rank(name string) int {
	switch name {
	case "name":
		return 0
	case "image":
		return 1
	default:
		return 2
	}
}

// newString returns the node of a new string, with the quotes that readers of YAML 1.1 and 1.2 need.
func newString(s string) *yaml.Node {
	var y yaml.Node
	err := y.Encode(s)
	if err == nil && y.Kind == yaml.ScalarNode && y.Value == s && !needsEscape(s) {
		return &y
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
}

// needsEscape reports whether a string has what readers may drop or take for the end of a line, such as space before one.
func needsEscape(s string) bool {
	body := strings.TrimSuffix(s, "\n")
	return strings.Contains(s, "\n") && strings.Trim(body, " \n") != body || strings.Contains(s, " \n") || strings.ContainsAny(s, "\r\t\u0085\u2028\u2029\ufeff")
}

// style is how a document is written.
type style struct {
	// member is how far the members of an object are indented below the key that they belong to, sequence the dashes of an array.
	// They are -1 until they are known.
	member, sequence int
	newline          string
}

// learn completes the style by that of a node.
func (s *style) learn(n *yaml.Node) {
	if n.Kind == yaml.AliasNode || s.member >= 0 && s.sequence >= 0 {
		return
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && child.Line > n.Content[i-1].Line && child.Style&yaml.FlowStyle == 0 && len(child.Content) > 0 {
			column := child.Column - n.Content[i-1].Column
			switch {
			case child.Kind == yaml.MappingNode && s.member < 0:
				s.member = child.Content[0].Column - n.Content[i-1].Column
			case child.Kind == yaml.SequenceNode && s.sequence < 0 && column >= 0:
				s.sequence = column
			}
		}
		s.learn(child)
	}
}

// encode returns the text of a node.
func (s style) encode(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(max(s.member, 2))
	if s.sequence <= 0 {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(n); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// lines returns a text with its lines indented to a column.
func (s style) lines(text []byte, column int) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if len(line) > 1 {
			out = append(out, bytes.Repeat([]byte(" "), column)...)
		}
		out = append(append(out, bytes.TrimSuffix(line, []byte("\n"))...), s.newline...)
	}
	return out
}
