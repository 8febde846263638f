package policy_test

import (
	"fmt"
	"strings"
	"testing"

	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// tooLarge are expressions whose types nobody lives to see checked.
func tooLarge() map[string]string {
	const n = 40
	var elements, unknown, unified strings.Builder
	for i := range n {
		fmt.Fprintf(&elements, "[{v%[1]d: v%[1]d}].all(v%[2]d, ", i, i+1)
		fmt.Fprintf(&unknown, "[].all(v%d, ", i+1)
		fmt.Fprintf(&unified, " && v%[1]d == {v%[2]d: v%[2]d}", i, i+1)
	}
	return map[string]string{
		"elements":        "[1].all(v0, " + elements.String() + "true" + strings.Repeat(")", n+1),
		"unknown":         "[].all(v0, " + unknown.String() + "true" + unified.String() + strings.Repeat(")", n+1),
		"optional values": "optional.of(1)" + strings.Repeat(".optMap(x, x)", n) + ".hasValue()",
		"patterns":        `'a'.matches('(?:` + strings.Repeat("a", 100) + `){1,900}') ? true : [1, 2] == []`,
		"more patterns":   "true" + strings.Repeat(" && 'a'.matches('^a{1,900}b')", 20),
		"lists":           strings.Repeat("[", 240) + strings.Repeat("]", 240) + " == []",
	}
}

const tooLargeHint = "split it, nest lists and maps less, call optMap less often, or repeat less in patterns"

// refusals returns the diagnostics that say that something is too large to be checked, by
// their fields. All others are failures.
func refusals(t *testing.T, spec policy.Spec) []string {
	t.Helper()
	spec.KeepBroken = true
	set, err := policy.Compile(spec)
	must(t, err)
	var out []string
	for _, f := range set.Warnings() {
		if f.Severity != diagnostic.Error {
			continue
		}
		together := strings.Contains(f.Message, "are too large in total: ") && f.Hint == celbound.DocumentHint
		if !together && (!strings.Contains(f.Message, "this expression is too large to check: ") || f.Hint != tooLargeHint) {
			t.Errorf("got %v", f)
			continue
		}
		out = append(out, f.Field)
	}
	return out
}

// TestTooLarge holds that no expression is checked that could never be, wherever it
// is written.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	for name, text := range tooLarge() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, documents(
				denyAll("p", fmt.Sprintf(`matchConditions: [{name: c, expression: %[1]q}], variables: [{name: v, expression: %[1]q}], validations: [{expression: %[1]q, messageExpression: %[2]q}], auditAnnotations: [{key: a, valueExpression: %[2]q}]`, text, "string("+text+")"), ""),
				exceptionOf("gatehouse-system", fmt.Sprintf("policies: [{name: p}], match: {matchConditions: [{name: c, expression: %q}]}", text))))
			want := "spec.auditAnnotations[0].valueExpression spec.matchConditions[0].expression spec.validations[0].expression" +
				" spec.validations[0].messageExpression spec.variables[0].expression spec.match.matchConditions[0].expression"
			if got := strings.Join(refusals(t, spec), " "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestTooLargeVariables holds that types do not grow from one variable to the next.
func TestTooLargeVariables(t *testing.T) {
	t.Parallel()
	variables := []string{`{name: v0, expression: "{1: 1}"}`}
	for i := range 40 {
		variables = append(variables, fmt.Sprintf(`{name: v%[2]d, expression: "{'a': variables.v%[1]d, 'b': variables.v%[1]d}"}`, i, i+1))
		variables = append(variables, fmt.Sprintf(`{name: w%[2]d, expression: "[variables.v%[1]d].map(x, {x: x})"}`, i, i+1))
	}
	twice := []string{`{name: v0, expression: "{1: 1}"}`}
	for i := range 40 {
		twice = append(twice, fmt.Sprintf(`{name: v%[2]d, expression: "{variables.v%[1]d: variables.v%[1]d}"}`, i, i+1))
	}
	for _, list := range [][]string{variables, twice} {
		spec := specOf(t, denyAll("p", "variables: ["+strings.Join(list, ", ")+`], validations: [{expression: "true"}]`, ""))
		if got := refusals(t, spec); len(got) == 0 {
			t.Error("none is refused")
		}
	}
}

// conditionsOf returns an exception with n conditions of an expression.
func conditionsOf(namespace string, n int, text string) string {
	var conditions []string
	for i := range n {
		conditions = append(conditions, fmt.Sprintf("{name: c%d, expression: %q}", i, text))
	}
	return exceptionOf(namespace, "policies: [{name: p}], match: {matchConditions: ["+strings.Join(conditions, ", ")+"]}")
}

// TestConditionsOfExceptions holds that those of one exception are bounded, and that
// those of one that does nothing are compiled by nobody but who checks files.
func TestConditionsOfExceptions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, namespace string
		n               int
		text            string
		keep            bool
		want            string
	}{
		{"many bytes", "gatehouse-system", 17, "true" + strings.Repeat(" || object.a", 85), true, "spec.match.matchConditions: have 17408 bytes together, allowed are 16384"},
		{"as many as allowed", "gatehouse-system", 16, "true" + strings.Repeat(" || object.a", 85), true, ""},
		{"many bytes where it does nothing", "shop", 17, "true" + strings.Repeat(" || object.a", 85), true, "have 17408 bytes together"},
		{"large patterns", "gatehouse-system", 10, "object.a.matches('^a{1,900}$')", true, "with repetitions written out they may have 8000 parts together"},
		{"a mistake", "gatehouse-system", 1, "objct.a", true, `"objct" is not declared`},
		{"a mistake where it does nothing", "shop", 1, "objct.a", true, ""},
		{"a mistake where it does nothing, in a file", "shop", 1, "objct.a", false, `"objct" is not declared`},
		{"many mistakes", "gatehouse-system", 64, "objct.a", true, "and more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, documents(denyAll("p", "", ""), conditionsOf(tc.namespace, tc.n, tc.text)))
			spec.KeepBroken = tc.keep
			set, err := policy.Compile(spec)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				for _, f := range set.Warnings() {
					if f.Severity == diagnostic.Error {
						got += f.String() + "\n"
					}
				}
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPreviousExceptions holds that conditions that have not changed are not compiled
// again, right or wrong, and what is said of them is.
func TestPreviousExceptions(t *testing.T) { //nolint:paralleltest // it counts allocations
	for name, text := range map[string]string{"right": "object.data.a == 'w' && object.data.b.matches('^w$')", "wrong": "object.data.a == 'w' && objct.x"} {
		spec := specOf(t, documents(denyAll("p", "", ""), conditionsOf("gatehouse-system", 40, text)))
		spec.KeepBroken = true
		compiled := func() *policy.Set {
			set, err := policy.Compile(spec)
			must(t, err)
			return set
		}
		first := compiled()
		var second *policy.Set
		whole := testing.AllocsPerRun(1, func() { spec.Previous = nil; second = compiled() })
		if part := testing.AllocsPerRun(1, func() { spec.Previous = first; second = compiled() }); part > whole/4 {
			t.Errorf("%s: compiling allocates %v times, and %v times again", name, whole, part)
		}
		if got, want := fmt.Sprint(second.Warnings()), fmt.Sprint(first.Warnings()); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if got, want := verdict(decide(t, second, review(t, configMap))), verdict(decide(t, first, review(t, configMap))); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}

	// One that did nothing had nothing compiled.
	spec := specOf(t, documents(denyAll("p", "", ""), conditionsOf("shop", 1, "false")))
	spec.KeepBroken = true
	set, err := policy.Compile(spec)
	must(t, err)
	spec.Previous, spec.Configuration = set, specOf(t, `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyConfiguration, exceptions: {ownNamespaces: [shop]}}`).Configuration
	set, err = policy.Compile(spec)
	must(t, err)
	if decide(t, set, review(t, configMap)).Allowed {
		t.Error("an exception whose condition is false lets pass what it is about")
	}
}

// TestFewDiagnostics holds that one exception does not fill a log.
func TestFewDiagnostics(t *testing.T) {
	t.Parallel()
	var policies []string
	for i := range 64 {
		var rules []string
		for k := range 64 {
			rules = append(rules, fmt.Sprintf("\"validations[%d]\"", k+1))
		}
		policies = append(policies, fmt.Sprintf("{name: p%d, rules: [%s]}", i, strings.Join(rules, ", ")))
	}
	var all []string
	for i := range 64 {
		all = append(all, denyAll(fmt.Sprintf("p%d", i), "", ""))
	}
	set, err := policy.Compile(specOf(t, documents(append(all, exceptionOf("gatehouse-system", "policies: ["+strings.Join(policies, ", ")+"], match: {namespaces: [shop]}"))...)))
	must(t, err)
	found := set.Warnings()
	if len(found) != 21 || !strings.Contains(fmt.Sprint(found), "and more") {
		t.Errorf("%d diagnostics: %v", len(found), found)
	}
}
