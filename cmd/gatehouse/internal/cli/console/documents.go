package console

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// documentKey identifies a document of a configuration.
type documentKey struct{ Group, Kind, Namespace, Name string }

// String returns the kind and the name.
func (k documentKey) String() string {
	if k.Namespace != "" {
		return k.Kind + " " + k.Namespace + "/" + k.Name
	}
	return k.Kind + " " + k.Name
}

// document is a document of a configuration.
type document struct {
	documentKey

	// Source is the file, and Number counts the documents in it from 1, without those that are empty.
	Source string
	Number int
	Text   []byte
	// Fields is nil for a document that cannot be read.
	Fields map[string]any
}

// splitDocuments returns the documents of a file that are not empty.
func splitDocuments(source string, text []byte) (all []document) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			return append(all, document{Source: source, Number: len(all) + 1, Text: text})
		}
		d := document{Source: source, Number: len(all) + 1, Text: part}
		var value any
		if unmarshalNumbers(part, &value) == nil {
			if value == nil {
				continue
			}
			d.Fields, _ = value.(map[string]any)
			d.documentKey = keyOf(d.Fields)
		}
		all = append(all, d)
	}
}

// unmarshalNumbers decodes YAML as the API machinery does: integers stay integers.
func unmarshalNumbers(text []byte, into *any) error {
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// keyOf returns what identifies an object.
func keyOf(fields map[string]any) documentKey {
	text := func(in map[string]any, name string) string {
		value, _ := in[name].(string)
		return value
	}
	metadata, _ := fields["metadata"].(map[string]any)
	version, _ := schema.ParseGroupVersion(text(fields, "apiVersion")) // of another one, the group is ""
	return documentKey{version.Group, text(fields, "kind"), text(metadata, "namespace"), text(metadata, "name")}
}

// keys returns what identifies the object, or the items of a list.
func (d *document) keys() []documentKey {
	items, isList := d.Fields["items"].([]any)
	if !isList || !strings.HasSuffix(d.Kind, "List") {
		return []documentKey{d.documentKey}
	}
	var all []documentKey
	for _, item := range items {
		fields, _ := item.(map[string]any)
		all = append(all, keyOf(fields))
	}
	return all
}

// joinDocuments returns documents as one file.
func joinDocuments(all []document) []byte {
	var out bytes.Buffer
	for i := range all {
		text := bytes.TrimPrefix(all[i].Text, []byte("---\n"))
		out.WriteString("---\n")
		out.Write(endLine(text))
	}
	return out.Bytes()
}
