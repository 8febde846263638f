package config

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// DecodeScope reads a file with what spec.scope of an AccessToken has, as strictly as in the document itself. Path is its name in
// messages. An error is a diagnostic.List with every problem. Whether the scope is valid is not checked.
func DecodeScope(path string, text []byte) (*v1alpha1.TokenScope, error) {
	o := object{decoder: newDecoder(&tree{limits: defaultLimits()}), source: path}
	documents := o.parser.documents(file{path: path, data: text})
	if n := len(documents); n != 1 {
		o.report(problem{message: fmt.Sprintf("has %d documents, must have one", n)})
	}
	scope := &v1alpha1.TokenScope{}
	for i := range documents {
		for _, p := range documents[i].problems {
			o.report(p)
		}
		switch value := documents[i].value.(type) {
		case nil:
		case map[string]any:
			o.fields = value
			o.decodeInto(scope)
		default:
			o.report(problem{message: "is not a mapping"})
		}
	}
	return scope, o.found.Err()
}
