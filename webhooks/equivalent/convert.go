package equivalent

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// Convert converts an object of one resource into one of an equivalent resource,
// as the API server does: text is the JSON text of the object, and the result is
// what the API server would have sent. An error says why it cannot be converted.
func Convert(text rawjson.Value, from, to schema.GroupVersionResource) ([]byte, error) {
	switch {
	case from == to:
		return text, nil
	case !Convertible(from, to):
		return nil, fmt.Errorf("an object of %s cannot be converted to %s here", from.GroupVersion(), to.GroupVersion())
	case from.Group == autoscalingGroup && to.Version == "v1":
		return convert(text, autoscalerV1)
	case from.Group == autoscalingGroup:
		return convert(text, autoscalerV2)
	case from.Group == eventsGroup:
		return convert(text, coreEvent)
	case to.Group == eventsGroup:
		return convert(text, newEvent)
	default:
		return withVersion(text, to.GroupVersion().String()), nil
	}
}

// convert reads an object, converts it and writes the result.
func convert[From, To any](text rawjson.Value, with func(*From) (*To, error)) ([]byte, error) {
	if err := checkQuantities(text); err != nil {
		return nil, err
	}
	from := new(From)
	if err := utiljson.Unmarshal(text, from); err != nil {
		return nil, err
	}
	to, err := with(from)
	if err != nil {
		return nil, err
	}
	return json.Marshal(to)
}

// withVersion returns the object with another apiVersion.
func withVersion(text rawjson.Value, version string) []byte {
	out := make([]byte, 0, len(text)+len(version))
	out = append(out, '{')
	for name, value := range text.Members() {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, name...), ':')
		if name.Is("apiVersion") {
			out = rawjson.AppendString(out, version)
		} else {
			out = append(out, value...)
		}
	}
	return append(out, '}')
}
