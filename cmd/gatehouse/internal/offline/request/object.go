package request

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// content is an object of a request, or none.
type content struct {
	// value is nil for none.
	value           rawjson.Value
	kind            schema.GroupVersionKind
	namespace, name string
}

// read reads an object. What is its name in messages. JSON null is none.
func read(what string, text []byte) (content, error) {
	if text == nil {
		return content{}, nil
	}
	value, err := rawjson.Parse(text)
	switch {
	case err != nil:
		return content{}, fmt.Errorf("%s: %w", what, err)
	case value.Kind() == rawjson.Null:
		return content{}, nil
	case value.Kind() != rawjson.Object:
		return content{}, fmt.Errorf("%s: is %s, and must be an object", what, value.Kind())
	}
	for _, field := range []string{"apiVersion", "kind"} {
		if v := value.Get(field); v.Text() == "" {
			return content{}, fmt.Errorf("%s: %s is missing, or not a string", what, field)
		}
	}
	version, err := schema.ParseGroupVersion(value.Get("apiVersion").Text())
	if err != nil {
		return content{}, fmt.Errorf("%s: apiVersion %.100q: must be VERSION or GROUP/VERSION", what, value.Get("apiVersion").Text())
	}
	metadata := value.Get("metadata")
	if kind := metadata.Kind(); kind != rawjson.Invalid && kind != rawjson.Null && kind != rawjson.Object {
		return content{}, fmt.Errorf("%s: metadata is %s, and must be an object", what, metadata.Kind())
	}
	return content{
		value: value, kind: version.WithKind(value.Get("kind").Text()),
		namespace: metadata.Get("namespace").Text(), name: metadata.Get("name").Text(),
	}, nil
}

// withNamespace returns the text of the object with this namespace, or without one if it is empty. Everything else stays byte for byte.
func (c *content) withNamespace(namespace string) []byte {
	if c.value == nil || c.namespace == namespace {
		return c.value
	}
	metadata := []byte{'{'}
	if namespace != "" {
		metadata = rawjson.AppendString(append(metadata, `"namespace":`...), namespace)
	}
	for name, value := range c.value.Get("metadata").Members() {
		if !name.Is("namespace") {
			metadata = member(metadata, name, value)
		}
	}
	text := member([]byte{'{'}, rawjson.Value(`"metadata"`), append(metadata, '}'))
	for name, value := range c.value.Members() {
		if !name.Is("metadata") {
			text = member(text, name, value)
		}
	}
	return append(text, '}')
}

// member appends a member to the text of an object that is not closed.
func member(dst []byte, name, value rawjson.Value) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(append(dst, name...), ':'), value...)
}
