package versions

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
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
		return convert(text, to, autoscalerV1)
	case from.Group == autoscalingGroup:
		return convert(text, to, autoscalerV2)
	case from.Group == eventsGroup, to.Group == eventsGroup:
		return convert(text, to, func(tree map[string]any) error {
			for _, names := range eventNames() {
				name, becomes := names[0], names[1]
				if from.Group == eventsGroup {
					name, becomes = becomes, name
				}
				if value, has := tree[name]; has {
					tree[becomes] = value
					delete(tree, name)
				}
			}
			return nil
		})
	default:
		return WithVersion(text, to.GroupVersion().String()), nil
	}
}

// convert reads an object, changes it and writes it in another version.
func convert(text rawjson.Value, to schema.GroupVersionResource, change func(tree map[string]any) error) ([]byte, error) {
	decoded, err := text.Decode()
	if err != nil {
		return nil, err
	}
	tree, ok := decoded.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is no object", text.Kind())
	}
	if err := change(tree); err != nil {
		return nil, err
	}
	tree["apiVersion"] = to.GroupVersion().String()
	return json.Marshal(tree)
}

// eventNames returns the fields that Events of the core group and of events.k8s.io name
// differently.
func eventNames() [][2]string {
	return [][2]string{
		{"involvedObject", "regarding"},
		{"message", "note"},
		{"reportingComponent", "reportingController"},
		{"source", "deprecatedSource"},
		{"firstTimestamp", "deprecatedFirstTimestamp"},
		{"lastTimestamp", "deprecatedLastTimestamp"},
		{"count", "deprecatedCount"},
	}
}

// WithVersion returns the object with another apiVersion.
func WithVersion(text rawjson.Value, version string) []byte {
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
