package policy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// fuzzedExpressions look at a custom resource in ways of which the outcome does
// not depend on the order of a map's members, which upstream has at random.
func fuzzedExpressions(t testing.TB) []string {
	t.Helper()
	return append(slices.DeleteFunc(expressionsOf(t, "everything"), func(expression string) bool {
		return !strings.Contains(expression, "object") || strings.Contains(expression, "object.map(")
	}), expressionsOf(t, "fuzz")...)
}

// fuzzedPolicies returns policies of one rule each, and some with conditions,
// variables, messages and audit annotations.
func fuzzedPolicies(t testing.TB) map[string]string {
	t.Helper()
	const things = `
matchConstraints: {resourceRules: [{apiGroups: ["example.com"], apiVersions: ["v1"], operations: ["*"], resources: ["things"]}]}`
	const told = "\nbindings:\n- {validationActions: [Warn, Audit]}"
	out := map[string]string{
		"condition": things + "\nmatchConditions: [{name: a, expression: 'object.a == object.b'}, {name: b, expression: 'has(object.c)'}]\nvalidations: [{expression: 'false', message: matched}]" + told,
		"selector":  strings.Replace(things, "{resourceRules", "{objectSelector: {matchLabels: {a: b}}, resourceRules", 1) + "\nvalidations: [{expression: 'false', message: selected}]" + told,
		"ignored":   things + "\nfailurePolicy: Ignore\nvalidations: [{expression: 'object.a.b == 1'}, {expression: 'object.b == true', message: b}]" + told,
		"message":   things + "\nvalidations: [{expression: 'object.?a.orValue(1) == 1', message: fallback, messageExpression: \"'a is ' + string(object.a)\"}]",
		"variables": things + "\nvariables: [{name: a, expression: 'object.a'}, {name: b, expression: 'variables.a.b'}, {name: c, expression: '[variables.a, object.?b.orValue(0)]'}]\n" +
			"validations: [{expression: 'variables.b == 1 || variables.c[0] == variables.c[1]', messageExpression: \"string(variables.a)\"}, {expression: 'has(variables.a.b)'}]\n" +
			"auditAnnotations: [{key: a, valueExpression: 'string(variables.a)'}, {key: b, valueExpression: \"has(variables.a.b) ? 'there' : ''\"}]" + told,
		"update": things + "\nvalidations: [{expression: 'oldObject == null || oldObject.a == object.a', reason: Forbidden}]",
	}
	for i, expression := range fuzzedExpressions(t) {
		out[fmt.Sprintf("expression-%02d", i)] = things + "\nvalidations: [{expression: " + toJSON(t, expression) + "}]"
	}
	return out
}

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
	metadata := map[string]any{"name": "web", "namespace": "shop"}
	given, _ := object["metadata"].(map[string]any)
	for _, key := range []string{"labels", "annotations"} {
		texts := map[string]any{}
		of, _ := given[key].(map[string]any)
		for name, text := range of {
			if _, ok := text.(string); ok {
				texts[name] = text
			}
		}
		if len(texts) > 0 {
			metadata[key] = texts
		}
	}
	object["apiVersion"], object["kind"], object["metadata"] = "example.com/v1", "Thing", metadata
	out, err := json.Marshal(object)
	return out, err == nil
}

// FuzzSameAsUpstream holds Review against the API server's dispatcher for
// arbitrary objects.
func FuzzSameAsUpstream(f *testing.F) {
	for _, seeds := range [][2]string{
		{`{}`, ``},
		{`{"a": 1, "b": 1.0, "c": true}`, `{"a": 1}`},
		{`{"a": "1", "b": 1, "c": [1, "x", null]}`, `{}`},
		{`{"a": {"b": {"c": true}}, "b": {"c": null}, "metadata": {"labels": {"a": "b", "team": "checkout"}}}`, `{"a": {"b": 1}}`},
		{`{"a": [{"b": 1}, {"b": "x"}, []], "b": 0, "c": {"b": 1}}`, `{"a": null}`},
		{`{"a": "1Gi", "b": "2G", "c": "1Gi2G"}`, ``},
		{`{"a": "aaa", "b": "a+", "c": 9223372036854775807}`, ``},
		{`{"a": 9223372036854775807, "b": 1e30, "c": -0.0}`, ``},
		{`{"a": null, "b": null}`, ``},
		{`{"a": ["x", "y"], "b": "x", "c": "x"}`, `{"a": ["y", "x"]}`},
		{`{"spec": {"n": 3, "f": 3.5, "big": 9007199254740993, "list": ["a", "b"], "null": null, "ip": "10.1.2.3", "with-dash": "x", "replicas": 2}}`, ``},
		{`{"spec": {"containers": [{"name": "a", "securityContext": {"runAsNonRoot": true}}], "template": {"spec": {"containers": [{"resources": {"limits": {"memory": "1Gi", "cpu": "250m"}}}]}}}}`, ``},
	} {
		f.Add([]byte(seeds[0]), []byte(seeds[1]))
	}
	type pair struct {
		name      string
		set       *policy.Set
		reference *upstream
	}
	var pairs []pair
	for name, text := range fuzzedPolicies(f) {
		spec := specOf(f, differentialSpec(name, text)+"\n---"+differentialContext)
		spec.Authorizer = testAuthorizer{}
		set, err := policy.Compile(spec)
		must(f, err)
		pairs = append(pairs, pair{name, set, newUpstream(f, spec)})
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
			want := p.reference.decide(t, req)
			got, err := ours(decide(t, p.set, req))
			must(t, err)
			if !got.bounded(want) {
				t.Errorf("%s, object %s, before %s:\n     got %s\nupstream %s", p.name, thing, req.OldObject.Raw, toJSON(t, got), toJSON(t, want))
			}
		}
	})
}

// bounded reports whether an outcome is the other with texts that are cut, and with
// what cannot be printed left out.
func (o outcome) bounded(of outcome) bool {
	if o.Allowed != of.Allowed || o.Code != of.Code || o.Reason != of.Reason || !boundedText(o.First, of.First) || len(o.Warnings) != len(of.Warnings) || len(o.Audit) != len(of.Audit) {
		return false
	}
	for i := range o.Warnings {
		if !boundedText(o.Warnings[i], of.Warnings[i]) {
			return false
		}
	}
	for key, value := range o.Audit {
		if of, ok := of.Audit[key]; !ok || !boundedText(value, of) {
			return false
		}
	}
	return true
}

// goTypeName is how a message names the Go type of a value.
var goTypeName = regexp.MustCompile(`\*(rawcel|types|common)\.[A-Za-z]+`)

func boundedText(text, of string) bool {
	// Where cel-go names the Go type of a value, ours is another.
	text, of = goTypeName.ReplaceAllString(text, "*type"), goTypeName.ReplaceAllString(of, "*type")
	if strings.ContainsFunc(of, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text != ""
	}
	start, cut := strings.CutSuffix(text, "…")
	return text == of || cut && strings.HasPrefix(of, start)
}
