package policy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestForObjects has what is known of an object alone, and what is left out with the reason.
func TestForObjects(t *testing.T) {
	t.Parallel()
	const object = `{apiVersion: v1, kind: ConfigMap, metadata: {name: legacy-1, namespace: shop}, data: {a: w}}`
	broken := func(rules string) string { return own("validations: [" + rules + "]") }
	plain := `{expression: "object.data.a == 'x'", message: a}`
	for _, tc := range []struct{ name, documents, want, left string }{
		{"nothing", broken(plain), "Violated validations[0]", ""},
		{
			"rules", broken(plain + `, {expression: "request.userInfo.username == 'x'"}, {expression: "oldObject == null && authorizer.path('/x').check('get').allowed()"}, {expression: "request.operation == 'UPDATE' && request.dryRun && request.options == null"}, {expression: "request.name == ''", name: last}`),
			"Violated validations[0]; Violated validations[last]",
			"own validations[1] reads request.userInfo; own validations[2] reads oldObject, authorizer; own validations[3] reads request.operation, request.options, request.dryRun",
		},
		{"known of the request", broken(`{expression: "request.name + request.namespace + request.kind.kind + request.resource.resource == ''"}`), "Violated validations[0]", ""},
		{
			"through a variable", own(`variables: [{name: who, expression: "request.userInfo.username"}, {name: what, expression: "object.data.a"}, {name: both, expression: "variables.who + variables.what"}], validations: [{expression: "variables.what == 'x'"}, {expression: "variables.both == 'x'"}]`),
			"Violated validations[0]", "own validations[1] reads request.userInfo",
		},
		{"all rules", broken(`{expression: "request.userInfo.username == 'x'"}`), "", "own validations[0] reads request.userInfo"},
		{"a match condition", own(`matchConditions: [{name: c, expression: "request.userInfo.username == 'x'"}], validations: [` + plain + `]`), "", "own condition c reads request.userInfo"},
		{"a match condition that is known", own(`matchConditions: [{name: c, expression: "request.userInfo.username != 'x'"}], validations: [` + plain + `]`), "Violated validations[0]", ""},
		{"a match condition about the object", own(`matchConditions: [{name: c, expression: "object.data.a == 'w'"}], validations: [` + plain + `]`), "Violated validations[0]", ""},
		{"a message", broken(`{expression: "object.data.a == 'x'", message: static, messageExpression: "'by ' + request.userInfo.username"}`), "Violated validations[0]", ""},
		{"an audit annotation", own(`validations: [` + plain + `], auditAnnotations: [{key: k, valueExpression: "request.userInfo.username"}]`), "Violated validations[0]", "own auditAnnotations[0] reads request.userInfo"},
		{"no creation", strings.Replace(broken(plain), `"CREATE", UPDATE`, "UPDATE, DELETE", 1), "", "own no creation"},
		{"subresources", strings.Replace(broken(plain), "resources: [pods, deployments, configmaps]", `resources: [pods/exec, "*/status"]`, 1), "", "own no creation"},
		{"not in force", strings.Replace(broken(`{expression: "request.userInfo.username == 'x'"}`), "validationActions: [Deny], ", "", 1), "", ""},

		{"an exception that surely holds", documents(broken(plain), exceptionOf("gatehouse-system", "policies: [{name: own}], match: {names: [legacy-1]}")), "Excepted validations[0] by gatehouse-system/x", ""},
		{
			"an exception that may hold", documents(broken(plain), exceptionOf("gatehouse-system", `policies: [{name: own}], match: {matchConditions: [{name: o, expression: "object.data.a == 'w'"}, {name: c, expression: "request.userInfo.username == 'x'"}]}`)),
			`Violated validations[0] by gatehouse-system/x unknown, its match condition "c" reads request.userInfo`, "",
		},
		{
			"an exception that does not hold in any case", documents(broken(plain), exceptionOf("gatehouse-system", `policies: [{name: own}], match: {matchConditions: [{name: c, expression: "request.userInfo.username == 'x'"}, {name: o, expression: "object.data.a == 'z'"}]}`)),
			"Violated validations[0]", "",
		},
		{
			"another exception surely holds", documents(broken(plain), exceptionOf("gatehouse-system", `policies: [{name: own}], match: {matchConditions: [{name: c, expression: "request.userInfo.username == 'x'"}]}`),
				strings.Replace(exceptionOf("gatehouse-system", "policies: [{name: own}], match: {names: [legacy-1]}"), "name: x", "name: other", 1)),
			"Excepted validations[0] by gatehouse-system/other", "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, tc.documents)
			spec.KeepBroken = true
			set, err := policy.Compile(spec)
			must(t, err)
			set, left := set.ForObjects("request.userInfo.username != 'x'")
			var texts []string
			for _, l := range left {
				switch {
				case l.Condition != "":
					texts = append(texts, fmt.Sprintf("%s condition %s reads %s", l.Policy, l.Condition, strings.Join(l.Reads, ", ")))
				case l.Rule == "":
					texts = append(texts, l.Policy+" no creation")
				default:
					texts = append(texts, fmt.Sprintf("%s %s reads %s", l.Policy, l.Rule, strings.Join(l.Reads, ", ")))
				}
			}
			if got := strings.Join(texts, "; "); got != tc.left {
				t.Errorf("left out are %q, want %q", got, tc.left)
			}
			d := set.Decide(context.Background(), policy.Input{Request: review(t, object), Violations: true})
			got := outcomes(d)
			for _, v := range d.Violations {
				if v.Unknown != "" {
					got += " unknown, " + v.Unknown
				}
				if strings.Contains(v.Message, "by ") || v.StaticMessage() == "" {
					t.Errorf("message %q, static %q", v.Message, v.StaticMessage())
				}
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if want := !strings.Contains(tc.want, "Violated") || strings.Contains(tc.want, "unknown"); d.Response().Allowed != want || d.Err != nil {
				t.Errorf("allowed: %t, error %v", d.Response().Allowed, d.Err)
			}
		})
	}
}
