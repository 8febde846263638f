package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// mergeKey is the key that merges the members of other mappings into its own.
const mergeKey = "<<"

// decodeMerged decodes a document whose strict decoding failed because a key and a merge key give the same member. A key behind the
// merge key overrides the merged one: in YAML, and for kubectl. One in front of it overrides in YAML, and is overridden for kubectl,
// so it is a problem, as are keys that are given twice without a merge key. Decoded is false if there is no merge key.
func (c chunk) decodeMerged() (value any, problems []problem, decoded bool) {
	var root yamlv3.Node
	if yamlv3.Unmarshal(c.text, &root) != nil {
		return nil, nil, false
	}
	var merges []*yamlv3.Node
	visitMappings(&root, func(n *yamlv3.Node) {
		keys := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Tag != "!!merge" || key.Value != mergeKey {
				keys[key.Value] = true
				continue
			}
			merges = append(merges, key)
			for name := range mergedKeys(n.Content[i+1], map[*yamlv3.Node]bool{}) {
				if keys[name] {
					problems = append(problems, c.problem(fmt.Sprintf("line %d: the merge key << replaces the key %q in front of it", key.Line, name), "line"))
					problems[len(problems)-1].hint = "put << first: keys behind it override what it merges"
				}
			}
		}
	})
	if len(merges) == 0 {
		return nil, nil, false
	}
	// With merge keys as ordinary ones, what is still given twice is a mistake.
	text, ok := c.withoutMerges(merges)
	if !ok {
		return nil, nil, false
	}
	_, err := decodeYAML(text, true)
	if mistakes, is := errors.AsType[*yaml.TypeError](err); is {
		return nil, append(problems, c.problems(mistakes)...), true
	}
	if err == nil {
		value, err = decodeYAML(c.text, false)
	}
	return value, problems, err == nil
}

// withoutMerges returns the text with ordinary keys, all of them different, in place of merge keys. It returns false where a merge key
// is not found: YAML has line breaks that no other text has.
func (c chunk) withoutMerges(merges []*yamlv3.Node) ([]byte, bool) {
	lines := slices.Collect(bytes.Lines(c.text))
	// The last one of a line first: the others stay where they are.
	for i, key := range slices.Backward(merges) {
		if key.Line > len(lines) {
			return nil, false
		}
		line := []rune(string(lines[key.Line-1]))
		if key.Column > len(line) || !strings.HasPrefix(string(line[key.Column-1:]), mergeKey) {
			return nil, false
		}
		lines[key.Line-1] = fmt.Appendf(nil, "%s%q%s", string(line[:key.Column-1]), fmt.Sprint(mergeKey, i), string(line[key.Column-1+len(mergeKey):]))
	}
	return bytes.Join(lines, nil), true
}

// visitMappings visits all mappings below a node, in the order of the text.
func visitMappings(n *yamlv3.Node, visit func(*yamlv3.Node)) {
	if n.Kind == yamlv3.MappingNode {
		visit(n)
	}
	for _, child := range n.Content {
		visitMappings(child, visit)
	}
}

// mergedKeys returns the keys that the value of a merge key merges.
func mergedKeys(n *yamlv3.Node, visited map[*yamlv3.Node]bool) map[string]bool {
	keys := map[string]bool{}
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if visited[n] {
		return keys
	}
	visited[n] = true
	for i, child := range n.Content {
		switch {
		case n.Kind == yamlv3.SequenceNode, n.Kind == yamlv3.MappingNode && i%2 == 1 && n.Content[i-1].Tag == "!!merge":
			for name := range mergedKeys(child, visited) {
				keys[name] = true
			}
		case n.Kind == yamlv3.MappingNode && i%2 == 0 && child.Tag != "!!merge":
			keys[child.Value] = true
		}
	}
	return keys
}
