package replay

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	celvalue "github.com/gatehouse-dev/gatehouse/webhooks/cel/value"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestFailOnRedacted evaluates expressions over objects with redacted values. What is known must have a
// result or an error of its own, and what depends on a redacted value must not.
func TestFailOnRedacted(t *testing.T) {
	t.Parallel()
	const undecided, failed = "undecided", "failed"
	const a, b = record.Mark, record.Mark
	object := `{"kind":"ConfigMap","data":{"a":"` + a + `","b":"` + b + `","same":"` + a + `"},
		"env":[{"name":"PLAIN"},{"name":"TOKEN","value":"` + a + `"}],"list":["x","` + b + `"],"plain":["x","y"]}`
	old := `{"kind":"ConfigMap","data":{"a":"` + a + `","b":"` + b + `","same":"` + a + `"},"env":[],"list":["x","` + b + `"]}`
	for _, tt := range []struct{ expression, want string }{
		{`has(object.data.a)`, "true"},
		{`'a' in object.data`, "true"},
		{`object.data == oldObject.data`, undecided},
		{`object.data.a == oldObject.data.a`, undecided},
		{`object.data.a == object.data.same`, undecided},
		{`object.data.a == object.data.b`, undecided},
		{`object.data.a != object.data.b`, undecided},
		{`object.data.a == "prod"`, undecided},
		{`"prod" == object.data.a`, undecided},
		{`"prod" != object.data.a`, undecided},
		{`object.data.a == 1`, undecided},
		{`object.data.a == null`, undecided},
		{`object.data == {"a": "x", "b": "y", "same": "x"}`, undecided},
		{`{"a": "x", "b": "y", "same": "x"} == object.data`, undecided},
		{`object.data == {"a": "x"}`, undecided},
		{`object.list == ["x", "y"]`, undecided},
		{`["z", "y"] == object.list`, undecided},
		{`object.list == oldObject.list`, undecided},
		{`"x" in object.list`, undecided},
		{`"y" in object.list`, undecided},
		{`object.data.a in ["x"]`, undecided},
		{`object.data.a in object.data.map(k, object.data[k])`, undecided},
		{`object.data.a in {"x": true}`, undecided},
		{`{"x": true}[object.data.a]`, undecided},
		{`object.data.a.startsWith("x")`, undecided},
		{`object.data.a.startsWith("x") || has(object.env)`, "true"},
		{`object.data.a.startsWith("x") && !has(object.env)`, "false"},
		{`object.data.a.startsWith("x") ? true : true`, undecided},
		{`object.env.all(e, e.name != "AWS")`, "true"},
		{`object.env.all(e, !has(e.value) || e.value.size() < 9)`, undecided},
		{`object.env.exists(e, e.name == "PLAIN" || e.value == "x")`, "true"},
		{`object.env.exists(e, e.name == "TOKEN" && has(e.value))`, "true"},
		{`size(object.data) == 3`, "true"},
		{`size(object.data.a) == 3`, undecided},
		{`object.data.a + "x" == "y"`, undecided},
		{`string(object.data.a) == "y"`, undecided},
		{`object.?data.?a.orValue("") == "y"`, undecided},
		{`object.?data.?a.hasValue()`, undecided},
		{`object.?data.?a.orValue("") == oldObject.?data.?a.orValue("")`, undecided},
		{`object.?data.?none.orValue("y") == "y"`, "true"},
		{`object.plain.join(",") == "x,y"`, "true"},
		{`object.list.join(",") == "x,y"`, undecided},
		{`"a-b".replace("a", object.data.a) == "x"`, undecided},
		{`object.plain == ["x", "y"]`, "true"},
		{`(object.plain + object.list).size() == 4`, "true"},
		{`object.data.a < "x"`, undecided},
		{`object.data.a.matches("^x$")`, undecided},
		{`object.kind == "ConfigMap"`, "true"},
		{`!object.data.a`, undecided},
		{`object.data.a && has(object.env)`, undecided},
		{`object.data.a && !has(object.env)`, "false"},
		{`object.data.a || !has(object.env)`, undecided},
		{`object.data.a || has(object.env)`, "true"},
		{`object.data.a ? true : false`, undecided},
		{`object.data.all(k, object.data[k])`, undecided},
		{`object.data.exists(k, object.data[k])`, undecided},
		{`object.data.exists_one(k, object.data[k])`, undecided},
		{`object.list.filter(x, x).size() == 0`, undecided},
		{`object.list.map(x, x, true).size() == 0`, undecided},
		{`"x" in {object.data.a: true}`, undecided},
		{`{object.data.a: true}["x"]`, undecided},
		{`{"x": object.data.a}["x"] == object.data.a`, undecided},
		{`object.data.missing == "x"`, failed},
		{`object.list[2] == "x"`, failed},
		{`1 / (size(object.data) - 3) == 1`, failed},
		{`int(object.kind) == 1`, failed},
		{`object.kind.startsWith("x") || int(object.kind) == 1`, failed},
		{`int(object.kind) == 1 ? true : object.data.a`, failed},
	} {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.OptionalTypes(), ext.Strings())
			if err != nil {
				t.Fatal(err)
			}
			ast, issues := env.Compile(tt.expression)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			program, err := env.Program(ast, failOnRedacted(env))
			if err != nil {
				t.Fatal(err)
			}
			vars := map[string]any{"object": celvalue.Value(rawjson.Value(object)), "oldObject": celvalue.Value(rawjson.Value(old))}
			result, _, err := program.Eval(vars)
			got := undecided
			switch {
			case err == nil:
				text, _ := result.ConvertToType(types.StringType).Value().(string)
				got = text
			case !errors.Is(err, policy.ErrUnanswered):
				got = failed
			}
			if got != tt.want {
				t.Errorf("= %s (%v), want %s", got, err, tt.want)
			}
		})
	}
}

// TestRedactedRules decides on a ConfigMap whose data is redacted. A rule that needs the data is
// undecided: it neither refuses nor lets pass, whatever the failure policy is.
func TestRedactedRules(t *testing.T) {
	t.Parallel()
	const (
		secret = record.Mark
		object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop"},"data":{"mode":"` + secret + `"}}`
		reads  = `{expression: 'object.data.mode == "prod"', message: wrong mode}`
		knows  = `{expression: 'object.metadata.name != "settings"', message: wrong name}`
	)
	for _, tt := range []struct {
		name, policy string
		old          string
		// want is "allowed", "undecided", or the message of a refusal.
		want string
	}{
		{"a rule that reads it", `validations: [` + reads + `]`, "", "undecided"},
		{"failurePolicy Ignore", `failurePolicy: Ignore` + "\n  " + `validations: [` + reads + `]`, "", "undecided"},
		{"a rule that asks whether it is there", `validations: [{expression: has(object.data.mode)}]`, "", "allowed"},
		{"another rule refuses", `validations: [` + reads + `, ` + knows + `]`, "", "wrong name"},
		{"a condition that reads it", `matchConditions: [{name: mode, expression: 'object.data.mode == "prod"'}]` + "\n  " + `validations: [` + knows + `]`, "", "undecided"},
		{"another condition is false", `matchConditions: [{name: mode, expression: 'object.data.mode == "prod"'}, {name: name, expression: 'false'}]` + "\n  " + `validations: [` + knows + `]`, "", "allowed"},
		{"a message that reads it", `validations: [{expression: 'false', message: refused, messageExpression: '"mode " + object.data.mode'}]`, "", "refused"},
		{"an audit annotation that reads it", `validations: [{expression: 'true'}]` + "\n  " + `auditAnnotations: [{key: mode, valueExpression: '"mode " + object.data.mode'}]`, "", "undecided"},
		{"a variable that reads it", `variables: [{name: mode, expression: 'object.data.mode + "x"'}]` + "\n  " + `validations: [{expression: 'variables.mode == "x"'}]`, "", "undecided"},
		{"a rule that needs a boolean", `validations: [{expression: '!object.data.mode', message: wrong}]`, "", "undecided"},
		{"a rule that needs a boolean, and failurePolicy Ignore", `failurePolicy: Ignore` + "\n  " + `validations: [{expression: 'object.data.mode && has(object.kind)', message: wrong}]`, "", "undecided"},
		{"a condition that needs a boolean", `failurePolicy: Ignore` + "\n  " + `matchConditions: [{name: mode, expression: 'object.data.mode || !has(object.kind)'}]` + "\n  " + `validations: [` + knows + `]`, "", "undecided"},
		{"a variable that needs a boolean", `variables: [{name: enabled, expression: '!object.data.mode'}]` + "\n  " + `validations: [{expression: variables.enabled, message: wrong}]`, "", "undecided"},
		{"a rule that fails for another reason", `validations: [{expression: 'object.metadata.labels.team == "shop"'}]`, "", "no such key: labels"},
		{"a variable that fails for another reason", `variables: [{name: number, expression: 'int(object.kind)'}]` + "\n  " + `validations: [{expression: variables.number == 1}]`, "", "type conversion error"},
		{"an update that keeps it", `validations: [` + reads + `]`, object, "undecided"},
		{"immutable", `validations: [{expression: 'request.operation != "UPDATE" || object.data == oldObject.data', message: immutable}]`, object, "undecided"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: modes}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}]}
  `+tt.policy)
			spec.Option = failOnRedacted
			set, err := policy.Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			request := requestFor("ConfigMap", "configmaps", object)
			if tt.old != "" {
				request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(tt.old)
			}
			d := set.Decide(t.Context(), policy.Input{Request: request, Violations: true})
			got := "allowed"
			switch {
			case d.Err != nil && !errors.Is(d.Err, policy.ErrUnanswered):
				t.Fatal(d.Err)
			case d.Err != nil:
				got = "undecided"
			case !d.Response().Allowed:
				got = d.Response().Result.Message
			}
			if got != tt.want && (len(tt.want) == 0 || !strings.Contains(got, tt.want)) {
				t.Errorf("%s (%v), want %s", got, d.Err, tt.want)
			}
		})
	}
}

// TestRedactedException has an exception whose condition reads a redacted value: the
// object may be excepted, so that the violation refuses nothing.
func TestRedactedException(t *testing.T) {
	t.Parallel()
	for _, condition := range []string{`object.data.mode == "prod"`, `!object.data.mode`} {
		t.Run(condition, func(t *testing.T) {
			t.Parallel()
			testRedactedException(t, condition)
		})
	}
}

func testRedactedException(t *testing.T, condition string) {
	t.Helper()
	spec := specOf(t, `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: modes}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}
  validations: [{expression: 'false', message: wrong}]
---
apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: production, namespace: gatehouse-system}
spec:
  policies: [{name: modes}]
  reason: production needs it
  match: {namespaces: [shop], matchConditions: [{name: production, expression: '`+condition+`'}]}`)
	spec.Option = failOnRedacted
	set, err := policy.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop"},"data":{"mode":"` + record.Mark + `"}}`
	if d := set.Decide(t.Context(), policy.Input{Request: requestFor("ConfigMap", "configmaps", object), Violations: true}); !errors.Is(d.Err, policy.ErrUnanswered) {
		t.Errorf("err = %v, response %+v; want undecided", d.Err, d.Response())
	}
}

// specOf returns the Spec of documents of policies.
func specOf(t *testing.T, documents string) policy.Spec {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte(documents), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c.Policy
}

// requestFor returns the request to create an object in the namespace shop.
func requestFor(kind, resource, object string) admission.Request {
	var r admission.Request
	r.Kind, r.Resource = metav1.GroupVersionKind{Version: "v1", Kind: kind}, metav1.GroupVersionResource{Version: "v1", Resource: resource}
	r.Operation, r.Namespace, r.Object.Raw = admissionv1.Create, "shop", []byte(object)
	return r
}
