package manifest

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// edited returns the text of the document with its changes.
func (d *document) edited(newline string) ([]byte, error) {
	want, err := applyChanges(d.value, d.changes)
	if err != nil {
		return nil, err
	}
	if d.json {
		if text, ok := d.ended(editedJSON(d.text, d.value, want, newline), newline, want); ok {
			return text, nil
		}
		return nil, errMangled
	}
	for _, write := range []func() ([]byte, error){
		func() ([]byte, error) { return splice(d.text, d.value, want, newline) },
		func() ([]byte, error) { return d.reencoded(want, newline) },
	} {
		text, err := write()
		if err != nil {
			continue
		}
		if text, ok := d.ended(text, newline, want); ok {
			return text, nil
		}
	}
	return nil, errMangled
}

// parseYAML returns the node of a document.
func parseYAML(text []byte) (*yaml.Node, error) {
	var parsed yaml.Node
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		return nil, fmt.Errorf("the text cannot be read: %w", err)
	}
	if parsed.Kind != yaml.DocumentNode || len(parsed.Content) != 1 {
		return nil, errLink
	}
	return &parsed, nil
}

// reencoded returns the text of the document encoded from its nodes, with its comments, but not its blank lines.
func (d *document) reencoded(want rawjson.Value, newline string) ([]byte, error) {
	parsed, err := parseYAML(bytes.ReplaceAll(d.text, []byte("\r\n"), []byte("\n"))) // of a comment the parser keeps \r
	if err != nil {
		return nil, err
	}
	root := &pair{node: parsed.Content[0], old: d.value, want: want}
	content, err := root.build()
	if err != nil {
		return nil, err
	}
	written := style{member: -1, sequence: -1, newline: newline}
	written.learn(root.node)
	text, err := written.encode(&yaml.Node{
		Kind: yaml.DocumentNode, Content: []*yaml.Node{content},
		HeadComment: parsed.HeadComment, LineComment: parsed.LineComment, FootComment: parsed.FootComment,
	})
	if err != nil {
		return nil, err
	}
	if text = written.lines(text, 0); d.inline {
		text = append([]byte(newline), text...)
	}
	return text, nil
}

// ended returns a new text of the document with its last line ended if that of the document is, or must be. It reports whether the text
// has the wanted value.
func (d *document) ended(text []byte, newline string, want rawjson.Value) ([]byte, bool) {
	if !d.json && !bytes.HasSuffix(d.text, []byte("\n")) {
		if cut := bytes.TrimSuffix(text, []byte(newline)); d.means(cut, want) {
			return cut, true
		}
	}
	return text, d.means(text, want)
}
