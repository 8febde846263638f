package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Commands write JSON for -o json. For -o yaml they do the same, and standardOutput converts it, so that both have the same fields.

// standardOutput is the standard output of commands.
type standardOutput struct {
	io.Writer
	// yaml is true for -o yaml of a command that writes JSON.
	yaml   bool
	values bytes.Buffer
}

// Write implements io.Writer. It holds JSON back until Flush.
func (o *standardOutput) Write(text []byte) (int, error) {
	if o.yaml {
		return o.values.Write(text)
	}
	return o.Writer.Write(text)
}

// Flush writes each JSON value as a YAML document. Output that is not JSON is written as it is.
func (o *standardOutput) Flush() error {
	if o.values.Len() == 0 {
		return nil
	}
	var documents bytes.Buffer
	decoder := json.NewDecoder(bytes.NewReader(o.values.Bytes()))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			value, err = JSONToYAML(value)
		}
		if err != nil {
			_, err = o.Writer.Write(o.values.Bytes())
			return err
		}
		if documents.Len() > 0 {
			documents.WriteString("---\n")
		}
		documents.Write(value)
	}
	_, err := o.Writer.Write(documents.Bytes())
	return err
}

// outputValue is the value of -o. The command sees "json" for "yaml" unless it writes YAML itself.
type outputValue struct {
	value *string
	// allowed are the values that users can give.
	allowed []string
	// own is true for a command that writes YAML itself.
	own, yaml bool
}

// String implements pflag.Value.
func (v *outputValue) String() string {
	switch {
	case v.value == nil:
		return ""
	case v.yaml:
		return "yaml"
	default:
		return *v.value
	}
}

// Type implements pflag.Value.
func (*outputValue) Type() string { return "string" }

// Set implements pflag.Value.
func (v *outputValue) Set(text string) error {
	if !slices.Contains(v.allowed, text) {
		return errors.New("must be " + OrList(v.allowed))
	}
	if v.yaml = text == "yaml" && !v.own; v.yaml {
		text = "json"
	}
	*v.value = text
	return nil
}

// AddOutputFlag adds -o with these values, the first being the default. Where json is one of them, yaml is another.
func AddOutputFlag(cmd *cobra.Command, value *string, values ...string) {
	*value = values[0]
	own := !slices.Contains(values, "json") || slices.Contains(values, "yaml")
	values = outputValues(values)
	cmd.Flags().VarP(&outputValue{value: value, allowed: values, own: own}, "output", "o", "output format: "+OrList(values))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// outputValues returns the values that -o has for those of AddOutputFlag.
func outputValues(values []string) []string {
	at := slices.Index(values, "json") + 1
	if at == 0 || slices.Contains(values, "yaml") {
		return values
	}
	return slices.Insert(slices.Clone(values), at, "yaml")
}

// wantsYAML reports whether the output of a command is to be converted.
func wantsYAML(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup("output")
	if flag == nil {
		return false
	}
	value, ok := flag.Value.(*outputValue)
	return ok && value.yaml
}

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
	quoteInvisible(&document)
	var quoted bytes.Buffer
	encoder := yamlv3.NewEncoder(&quoted)
	const indent = 2
	encoder.SetIndent(indent)
	if err := encoder.Encode(&document); err != nil {
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
