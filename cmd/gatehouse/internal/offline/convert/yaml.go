package convert

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fieldOrder is the order in which fields are written. Others follow in the order of their names.
func fieldOrder() []string {
	return []string{
		"apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "policies", "context", "cases", "spec",
		"policyName", "validationActions", "paramKind", "paramRef", "failurePolicy", "reinvocationPolicy", "matchConstraints", "matchResources",
		"namespaceSelector", "objectSelector", "resourceRules", "apiGroups", "apiVersions", "operations", "resources", "matchConditions", "variables",
		"validations", "mutations", "podSecurity", "workloadTemplates", "existingViolations", "expression", "message", "messageExpression", "reason",
	}
}

// encode writes an object as YAML for people: fields in the order in which they are read, and expressions of several lines as blocks.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	const indent = 2
	encoder.SetIndent(indent)
	err := encoder.Encode(node(toJSON(value), fieldOrder()))
	return out.Bytes(), errors.Join(err, encoder.Close())
}

// node returns a value as a node of a document, with its fields in an order.
func node(value any, order []string) *yaml.Node {
	n := &yaml.Node{}
	switch v := value.(type) {
	case map[string]any:
		n.Kind = yaml.MappingNode
		keys := sortedKeys(v)
		rank := func(key string) int {
			if i := slices.Index(order, key); i >= 0 {
				return i
			}
			return len(order)
		}
		slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
		for _, key := range keys {
			if isLeftOut(key, v[key]) && order != nil {
				continue
			}
			below := order
			if key == "object" || key == "oldObject" || key == "labels" || key == "annotations" || key == "context" {
				below = nil
			}
			n.Content = append(n.Content, node(key, nil), node(v[key], below))
		}
	case []any:
		n.Kind = yaml.SequenceNode
		scalars := true
		for _, item := range v {
			of := node(item, order)
			scalars = scalars && of.Kind == yaml.ScalarNode && of.Style == 0
			n.Content = append(n.Content, of)
		}
		if scalars {
			n.Style = yaml.FlowStyle
		}
	case string:
		n.SetString(v)
		if otherInYAML.MatchString(v) {
			n.Style = yaml.DoubleQuotedStyle
		}
		if strings.Contains(v, "\n") {
			n.Style = yaml.LiteralStyle
		}
	default:
		_ = n.Encode(v) // it is a number, a bool or null
	}
	return n
}

// otherInYAML matches strings that are no strings in YAML 1.1, which Kubernetes reads, unless they are quoted.
var otherInYAML = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|[-+.]?[0-9][-+.:_0-9a-fxo]*)$`)

// isLeftOut reports whether a field says nothing.
func isLeftOut(key string, value any) bool {
	return value == nil && (key == "creationTimestamp" || key == "matchConstraints") || key == "scope" && value == "*"
}
