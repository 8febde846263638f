package typecheck_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// FuzzCustomResources makes types of definitions of any form, and checks an
// expression with them: whatever is wrong with a definition, nothing comes of it
// but a type or none.
func FuzzCustomResources(f *testing.F) {
	f.Add(`{"group":"example.com","names":{"kind":"W","plural":"ws"},"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"integer"}}}}}}}]}`)
	f.Add(`{"group":"example.com","names":{"kind":"W","plural":"ws"},"versions":[{"name":"v1"},{},null,"v2",{"name":3}]}`)
	f.Add(`{"group":"example.com","names":{"kind":"W","plural":"ws"},"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":null,"a":{"type":["object"]},"b":{"type":"array","items":[]},"c":{"type":"object","additionalProperties":true},"d":{"type":"object","required":"x","properties":{"e":3}}}}}}]}`)
	f.Add(`{"group":1,"names":[],"versions":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var spec any
		if json.Unmarshal([]byte(text), &spec) != nil {
			return
		}
		schemas := typecheck.New([]*unstructured.Unstructured{{Object: map[string]any{"spec": spec}}})
		checker, err := typecheck.NewChecker(schemas, "1.36")
		if err != nil {
			t.Fatal(err)
		}
		parsed, issues := checker.Env.Parse("object.spec.a == 1 && object.metadata.name != '' && has(object.b) && object.d.e.f")
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		kind, known := schemas.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "W"})
		if known && kind.Type.Name == "" {
			t.Errorf("a kind without a structure: %+v", kind.Type)
		}
		checker.Scope(kind.Type, nil).Check(parsed)
	})
}
