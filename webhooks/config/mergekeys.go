package config

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// mergeKey is the key that merges the members of other mappings into its own.
const mergeKey = "<<"

// decodeMerged decodes a document whose strict decoding failed because a key and a merge key give the same member. A key behind the
// merge key overrides the merged one, in YAML and for kubectl. One in front of it overrides in YAML, and is overridden for kubectl, so
// that the merge key must be the first. Keys that are given twice without a merge key are problems too. Decoded is false if there is no
// merge key.
func (c chunk) decodeMerged() (value any, problems []problem, decoded bool) {
	var root yamlv3.Node
	if yamlv3.Unmarshal(c.text, &root) != nil {
		return nil, nil, false
	}
	var merges []*yamlv3.Node
	var visit func(*yamlv3.Node)
	visit = func(n *yamlv3.Node) {
		for i, child := range n.Content {
			if n.Kind == yamlv3.MappingNode && i%2 == 0 && child.Tag == "!!merge" {
				merges = append(merges, child)
				if i > 0 {
					p := broken(c.line+child.Line-1, "the merge key << is not the first key of its mapping", "put << first: keys behind it override what it merges")
					problems = append(problems, p.problems...)
				}
			}
			visit(child)
		}
	}
	visit(&root)
	if len(merges) == 0 || len(problems) > 0 {
		return nil, problems, len(problems) > 0
	}
	// With merge keys as ordinary ones, what is still given twice is a mistake.
	text, ok := c.withoutMerges(merges)
	if !ok {
		return nil, nil, false
	}
	_, err := decodeYAML(text, true)
	if mistakes, is := errors.AsType[*yaml.TypeError](err); is {
		return nil, c.problems(mistakes), true
	}
	if err == nil {
		value, err = decodeYAML(c.text, false)
	}
	return value, nil, err == nil
}

// withoutMerges returns the text with ordinary keys in place of merge keys. It returns false where a merge key is not found: YAML has
// line breaks that no other text has.
func (c chunk) withoutMerges(merges []*yamlv3.Node) ([]byte, bool) {
	lines := slices.Collect(bytes.Lines(c.text))
	for _, key := range slices.Backward(merges) { // the last one of a line first: the others stay where they are
		if key.Line > len(lines) {
			return nil, false
		}
		line := []rune(string(lines[key.Line-1]))
		if key.Column > len(line) || !strings.HasPrefix(string(line[key.Column-1:]), mergeKey) {
			return nil, false
		}
		lines[key.Line-1] = []byte(string(line[:key.Column-1]) + `"` + mergeKey + `"` + string(line[key.Column-1+len(mergeKey):]))
	}
	return bytes.Join(lines, nil), true
}
