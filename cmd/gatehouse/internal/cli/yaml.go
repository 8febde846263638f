package cli

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// JSONToYAML returns JSON as YAML for people. Characters that a terminal obeys or does not show, such as those that change the direction
// of text, are escaped.
func JSONToYAML(text []byte) ([]byte, error) {
	out, err := yaml.JSONToYAML(text)
	if err != nil || !bytes.ContainsFunc(out, isInvisible) {
		return out, err
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(out, &document); err != nil {
		return nil, fmt.Errorf("convert to YAML: %w", err)
	}
	return encodeNode(&document)
}

// EncodeYAML returns a value as YAML for people, as JSONToYAML does, with its fields in their order and each string on one line.
func EncodeYAML(value any) ([]byte, error) {
	var document yamlv3.Node
	if err := document.Encode(value); err != nil {
		return nil, fmt.Errorf("convert to YAML: %w", err)
	}
	return encodeNode(&document)
}

// encodeNode returns a document with characters that cannot be seen escaped.
func encodeNode(document *yamlv3.Node) ([]byte, error) {
	quoteInvisible(document)
	var quoted bytes.Buffer
	encoder := yamlv3.NewEncoder(&quoted)
	const indent = 2
	encoder.SetIndent(indent)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("convert to YAML: %w", err)
	}
	var escaped bytes.Buffer
	for _, r := range quoted.String() {
		if isInvisible(r) {
			_, _ = fmt.Fprintf(&escaped, `\U%08x`, r) // to memory; it is within double quotes
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.Bytes(), nil
}

func isInvisible(r rune) bool { return !strconv.IsPrint(r) && r != '\n' && r != '\t' }

// quoteInvisible puts strings with characters that cannot be seen into double quotes, in which they can be escaped.
func quoteInvisible(n *yamlv3.Node) {
	if n.Kind == yamlv3.ScalarNode && strings.ContainsFunc(n.Value, isInvisible) {
		n.Style = yamlv3.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		quoteInvisible(child)
	}
}
