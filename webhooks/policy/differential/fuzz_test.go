package differential_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/test/support/dispatcher"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// asThing returns the object as a custom resource as the API server sends it, and
// false if there can be none such.
func asThing(raw []byte) ([]byte, bool) {
	value, err := rawjson.Parse(raw)
	if err != nil || value.Kind() != rawjson.Object {
		return nil, false
	}
	decoded, err := value.Decode()
	if err != nil {
		return nil, false
	}
	object, _ := decoded.(map[string]any)
	object["apiVersion"], object["kind"] = "example.com/v1", "Thing"
	object["metadata"] = map[string]any{"name": "web", "namespace": "shop", "labels": map[string]any{"team": "checkout"}}
	out, err := json.Marshal(object)
	return out, err == nil
}

// FuzzSameAsUpstream holds Decide against the API server's dispatcher for arbitrary objects.
func FuzzSameAsUpstream(f *testing.F) {
	for _, seeds := range [][2]string{
		{`{}`, ``},
		{`{"a": 1, "b": 1.0, "c": true}`, `{"a": 1}`},
		{`{"a": "1", "b": 1, "c": [1, "x", null]}`, `{}`},
		{`{"a": {"b": {"c": true}}, "b": {"c": null}}`, `{"a": {"b": 1}}`},
		{`{"a": [{"b": 1}, {"b": "x"}, []], "b": 0, "c": {"b": 1}}`, `{"a": null}`},
		{`{"a": "1Gi", "b": "2G", "c": "1Gi2G"}`, ``},
		{`{"a": "aaa", "b": "a+", "c": 9223372036854775807}`, ``},
		{`{"a": 9223372036854775807, "b": 1e30, "c": -0.0}`, ``},
		{`{"a": null, "b": null}`, ``},
		{`{"a": ["x", "y"], "b": "x", "c": "x"}`, `{"a": ["y", "x"]}`},
		{`{"spec": {"n": 3, "f": 3.5, "big": 9007199254740993, "list": ["a", "b"], "null": null, "ip": "10.1.2.3", "with-dash": "x", "replicas": 2}}`, ``},
	} {
		f.Add([]byte(seeds[0]), []byte(seeds[1]))
	}
	type pair struct {
		text      string
		set       *policy.Set
		reference *dispatcher.Dispatcher
	}
	texts := []string{
		"matchConditions: [{name: a, expression: 'object.a == object.b'}, {name: b, expression: 'has(object.c)'}]\nvalidations: [{expression: 'false', message: matched}]",
		"variables: [{name: a, expression: 'object.a'}, {name: b, expression: 'variables.a.b'}]\n" +
			"validations: [{expression: 'variables.b == 1', messageExpression: \"'a is ' + string(variables.a)\"}, {expression: 'has(variables.a.b)'}]\n" +
			"auditAnnotations: [{key: a, valueExpression: 'string(variables.a)'}]\nbindings:\n- {validationActions: [Warn, Audit]}",
	}
	for _, expression := range slices.Concat(expressionsOf(f, "everything"), expressionsOf(f, "fuzz")) {
		// The outcome of the others depends on the order of a map's members, which upstream has at random.
		if strings.Contains(expression, "object") && !strings.Contains(expression, "object.map(") {
			texts = append(texts, "validations: [{expression: "+toJSON(f, expression)+"}]")
		}
	}
	var pairs []pair
	for _, text := range texts {
		set, reference := compile(f, policyText("p", everything+"\n"+text))
		pairs = append(pairs, pair{text, set, reference})
	}
	base := review(f, `{apiVersion: example.com/v1, kind: Thing, metadata: {name: web, namespace: shop}}`)
	f.Fuzz(func(t *testing.T, object, old []byte) {
		thing, ok := asThing(object)
		if !ok {
			return
		}
		req := base
		req.Object = runtime.RawExtension{Raw: thing}
		if before, ok := asThing(old); ok {
			req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: before}
		}
		for _, p := range pairs {
			if found := difference(t, p.set, p.reference, dispatcher.Ask(t, req)); found != "" {
				t.Errorf("%s, object %s, before %s:\n%s", p.text, thing, req.OldObject.Raw, found)
			}
		}
	})
}
