package versions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

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
		return convert(text, autoscalerV1)
	case from.Group == autoscalingGroup:
		return convert(text, autoscalerV2)
	case from.Group == eventsGroup:
		return convert(text, coreEvent)
	case to.Group == eventsGroup:
		return convert(text, newEvent)
	default:
		return WithVersion(text, to.GroupVersion().String()), nil
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

// fieldNames are pairs of paths: where an older and a newer version of a type have the
// same value.
type fieldNames [][2]string

// convertFields converts a value to a type with the same JSON but for the names of fields,
// from the older version to the newer, or in reverse. Fields that the type does not have
// are dropped.
func convertFields(from, to any, names fieldNames, reverse bool) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := utiljson.Unmarshal(text, &tree); err != nil {
		return err
	}
	source, target := 0, 1
	if reverse {
		names, source, target = slices.Clone(names), target, source
		slices.Reverse(names)
	}
	for _, name := range names {
		path := strings.Split(name[source], ".")
		value, found, err := unstructured.NestedFieldNoCopy(tree, path...)
		if err != nil || !found {
			continue // of another kind, or not set
		}
		unstructured.RemoveNestedField(tree, path...)
		if err := unstructured.SetNestedField(tree, value, strings.Split(name[target], ".")...); err != nil {
			return err
		}
	}
	if text, err = json.Marshal(tree); err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// eventNames returns the fields that Events of the core group and of events.k8s.io name
// differently.
func eventNames() fieldNames {
	return fieldNames{
		{"involvedObject", "regarding"},
		{"message", "note"},
		{"reportingComponent", "reportingController"},
		{"source", "deprecatedSource"},
		{"firstTimestamp", "deprecatedFirstTimestamp"},
		{"lastTimestamp", "deprecatedLastTimestamp"},
		{"count", "deprecatedCount"},
	}
}

// newEvent returns an Event of the core group as one of events.k8s.io.
func newEvent(in *corev1.Event) (*eventsv1.Event, error) {
	out := new(eventsv1.Event)
	err := convertFields(in, out, eventNames(), false)
	out.APIVersion = eventsv1.SchemeGroupVersion.String()
	return out, err
}

// coreEvent returns the reverse of newEvent.
func coreEvent(in *eventsv1.Event) (*corev1.Event, error) {
	out := new(corev1.Event)
	err := convertFields(in, out, eventNames(), true)
	out.APIVersion = corev1.SchemeGroupVersion.String()
	return out, err
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
