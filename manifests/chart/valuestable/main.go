// Command valuestable writes the table of values in the README of a chart: the order and the defaults are those of values.yaml,
// and the meanings are the descriptions in values.schema.json, which editors show too.
//
//	go run ./manifests/chart/valuestable manifests/chart/gatehouse
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: valuestable DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "valuestable: %v\n", err)
		os.Exit(1)
	}
}

// write writes the README of a chart with the table of its values.
func write(chart string) error {
	readme, err := render(chart)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(chart, "README.md"), readme, 0o644) //nolint:gosec // a document that everybody may read
}

// rows are the lines of the table.
var rows = regexp.MustCompile(`(?m)^\| value \| meaning \| default \|\n(?:\|.*\n)+`)

// render returns the README of a chart with the table of its values.
func render(chart string) ([]byte, error) {
	readme, readmeErr := os.ReadFile(filepath.Join(chart, "README.md"))        // #nosec G304 G703 -- of this repository
	values, valuesErr := os.ReadFile(filepath.Join(chart, "values.yaml"))      // #nosec G304 G703 -- of this repository
	text, schemaErr := os.ReadFile(filepath.Join(chart, "values.schema.json")) // #nosec G304 G703 -- of this repository
	if err := errors.Join(readmeErr, valuesErr, schemaErr); err != nil {
		return nil, err
	}
	of := &schema{}
	if err := json.Unmarshal(text, of); err != nil {
		return nil, fmt.Errorf("values.schema.json: %w", err)
	}
	lines, err := table(values, of)
	if err != nil {
		return nil, err
	}
	if n := len(rows.FindAllIndex(readme, -1)); n != 1 {
		return nil, fmt.Errorf("README.md has %d tables of values, want 1", n)
	}
	return rows.ReplaceAllLiteral(readme, []byte(lines)), nil
}

// schema is what the table needs of a JSON schema.
type schema struct {
	Description string
	Properties  map[string]*schema
}

// notRendered are values that Helm itself allows in every chart.
func notRendered() []string { return []string{"global"} }

// table returns the table. It is an error if the schema and values.yaml have different values.
func table(values []byte, of *schema) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", fmt.Errorf("values.yaml: %w", err)
	}
	if len(document.Content) != 1 {
		return "", errors.New("values.yaml is empty")
	}
	var text strings.Builder
	text.WriteString("| value | meaning | default |\n|---|---|---|\n")
	problems := of.add(&text, document.Content[0], "")
	return text.String(), errors.Join(problems...)
}

// add adds the rows of a mapping of values: one for each value with a description, and those below each other one.
func (s *schema) add(text *strings.Builder, values *yaml.Node, prefix string) []error {
	var problems []error
	var names []string
	for i := 0; i+1 < len(values.Content); i += 2 {
		name, value := values.Content[i].Value, values.Content[i+1]
		names = append(names, name)
		path, of := prefix+name, s.Properties[name]
		switch {
		case of == nil:
			problems = append(problems, fmt.Errorf("%s: values.yaml has it, values.schema.json does not", path))
		case of.Description != "":
			var decoded any
			if err := value.Decode(&decoded); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", path, err))
				continue
			}
			preset, err := json.Marshal(decoded)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", path, err))
			}
			fmt.Fprintf(text, "| `%s` | %s | `%s` |\n", path, cell(of.Description), cell(string(preset)))
		case len(of.Properties) == 0:
			problems = append(problems, fmt.Errorf("%s: values.schema.json has no description", path))
		default:
			problems = append(problems, of.add(text, value, path+".")...)
		}
	}
	for name := range s.Properties {
		if !slices.Contains(names, name) && (prefix != "" || !slices.Contains(notRendered(), name)) {
			problems = append(problems, fmt.Errorf("%s%s: values.schema.json has it, values.yaml does not", prefix, name))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems
}

// cell escapes what would end a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
