package v1alpha1

import (
	"encoding/json"
	"strings"
)

// ParameterValue is a value of a parameter as a profile's author writes it: a
// text, a number, a boolean or a list of texts.
type ParameterValue struct {
	// Text is what would stand for the value in an annotation: 5 is "5", true is
	// "true", [a, b] is "a,b". It is empty for what no annotation could say: a
	// mapping, or a list of something else than texts.
	Text string
	// JSON is the value as it was written, and empty for a text. Which kinds a
	// parameter accepts depends on its type, and YAML keeps no more of a number
	// than what it means: 1.10 is 1.1 here.
	JSON string `json:"-"`
}

// UnmarshalJSON reads any value. It never fails, because a decoder would leave
// out the rest of the document then: what is wrong with a value is for those to
// say who know the parameter's type.
func (v *ParameterValue) UnmarshalJSON(data []byte) error {
	*v = ParameterValue{JSON: string(data)}
	var value any
	if json.Unmarshal(data, &value) != nil {
		return nil //nolint:nilerr // encoding/json calls it with nothing but valid JSON
	}
	switch value := value.(type) {
	case string:
		*v = ParameterValue{Text: value}
	case []any:
		texts := make([]string, len(value))
		for i := range value {
			text, ok := value[i].(string)
			if !ok {
				return nil
			}
			texts[i] = text
		}
		v.Text = strings.Join(texts, ",")
	case bool, float64:
		v.Text = v.JSON
	}
	return nil
}

// MarshalJSON writes the value as it was written.
func (v ParameterValue) MarshalJSON() ([]byte, error) {
	if v.JSON != "" {
		return []byte(v.JSON), nil
	}
	return json.Marshal(v.Text)
}
