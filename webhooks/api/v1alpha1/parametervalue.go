package v1alpha1

import (
	"encoding/json"
	"errors"
	"strings"
)

// ParameterValue is a value of a parameter as a profile's author writes it: a
// text, a number, a boolean or a list of texts. It holds the text that stands
// for it in an annotation: 5 is "5", true is "true", [a, b] is "a,b".
type ParameterValue struct {
	Text string
}

var errParameterValue = errors.New("expected a text, a number, a boolean or a list of texts")

// UnmarshalJSON reads any of the forms.
func (v *ParameterValue) UnmarshalJSON(data []byte) error {
	var value any
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	switch value := value.(type) {
	case string:
		v.Text = value
	case json.Number:
		v.Text = value.String()
	case bool:
		v.Text = string(data)
	case []any:
		texts := make([]string, len(value))
		for i := range value {
			text, ok := value[i].(string)
			if !ok {
				return errParameterValue
			}
			texts[i] = text
		}
		v.Text = strings.Join(texts, ",")
	default:
		return errParameterValue
	}
	return nil
}

// MarshalJSON writes the text.
func (v ParameterValue) MarshalJSON() ([]byte, error) { return json.Marshal(v.Text) }
