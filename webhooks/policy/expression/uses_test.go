package expression_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// TestUsesUser has what of the request is of who asks, and what is of the object.
func TestUsesUser(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	for text, want := range map[string]bool{
		"request.namespace == 'a' && request.name.startsWith('b')": false,
		"request.kind.kind == 'Pod' && has(request.kind.group)":    false,
		"request.resource.resource == 'pods'":                      false,
		"request.requestKind.version == 'v1'":                      false,
		"request.requestResource.group == ''":                      false,
		"has(request.subResource) && request.subResource == 'x'":   false,
		"request.requestSubResource == ''":                         false,
		"[request.name].exists(request, request == 'a')":           true, // taken for the request
		"object.request.operation == 'UPDATE'":                     false,
		"oldObject == null":                                        false,

		"request.operation == 'UPDATE'":                                    true,
		"request.userInfo.username == 'a'":                                 true,
		"has(request.dryRun)":                                              true,
		"request.options == null":                                          true,
		"request == null":                                                  true,
		"request.name == 'a' && request.operation == 'UPDATE'":             true,
		"dyn(request).name == 'a'":                                         true,
		"[request].exists(r, r.name == 'a')":                               true,
		"string(dyn(request)['name']) == 'a'":                              true,
		"[1].all(request, .request.operation == 'UPDATE' && request == 1)": true,
		"variables.about == 'a' || variables.user == 'a'":                  true,
	} {
		variables := declare(t, compiler, pair{"about", "request.name"}, pair{"user", "request.userInfo.username"})
		if got := compile(t, compiler, variables, text).Uses().Has(expression.UsesUser); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	variables := declare(t, compiler, pair{"about", "request.name"})
	if compile(t, compiler, variables, "variables.about == 'a'").Uses().Has(expression.UsesUser) {
		t.Error("a variable about the name is taken for one about who asks")
	}
}

// TestIsNothing has what looks at nothing of the object.
func TestIsNothing(t *testing.T) {
	t.Parallel()
	compiler := sharedCompiler()
	variables := declare(t, compiler, pair{"user", "request.userInfo.username"}, pair{"a", "object.a"})
	for text, want := range map[string]bool{
		"false":                                 true,
		"request.operation == 'UPDATE'":         true,
		"oldObject.a == 1":                      true,
		"variables.user == 'a'":                 true,
		"[{'a': 1}].all(object, object.a == 1)": true,
		"object == null":                        true,
		"dyn(object) == 1":                      false,
		"has(object.a)":                         false,
		"object.all(k, true)":                   false,
		"'a' in object":                         false,
		"variables.a == 1":                      false,
	} {
		if got := compile(t, compiler, variables, text).Reads().IsNothing(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	var none *expression.Reads
	if !none.IsNothing() || !sameIn(none, parse(t, "1"), parse(t, "2")) {
		t.Error("no reads are something")
	}
}
