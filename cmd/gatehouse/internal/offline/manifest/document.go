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

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// document is one document of a file.
type document struct {
	part
	number int // from 1
	// indent is the number of characters in front of it in its first line.
	indent int
	// template is the template that it is rendered from, or empty.
	template string
	text     []byte
	// value is the content of the document, as kubectl reads it.
	value rawjson.Value
	// unreadable is why there is no value, and nil if there is one.
	unreadable *readError
	// changes are to be applied in order, with paths from its root.
	changes []change
	// nodes is the parsed text, once a position was asked for, and empty if it cannot be parsed.
	nodes *yaml.Node
}

// read reads the document. A duplicate key is an error only if a document with this value may be changed.
func (d *document) read(mayChange func(rawjson.Value) bool, aliases *Expansion) *readError {
	if !d.json {
		if err := aliases.Take(d.text); err != nil {
			return &readError{line: d.line, message: err.Error(), hint: "use fewer aliases (*name)"}
		}
	}
	text, err := d.decode()
	if err != nil {
		return d.explain(err)
	}
	if d.value, err = rawjson.Parse(text); err != nil {
		return &readError{line: d.line, message: err.Error()}
	}
	if !mayChange(d.value) {
		return nil
	}
	if key, line, found := d.duplicateKey(); found {
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

// duplicateKey returns a key that an object of the document has twice, with its line in the file. A key that a merge key (<<)
// brings too is none.
func (d *document) duplicateKey() (key string, line int, found bool) {
	if d.json {
		key, at, found := findDuplicate(d.value)
		return key, d.line + bytes.Count(d.text[:at], []byte("\n")), found
	}
	var document yaml.Node
	if yaml.Unmarshal(d.text, &document) != nil {
		return "", 0, false // a change of the document reports it
	}
	var visit func(*yaml.Node)
	visit = func(n *yaml.Node) {
		seen := make(map[string]bool, len(n.Content)/2)
		for i, child := range n.Content {
			if !found && n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode && !isMerge(child) {
				if seen[child.Value] {
					key, line, found = child.Value, d.line+child.Line-1, true
				}
				seen[child.Value] = true
			}
			visit(child)
		}
	}
	visit(&document)
	return key, line, found
}

// TemplateHint is the hint for a document that looks like a template. Callers may add how to render it.
const TemplateHint = "this looks like a template: give what it renders to"

// VariableHint is the hint for a value or document with a variable of Flux's postBuild.substitute. Callers add how to render it.
const VariableHint = "${…} looks like a variable that Flux or envsubst replaces: give what it renders to"

var yamlLine = regexp.MustCompile(`(?m)^(?:error converting YAML to JSON: |yaml: |unmarshal errors:\n  |\s)*line (\d+): `)

// explain returns an error of a parser with the line in the file.
func (d *document) explain(err error) *readError {
	result := &readError{line: d.line, near: true}
	if at := bytes.Index(d.text, []byte("{{")); at >= 0 {
		result.line += bytes.Count(d.text[:at], []byte("\n"))
		result.hint = TemplateHint
	}
	if begin := bytes.TrimSpace(d.text); bytes.HasPrefix(begin, []byte("{")) && bytes.HasPrefix(bytes.TrimSpace(begin[1:]), []byte(`"`)) {
		if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(d.text, new(any))); ok {
			before := d.text[:min(max(syntax.Offset-1, 0), int64(len(d.text)))]
			result.line, result.near, result.message = d.line+bytes.Count(before, []byte("\n")), false, syntax.Error()
			return result
		}
	}
	if result.hint == "" && bytes.Contains(d.text, []byte("${")) {
		result.hint = VariableHint
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
	case result.hint == "":
		result.hint = diagnostic.YAMLHint(result.message)
	}
	return result
}
