package policy_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestExplain compares what is reported of policies with each result with
// testdata/explained.json. UPDATE_GOLDEN=1 writes it.
func TestExplain(t *testing.T) {
	t.Parallel()
	set := compile(t, documents(
		denyAll("a", `matchConditions: [{name: alice, expression: "request.userInfo.username == 'alice'"}], variables: [{name: a, expression: "object.data.a + '!'"}, {name: unused, expression: "1"}],
  validations: [{expression: "variables.a == 'b!'"}, {expression: "variables.a == 'x'", messageExpression: "'is ' + variables.a"}, {expression: "object.data.none == 'x'"}],
  auditAnnotations: [{key: k, valueExpression: "variables.a"}]`, ""),
		denyAll("b", `matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}`, ""),
		denyAll("c", "", "matchResources: {namespaceSelector: {matchLabels: {env: test}}}"),
		denyAll("d", "", "matchResources: {objectSelector: {matchLabels: {team: dev}}}"),
		denyAll("e", `matchConditions: [{name: bob, expression: "request.userInfo.username == 'bob'"}]`, ""),
		denyAll("f", "paramKind: {apiVersion: v1, kind: ConfigMap}", "paramRef: {name: none, parameterNotFoundAction: Allow}"),
		denyAll("g", "paramKind: {apiVersion: example.com/v1, kind: Unserved}", "paramRef: {name: none, parameterNotFoundAction: Allow}"),
		labelled,
	))
	d := set.Decide(context.Background(), policy.Input{Request: review(t, configMap), Explain: true})
	got, err := json.MarshalIndent(d.Evaluations, "", " ")
	must(t, err)
	const golden = "testdata/explained.json"
	if got = append(got, '\n'); os.Getenv("UPDATE_GOLDEN") == "1" {
		must(t, os.WriteFile(golden, got, 0o600))
	}
	if string(got) != readFile(t, golden) {
		t.Errorf("got\n%s", got)
	}
}

// TestObservations holds what is counted: each rule of each binding once, and each
// binding as a whole.
func TestObservations(t *testing.T) {
	t.Parallel()
	set := compile(t, documents(
		denyAll("a", `validations: [{expression: "object.data.a == 'b'"}, {expression: "object.data.a == 'x'"}]`, ""),
		denyAll("b", "", "matchResources: {objectSelector: {matchLabels: {team: dev}}}")))
	type counted struct {
		policy, binding, rule string
		outcome               policy.Outcome
	}
	var got []counted
	set.Decide(context.Background(), policy.Input{Request: review(t, configMap), Checked: true, Observe: func(list []policy.Observation) {
		for _, o := range list {
			got = append(got, counted{o.Policy, o.Binding, o.Rule, o.Outcome})
		}
	}}).Response()
	want := []counted{{"a", "a", "validations[0]", "Passed"}, {"a", "a", "validations[1]", "Violated"}, {"a", "a", "", "Evaluated"}}
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got[i], want[i])
		}
	}
}

// TestExplainExceptions holds what is told about exceptions that do not hold.
func TestExplainExceptions(t *testing.T) {
	t.Parallel()
	exception := func(name, namespace, spec string) string {
		return `{apiVersion: gatehouse.dev/v1alpha1, kind: PolicyException, metadata: {name: ` + name + `, namespace: ` + namespace + `}, spec: {reason: "x", policies: [{name: p}], ` + spec + `}}`
	}
	set := compile(t, documents(denyAll("p", "", ""),
		exception("a", "shop", "match: {namespaces: [shop]}"),
		exception("b", "gatehouse-system", `match: {namespaces: [shop]}, expiresAt: "2020-01-01T00:00:00Z"`),
		exception("c", "gatehouse-system", "match: {namespaces: [lab]}"),
		exception("d", "gatehouse-system", "match: {names: [other]}"),
		exception("e", "gatehouse-system", "match: {objectSelector: {matchLabels: {a: b}}}"),
		exception("f", "gatehouse-system", "match: {namespaceSelector: {matchLabels: {a: b}}}"),
		exception("g", "gatehouse-system", `match: {matchConditions: [{name: admins, expression: "request.userInfo.username == 'bob'"}]}`)))
	want := []policy.TriedException{
		{Exception: "gatehouse-system/b", Why: "it expired at 2020-01-01T00:00:00Z"},
		{Exception: "gatehouse-system/c", Why: `it selects namespaces "lab", and the object is in "shop"`},
		{Exception: "gatehouse-system/d", Why: `it selects names "other", and the object is "settings"`},
		{Exception: "gatehouse-system/e", Why: "its objectSelector does not match"},
		{Exception: "gatehouse-system/f", Why: "its namespaceSelector does not match"},
		{Exception: "gatehouse-system/g", Why: "its match condition admins is not true"},
		{Exception: "shop/a", Why: `exceptions in namespace "shop" do nothing`},
	}
	got := set.Decide(context.Background(), policy.Input{Request: review(t, configMap), Explain: true}).Evaluations[0].Rules[0].Tried
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	// An exception that holds makes the others no matter.
	set = compile(t, documents(denyAll("p", "", ""), exception("a", "shop", "match: {namespaces: [shop]}"), exception("z", "gatehouse-system", "match: {namespaces: [shop]}")))
	if rule := set.Decide(context.Background(), policy.Input{Request: review(t, configMap), Explain: true}).Evaluations[0].Rules[0]; rule.Exception != "gatehouse-system/z" || rule.Tried != nil {
		t.Errorf("got %+v", rule)
	}
}
