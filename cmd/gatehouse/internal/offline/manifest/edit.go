package manifest

import (
	"bytes"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// edited returns the text of the document with its changes.
func (d *document) edited(newline string) ([]byte, error) {
	want, err := applyChanges(d.value, d.changes)
	if err != nil {
		return nil, err
	}
	t, document, err := d.tree()
	if err != nil {
		return nil, err
	}
	before := 0
	if document != nil {
		before = aliases(document)
	}
	for _, write := range []func() ([]byte, error){
		func() ([]byte, error) { return splice(d.text, t, d.json, newline) },
		func() ([]byte, error) { return d.reencoded(t, document, newline, true) },
		func() ([]byte, error) { return d.reencoded(t, document, newline, false) },
	} {
		text, err := write()
		if err != nil {
			continue
		}
		if text, ok := d.ended(text, newline, want); ok {
			d.writtenOut = before > 0 && aliasesIn(text) < before
			return text, nil
		}
	}
	return nil, errMangled
}

// reencoded returns the text of the document encoded from its nodes.
func (d *document) reencoded(t *tree, document *yaml.Node, newline string, keepAliases bool) ([]byte, error) {
	if d.json {
		return indentJSON(t.root, "", "  ", newline), nil
	}
	text, err := encodeNodes(document, t.root, styleOf(t.root, t.root, newText(d.text), newline), keepAliases)
	if err == nil && d.inline {
		text = append([]byte(newline), text...)
	}
	return text, err
}

// aliasesIn returns the number of aliases in a text.
func aliasesIn(text []byte) int {
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil {
		return 0
	}
	return aliases(&document)
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

// tree returns the tree of the document with its changes, and in YAML its node.
func (d *document) tree() (*tree, *yaml.Node, error) {
	var (
		t        tree
		document *yaml.Node
		err      error
	)
	if d.json {
		t.root, err = locateJSON(d.text, d.value)
	} else {
		t.root, document, err = locate(d.text, d.value)
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range d.changes {
		if err := t.apply(&d.changes[i]); err != nil {
			return nil, nil, err
		}
	}
	if !d.json {
		t.resolveAliases()
	}
	return &t, document, nil
}
