package reference

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// AddChartValues adds the page of the chart's values, from the comments of its values.yaml.
func (p Pages) AddChartValues(file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // a file of this repository
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var b strings.Builder
	b.WriteString("# Values of the chart\n\n" + strings.ReplaceAll(comment(document.HeadComment), "\n  ", "\n") + "\n\n")
	values(&b, document.Content[0], "")
	p.add("chart-values.md", b.String())
	return nil
}

// values writes the values of a map. A map without a comment of its own values is shown as one value.
func values(b *strings.Builder, node *yaml.Node, prefix string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			if text := comment(key.HeadComment); text != "" {
				fmt.Fprintf(b, "- **`%s`**: %s\n", name, text)
			}
			values(b, value, name+".")
			continue
		}
		standard, err := yaml.Marshal(value)
		if err != nil {
			continue // no node that was read
		}
		fmt.Fprintf(b, "- **`%s`** (default `%s`)", name, strings.TrimSpace(strings.Split(string(standard), "#")[0]))
		if text := comment(key.HeadComment + "\n" + value.LineComment); text != "" {
			fmt.Fprintf(b, ": %s", text)
		}
		b.WriteByte('\n')
	}
}

// comment is a comment of YAML as text in a list.
func comment(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
	}
	return strings.TrimSpace(indent(escape(strings.TrimSpace(strings.Join(lines, "\n"))), "  "))
}
