package registration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// Document is one document that was made.
type Document struct {
	comment string // for people, may have several lines
	object  any
}

// fields are the document's fields without those that only a server fills in.
func (d Document) fields() (map[string]any, error) {
	raw, err := json.Marshal(d.object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := yaml.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	delete(fields, "preferences")
	return fields, nil
}

// YAML writes the documents as a YAML stream, with their comments, under a
// header comment.
func YAML(header string, documents []Document) ([]byte, error) {
	var out bytes.Buffer
	writeComment(&out, header)
	for i, d := range documents {
		if i > 0 || header != "" {
			out.WriteString("---\n")
		}
		writeComment(&out, d.comment)
		fields, err := d.fields()
		if err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(fields)
		if err != nil {
			return nil, err
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

func writeComment(out *bytes.Buffer, comment string) {
	if comment == "" {
		return
	}
	for line := range strings.SplitSeq(comment, "\n") {
		fmt.Fprintf(out, "# %s\n", line)
	}
}

// JSON writes the documents as one JSON document: a single one as it is,
// several as a List, which kubectl takes as it takes a YAML stream.
func JSON(documents []Document) ([]byte, error) {
	items := make([]map[string]any, len(documents))
	for i, d := range documents {
		fields, err := d.fields()
		if err != nil {
			return nil, err
		}
		items[i] = fields
	}
	var value any = map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	if len(items) == 1 {
		value = items[0]
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
