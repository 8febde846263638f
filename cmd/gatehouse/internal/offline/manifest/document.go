package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// document is one document of a file.
type document struct {
	part
	number int // from 1
	text   []byte
	// value is what the document says, as kubectl reads it.
	value rawjson.Value
	// unreadable is why there is no value, and nil if there is one.
	unreadable *readError
	// changes are what is to be done to it, in order, with paths from its root.
	changes []change
	// writtenOut reports whether the changed text has aliases written out.
	writtenOut bool
	// nodes is the text as the YAML parser sees it, once somebody has asked
	// where something stands in it. It is empty if there is nothing.
	nodes *yaml.Node
}

// read reads the document. A key given twice is an error only where it matters:
// in a document that is worth changing.
func (d *document) read(matters func(rawjson.Value) bool) *readError {
	text, err := d.decode()
	if err != nil {
		return d.explain(err)
	}
	if d.value, err = rawjson.Parse(text); err != nil {
		return &readError{line: d.line, message: err.Error()}
	}
	if !matters(d.value) {
		return nil
	}
	if key, line, twice := d.twice(); twice {
		return &readError{line: line, message: fmt.Sprintf("the key %q is given twice", key), hint: "remove one of the two"}
	}
	return nil
}

// decode returns the document as JSON.
func (d *document) decode() ([]byte, error) {
	if d.json {
		return d.text, nil
	}
	text, err := sigsyaml.YAMLToJSON(d.text)
	if err != nil {
		return nil, err
	}
	// The reader stops where a document ends, whatever comes behind it.
	documents := yamlv2.NewDecoder(bytes.NewReader(d.text))
	var first, rest any
	if err := documents.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := documents.Decode(&rest); !errors.Is(err, io.EOF) {
		return nil, errors.New("yaml: there is more text behind the end of the document")
	}
	return text, nil
}

// twice is a key that an object of the document has twice, with its line in the
// file: of two values, readers disagree on which one holds. A key that a merge
// key (<<) brings too is not meant.
func (d *document) twice() (key string, line int, twice bool) {
	if d.json {
		key, at, twice := duplicate(d.value)
		return key, d.line + bytes.Count(d.text[:at], []byte("\n")), twice
	}
	var document yaml.Node
	if yaml.Unmarshal(d.text, &document) != nil {
		return "", 0, false // whoever changes the document will see
	}
	var visit func(*yaml.Node)
	visit = func(n *yaml.Node) {
		seen := make(map[string]bool, len(n.Content)/2)
		for i, child := range n.Content {
			if !twice && n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode && !isMerge(child) {
				if seen[child.Value] {
					key, line, twice = child.Value, d.line+child.Line-1, true
				}
				seen[child.Value] = true
			}
			visit(child)
		}
	}
	visit(&document)
	return key, line, twice
}

// TemplateHint is the hint for a document that looks like the template of one.
// Whoever shows it may add how.
const TemplateHint = "this looks like a template: give what it renders to"

var yamlLine = regexp.MustCompile(`(?m)^(?:error converting YAML to JSON: |yaml: |unmarshal errors:\n  |\s)*line (\d+): `)

// explain is an error of a parser with the line counted from the beginning of
// the file.
func (d *document) explain(err error) *readError {
	result := &readError{line: d.line, near: true}
	if at := bytes.Index(d.text, []byte("{{")); at >= 0 {
		result.line += bytes.Count(d.text[:at], []byte("\n")) // in case that nothing better is known
		result.hint = TemplateHint
	}
	if begin := bytes.TrimSpace(d.text); bytes.HasPrefix(begin, []byte("{")) && bytes.HasPrefix(bytes.TrimSpace(begin[1:]), []byte(`"`)) {
		if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(d.text, new(any))); ok {
			before := d.text[:min(max(syntax.Offset-1, 0), int64(len(d.text)))]
			result.line, result.near, result.message = d.line+bytes.Count(before, []byte("\n")), false, syntax.Error()
			return result
		}
	}
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			result.line = d.line + n - 1
		}
	}
	text, _, _ = strings.Cut(text, "\n")
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	result.message = strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(result.message, "invalid map key: "):
		result.message = "an object or a list cannot be a key"
	case result.hint == "" && (strings.Contains(result.message, "cannot start any token") || strings.Contains(result.message, "tab character")):
		result.hint = "put text that begins with @, ` or % in quotes, and indent with spaces, never with tabs"
	}
	return result
}
