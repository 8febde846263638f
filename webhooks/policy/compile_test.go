package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const replicasPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["apps"], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["deployments"]}
  validations:
  - {expression: "object.spec.replicas <= 5", message: at most 5 replicas}`

const replicasBinding = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: everywhere}
spec: {policyName: replicas, validationActions: [Deny]}`

const ownPolicy = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: own}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"]}
  podSecurity: {level: baseline}
  validationActions: [Deny]`

func TestCompileDiagnostics(t *testing.T) {
	t.Parallel()
	const (
		vap = "error: test.yaml#1: ValidatingAdmissionPolicy/replicas: "
		vab = "error: test.yaml#2: ValidatingAdmissionPolicyBinding/everywhere: "
		own = "error: test.yaml#1: AdmissionPolicy/own: "
	)
	long := make([]string, 65)
	for i := range long {
		long[i] = fmt.Sprintf(`{name: c%d, expression: "true"}`, i)
	}
	notes := make([]string, 20)
	for i := range notes {
		notes[i] = fmt.Sprintf(`{key: k%d, valueExpression: "'x'"}`, i)
	}
	for _, tc := range []struct {
		name string
		// old and new change the valid documents in one place; own says that the
		// document is the AdmissionPolicy.
		old, new string
		own      bool
		want     []string
	}{
		{name: "nothing is wrong"},
		{name: "nothing is wrong with an AdmissionPolicy", own: true},
		{
			name: "expression with a name misspelt", old: "object.spec.replicas <= 5", new: "objct.spec.replicas <= 5",
			want: []string{vap + `spec.validations[0].expression: 1:1 in "objct.spec.replicas <= 5": "objct" is not declared (hint: did you mean "object"?)`},
		},
		{
			name: "every error of an expression, with its line", old: `"object.spec.replicas <= 5"`, new: `"object.a == b\n&& object.c == d"`,
			want: []string{
				vap + `spec.validations[0].expression: 1:13 in "object.a == b": "b" is not declared`,
				vap + `spec.validations[0].expression: 2:16 in "&& object.c == d": "d" is not declared`,
			},
		},
		{
			name: "every expression", old: `at most 5 replicas}`, new: `m, messageExpression: "1"}
  - {expression: "1"}
  - {expression: "object.spec.paused"}
  matchConditions: [{name: a, expression: "'x'"}]
  auditAnnotations: [{key: a, valueExpression: "1"}]`,
			want: []string{
				vap + `spec.auditAnnotations[0].valueExpression: "1" must evaluate to one of [string null_type] but got int`,
				vap + `spec.matchConditions[0].expression: "'x'" must evaluate to bool but got string`,
				vap + `spec.validations[0].messageExpression: "1" must evaluate to string but got int`,
				vap + `spec.validations[1].expression: "1" must evaluate to bool but got int`,
				vap + `spec.validations[2].expression: "object.spec.paused" must evaluate to bool but got dyn (hint: its type is not known before the request: compare it, as in "… == true")`,
			},
		},
		{
			name: "variables", old: `validations:
  - {expression: "object.spec.replicas <= 5"`, new: `variables:
  - {name: spec, expression: "object.spec"}
  - {name: while, expression: "1"}
  - {name: spec, expression: "nothing"}
  - {name: "", expression: ""}
  matchConditions: [{name: a, expression: "variables.spec == 1"}]
  validations:
  - {expression: "variables.specs == 1 && spec == 2"`,
			want: []string{
				vap + `spec.matchConditions[0].expression: 1:1 in "variables.spec == 1": "variables" cannot be used in match conditions (hint: repeat the variable's expression)`,
				vap + `spec.validations[0].expression: 1:10 in "variables.specs == 1 && spec == 2": there is no field "specs" (hint: did you mean "spec"?)`,
				vap + `spec.validations[0].expression: 1:25 in "variables.specs == 1 && spec == 2": "spec" is not declared (hint: did you mean "variables.spec"?)`,
				vap + `spec.variables[1].name: "while" is not a CEL identifier (hint: use letters, digits and underscores, and no word that CEL reserves)`,
				vap + `spec.variables[2].expression: 1:1 in "nothing": "nothing" is not declared`,
				vap + `spec.variables[3].expression: is required (hint: write a CEL expression)`,
				vap + `spec.variables[3].name: is required`,
			},
		},
		{
			name: "authorizer", old: "object.spec.replicas <= 5", new: "authorizer.group('').resource('pods').check('get').allowed()",
			want: []string{"warning: test.yaml#1: ValidatingAdmissionPolicy/replicas: the policy asks authorizer, and there is none to ask: what asks fails (hint: write the Roles and bindings that it is about into the directory, or connect to a cluster)"},
		},
		{
			name: "authorizer of the request's resource", old: "object.spec.replicas <= 5", new: "authorizer.requestResource.check('get').allowed()",
			want: []string{"warning: test.yaml#1: ValidatingAdmissionPolicy/replicas: the policy asks authorizer, and there is none to ask: what asks fails (hint: write the Roles and bindings that it is about into the directory, or connect to a cluster)"},
		},
		{
			name: "params without a kind", old: "object.spec.replicas <= 5", new: "params.a == 1",
			want: []string{vap + `spec.validations[0].expression: 1:1 in "params.a == 1": "params" is not declared (hint: set spec.paramKind, and paramRef in the binding)`},
		},
		{
			name: "fields of the request", old: "object.spec.replicas <= 5", new: "request.userInfo.groupes == []",
			want: []string{vap + `spec.validations[0].expression: 1:17 in "request.userInfo.groupes == []": there is no field "groupes" (hint: did you mean "groups"?)`},
		},
		{
			name: "one equals sign", old: "object.spec.replicas <= 5", new: "object.spec.replicas = 5",
			want: []string{
				vap + `spec.validations[0].expression: 1:22 in "object.spec.replicas = 5": Syntax error: token recognition error at: '= ' (hint: equality is written ==)`,
				vap + `spec.validations[0].expression: 1:24 in "object.spec.replicas = 5": Syntax error: extraneous input '5' expecting <EOF>`,
			},
		},
		{
			name: "blank texts", old: `"object.spec.replicas <= 5", message: at most 5 replicas`, new: `" ", message: " ", messageExpression: " "`,
			want: []string{
				vap + `spec.validations[0].expression: is required (hint: write a CEL expression)`,
				vap + `spec.validations[0].message: is blank (hint: leave it out to have none)`,
				vap + `spec.validations[0].messageExpression: is blank (hint: leave it out to have none)`,
			},
		},
		{
			name: "message on two lines, and a reason", old: "at most 5 replicas", new: `"at most\n5", reason: forbidden`,
			want: []string{
				vap + `spec.validations[0].message: "at most\n5" has line breaks (hint: write it on one line (in YAML, >- folds lines))`,
				vap + `spec.validations[0].reason: "forbidden" is not allowed; allowed are "Forbidden", "Invalid", "RequestEntityTooLarge" (hint: did you mean "Forbidden"?)`,
			},
		},
		{
			name: "no validations", old: `
  validations:
  - {expression: "object.spec.replicas <= 5", message: at most 5 replicas}`, new: "",
			want: []string{vap + `spec.validations: is required (hint: a policy needs validations or auditAnnotations)`},
		},
		{
			name: "names", old: "metadata: {name: replicas}", new: "metadata: {name: Replicas}",
			want: []string{
				strings.ReplaceAll(vap, "/replicas", "/Replicas") + `metadata.name: "Replicas" is not a name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			name: "failure policy", old: "spec:\n  match", new: "spec:\n  failurePolicy: fail\n  match",
			want: []string{vap + `spec.failurePolicy: "fail" is not allowed; allowed are "Fail", "Ignore" (hint: did you mean "Fail"?)`},
		},
		{
			name: "no constraints", old: `matchConstraints:
    resourceRules:
    - {apiGroups: ["apps"], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["deployments"]}`, new: "matchConstraints: {}",
			want: []string{vap + `spec.matchConstraints.resourceRules: is required (hint: say which requests the policy is about)`},
		},
		{
			name: "no constraints at all", old: `matchConstraints:
    resourceRules:
    - {apiGroups: ["apps"], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["deployments"]}`, new: "failurePolicy: Fail",
			want: []string{vap + `spec.matchConstraints: is required (hint: say in resourceRules which requests the policy is about)`},
		},
		{
			name: "an empty rule", old: `{apiGroups: ["apps"], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["deployments"]}`, new: "{}",
			want: []string{
				vap + `spec.matchConstraints.resourceRules[0].apiGroups: is required (hint: name at least one, or "*" for all)`,
				vap + `spec.matchConstraints.resourceRules[0].apiVersions: is required (hint: name at least one, or "*" for all)`,
				vap + `spec.matchConstraints.resourceRules[0].operations: is required (hint: name at least one, or "*" for all)`,
				vap + `spec.matchConstraints.resourceRules[0].resources: is required (hint: name at least one, such as "pods")`,
			},
		},
		{
			name: "a rule with everything wrong",
			old:  `{apiGroups: ["apps"], apiVersions: ["v1"], operations: ["CREATE", "UPDATE"], resources: ["deployments"]}`,
			new:  `{apiGroups: ["apps", "*"], apiVersions: ["", "apps/v1"], operations: ["CREAT", "*"], resources: ["*", "Pods", "pods/*", "pods/log", ""], scope: namespaced, resourceNames: [a, a, "b/c"]}`,
			want: []string{
				vap + `spec.matchConstraints.resourceRules[0].apiGroups: "*" stands for all API groups, so it must stand alone`,
				vap + `spec.matchConstraints.resourceRules[0].apiVersions[0]: is required (hint: name a version, such as "v1", or "*")`,
				vap + `spec.matchConstraints.resourceRules[0].apiVersions[1]: "apps/v1" is not a version (hint: the group stands in apiGroups)`,
				vap + `spec.matchConstraints.resourceRules[0].operations: "*" stands for all operations, so it must stand alone`,
				vap + `spec.matchConstraints.resourceRules[0].operations[0]: "CREAT" is not allowed; allowed are "CREATE", "UPDATE", "DELETE", "CONNECT", "*" (hint: did you mean "CREATE"?)`,
				vap + `spec.matchConstraints.resourceRules[0].resourceNames[1]: "a" occurs twice`,
				vap + `spec.matchConstraints.resourceRules[0].resourceNames[2]: "b/c" is not a name: may not contain '/'`,
				vap + `spec.matchConstraints.resourceRules[0].resources: "*" stands for all resources, so no other resource may be named beside it`,
				vap + `spec.matchConstraints.resourceRules[0].resources[3]: "pods/*" includes "pods/log" already`,
				vap + `spec.matchConstraints.resourceRules[0].resources[4]: is required`,
				vap + `spec.matchConstraints.resourceRules[0].scope: "namespaced" is not allowed; allowed are "*", "Namespaced", "Cluster" (hint: did you mean "Namespaced"?)`,
			},
		},
		{
			name: "everything and more", old: `["deployments"]`, new: `["*/*", "pods"]`,
			want: []string{vap + `spec.matchConstraints.resourceRules[0].resources: "*/*" stands for all resources and subresources, so it must stand alone`},
		},
		{
			name: "selectors and match policy", old: "matchConstraints:\n", new: `matchConstraints:
    matchPolicy: Equal
    namespaceSelector: {matchLabels: {"a b": c}}
    objectSelector: {matchExpressions: [{key: a, operator: in}]}
    excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [GET], resources: [pods]}]
`,
			want: []string{
				vap + `spec.matchConstraints.excludeResourceRules[0].operations[0]: "GET" is not allowed; allowed are "CREATE", "UPDATE", "DELETE", "CONNECT", "*"`,
				vap + `spec.matchConstraints.matchPolicy: "Equal" is not allowed; allowed are "Equivalent", "Exact"`,
				vap + `spec.matchConstraints.namespaceSelector.matchLabels: invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				vap + `spec.matchConstraints.objectSelector.matchExpressions[0].operator: invalid value: "in": not a valid selector operator`,
			},
		},
		{
			name: "match conditions", old: "validations:", new: "matchConditions: [" + strings.Join(long, ", ") + `, {name: c0, expression: "true"}, {name: "a b", expression: ""}, {expression: "true"}]
  validations:`,
			want: []string{
				vap + `spec.matchConditions: has 68 items, allowed are 64`,
				vap + `spec.matchConditions[65].name: "c0" occurs twice`,
				vap + `spec.matchConditions[66].expression: is required (hint: write a CEL expression)`,
				vap + `spec.matchConditions[66].name: "a b" is not a name: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				vap + `spec.matchConditions[67].name: is required`,
			},
		},
		{
			name: "audit annotations", old: "validations:", new: `auditAnnotations: [{key: a, valueExpression: "'x'"}, {key: a, valueExpression: ""}, {key: "", valueExpression: "null"}, {key: "a/b", valueExpression: "null"}]
  validations:`,
			want: []string{
				vap + `spec.auditAnnotations[1].key: "a" occurs twice`,
				vap + `spec.auditAnnotations[1].valueExpression: is required (hint: write a CEL expression)`,
				vap + `spec.auditAnnotations[2].key: is required`,
				vap + `spec.auditAnnotations[3].key: "a/b" behind the policy's name is not a key: a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
			},
		},
		{
			name: "param kind", old: "spec:\n  match", new: "spec:\n  paramKind: {apiVersion: a/b/c, kind: Config Map}\n  match",
			want: []string{
				vap + `spec.paramKind.apiVersion: "a/b/c" is not a group and version (hint: write it as in the objects: "v1" or "example.com/v1")`,
				vap + `spec.paramKind.kind: "Config Map" is not a kind (hint: write it as in the objects: "ConfigMap")`,
			},
		},
		{
			name: "empty param kind", old: "spec:\n  match", new: "spec:\n  paramKind: {}\n  match",
			want: []string{
				vap + `spec.paramKind.apiVersion: is required (hint: for example "v1")`,
				vap + `spec.paramKind.kind: is required (hint: for example "ConfigMap")`,
			},
		},
		{
			name: "param kind without a reference", old: "spec:\n  match", new: "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  match",
			want: []string{`warning: test.yaml#2: ValidatingAdmissionPolicyBinding/everywhere: spec.paramRef: the policy has paramKind, so params is null for this binding (hint: name the params, or drop paramKind from the policy)`},
		},
		{
			name: "reference without a param kind", old: "[Deny]}", new: "[Deny], paramRef: {name: a, parameterNotFoundAction: Deny}}",
			want: []string{`warning: test.yaml#2: ValidatingAdmissionPolicyBinding/everywhere: spec.paramRef: the policy has no paramKind, so this does nothing (hint: set spec.paramKind in the policy)`},
		},
		{
			name: "params by name and selector", old: "[Deny]}", new: "[Deny], paramRef: {name: a/b, selector: {matchLabels: {a: b c}}, parameterNotFoundAction: Forbid}}",
			want: []string{
				vab + `spec.paramRef: name and selector exclude each other (hint: drop one of them)`,
				vab + `spec.paramRef.name: "a/b" is not a name: may not contain '/'`,
				vab + `spec.paramRef.parameterNotFoundAction: "Forbid" is not allowed; allowed are "Allow", "Deny"`,
				vab + `spec.paramRef.selector.matchLabels: invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			},
		},
		{
			name: "an empty reference", old: "[Deny]}", new: "[Deny], paramRef: {}}",
			want: []string{
				vab + `spec.paramRef: one of name and selector is required (hint: an empty selector selects every param)`,
				vab + `spec.paramRef.parameterNotFoundAction: is required (hint: "Deny" refuses requests while there is no param, "Allow" skips the binding)`,
			},
		},
		{
			name: "unknown, repeated and exclusive actions", old: "[Deny]}", new: "[Deny, warn, Warn, Warn]}",
			want: []string{
				vab + `spec.validationActions: "Deny" and "Warn" exclude each other (hint: a denial shows the message already: drop "Warn")`,
				vab + `spec.validationActions[1]: "warn" is not allowed; allowed are "Deny", "Warn", "Audit" (hint: did you mean "Warn"?)`,
				vab + `spec.validationActions[3]: "Warn" occurs twice`,
			},
		},
		{
			name: "no actions, no policy", old: "spec: {policyName: replicas, validationActions: [Deny]}", new: "spec: {matchResources: {matchPolicy: none}}",
			want: []string{
				vab + `spec.matchResources.matchPolicy: "none" is not allowed; allowed are "Equivalent", "Exact"`,
				vab + `spec.policyName: is required (hint: name the ValidatingAdmissionPolicy that is bound)`,
				vab + `spec.validationActions: is required (hint: say what a violation leads to, for example ["Deny"])`,
			},
		},
		{
			name: "binding to a policy that is not there", old: "policyName: replicas", new: "policyName: replica",
			want: []string{
				`warning: test.yaml#1: ValidatingAdmissionPolicy/replicas: no binding names the policy, so it does nothing (hint: write a ValidatingAdmissionPolicyBinding with this policyName)`,
				`warning: test.yaml#2: ValidatingAdmissionPolicyBinding/everywhere: spec.policyName: there is no ValidatingAdmissionPolicy "replica", so the binding does nothing (hint: did you mean "replicas"?)`,
			},
		},
		{
			name: "two of the same name", old: replicasBinding, new: replicasPolicy + "\n---\n" + replicasBinding + "\n---\n" + replicasBinding,
			want: []string{
				`error: test.yaml#2: ValidatingAdmissionPolicy/replicas: metadata.name: "replicas" is taken by another document (hint: the first is in test.yaml#1)`,
				`error: test.yaml#4: ValidatingAdmissionPolicyBinding/everywhere: metadata.name: "everywhere" is taken by another document (hint: the first is in test.yaml#3)`,
			},
		},
		{
			name: "no name", old: "metadata: {name: replicas}", new: "metadata: {}",
			want: []string{strings.Replace(vap, "/replicas", "/", 1) + `metadata.name: is required`},
		},
		{
			name: "a binding's policy that has no name", old: "policyName: replicas", new: "policyName: Replicas!",
			want: []string{vab + `spec.policyName: "Replicas!" is not a name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		},
		{
			name: "many and long audit annotations", old: "validations:", new: "auditAnnotations: [" + strings.Join(notes, ", ") + `, {key: last, valueExpression: "'` + strings.Repeat("x", 6000) + `'"}]
  validations:`,
			want: []string{
				vap + `spec.auditAnnotations: has 21 items, allowed are 20`,
				vap + `spec.auditAnnotations[20].valueExpression: has 6002 bytes, allowed are 5120`,
			},
		},
		{
			name: "variables that are not declared, in a long expression", old: "object.spec.replicas <= 5", new: "variables.x == '" + strings.Repeat("ä", 100) + "'",
			want: []string{vap + `spec.validations[0].expression: 1:1 in "variables.x == '` + strings.Repeat("ä", 64) + `…": "variables" is not declared (hint: declare them in spec.variables)`},
		},
		{
			name: "podSecurity beside other resources", own: true,
			old: `{apiGroups: [""], apiVersions: ["v1"], operations: ["CREATE"], resources: ["pods"]}`,
			new: `{apiGroups: ["", apps], apiVersions: ["v1"], operations: ["CREATE", "DELETE"], resources: ["pods", "pods/ephemeralcontainers", "deployments", "pods/exec"]}
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}`,
			want: []string{
				own + `spec.matchConstraints.resourceRules[0].apiGroups[1]: "apps" is not allowed with podSecurity, which looks at pods only (hint: pods are in the group "")`,
				own + `spec.matchConstraints.resourceRules[0].operations[1]: "DELETE" is not allowed with podSecurity, which looks at "CREATE" and "UPDATE" only`,
				own + `spec.matchConstraints.resourceRules[0].resources[2]: "deployments" is not allowed with podSecurity, which looks at "pods" and "pods/ephemeralcontainers" only (hint: pod templates in workloads are checked without naming them here)`,
				own + `spec.matchConstraints.resourceRules[0].resources[3]: "pods/exec" is not allowed with podSecurity, which looks at "pods" and "pods/ephemeralcontainers" only (hint: pod templates in workloads are checked without naming them here)`,
				own + `spec.matchConstraints.resourceRules[1].apiGroups[0]: "*" is not allowed with podSecurity, which looks at pods only (hint: pods are in the group "")`,
				own + `spec.matchConstraints.resourceRules[1].operations[0]: "*" is not allowed with podSecurity, which looks at "CREATE" and "UPDATE" only`,
				own + `spec.matchConstraints.resourceRules[1].resources[0]: "*/*" is not allowed with podSecurity, which looks at "pods" and "pods/ephemeralcontainers" only (hint: pod templates in workloads are checked without naming them here)`,
			},
		},
		{
			name: "podSecurity that does not exist", own: true, old: "{level: baseline}", new: "{level: restrictd, version: '1.30'}",
			want: []string{
				own + `spec.podSecurity.level: "restrictd" is not allowed; allowed are "privileged", "baseline", "restricted" (hint: did you mean "restricted"?)`,
				own + `spec.podSecurity.version: "1.30" is not allowed; allowed are "latest" and "v1.NN"`,
			},
		},
		{
			name: "podSecurity that allows everything", own: true, old: "baseline", new: "privileged",
			want: []string{`warning: test.yaml#1: AdmissionPolicy/own: spec.podSecurity.level: "privileged" allows every pod`},
		},
		{
			name: "an AdmissionPolicy without anything to check", own: true, old: "  podSecurity: {level: baseline}\n", new: "  paramKind: {apiVersion: v1, kind: ConfigMap}\n",
			want: []string{
				own + `spec.validationActions: is not allowed with paramKind: nothing here names the params (hint: write an AdmissionPolicyBinding with paramRef and validationActions, and drop them here)`,
				own + `spec.validations: is required (hint: a policy needs validations or auditAnnotations)`,
			},
		},
		{
			name: "an AdmissionPolicy without actions", own: true, old: "[Deny]", new: "[]",
			want: []string{"warning: test.yaml#1: AdmissionPolicy/own: no binding names the policy, so it does nothing (hint: set spec.validationActions, or write an AdmissionPolicyBinding with this policyName)"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			documents := replicasPolicy + "\n---\n" + replicasBinding
			if tc.own {
				documents = ownPolicy
			}
			if !strings.Contains(documents, tc.old) {
				t.Fatalf("%q is not in the documents", tc.old)
			}
			got := lines(diagnosticsOf(t, strings.Replace(documents, tc.old, tc.new, 1)))
			if isWarning := func(line string) bool { return strings.HasPrefix(line, "warning: ") }; !slices.ContainsFunc(tc.want, isWarning) {
				got = slices.DeleteFunc(got, isWarning) // what is broken also leaves others inert
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tc.want, "\n  "))
			}
		})
	}
}

// TestCompileReportsAllDocuments holds that one broken document does not hide
// another, and that the order does not depend on the order of the documents.
func TestCompileReportsAllDocuments(t *testing.T) {
	t.Parallel()
	spec := specOf(t, strings.Join([]string{
		strings.ReplaceAll(replicasPolicy, "<=", "<"), ownPolicy,
		strings.ReplaceAll(strings.ReplaceAll(replicasPolicy, "replicas}", "other}"), "object.spec", "x.spec"),
		strings.ReplaceAll(replicasBinding, "Deny", "deny"),
		strings.ReplaceAll(ownPolicy, "baseline", "base"),
	}, "\n---\n"))
	_, err := policy.Compile(spec)
	slices.Reverse(spec.Policies)
	slices.Reverse(spec.AdmissionPolicies)
	spec.AdmissionPolicies[0].Name = "own2"
	_, _ = policy.Compile(spec)
	spec.AdmissionPolicies[0].Name = "own"
	slices.Reverse(spec.AdmissionPolicies)
	_, again := policy.Compile(spec)
	if err == nil || again == nil || err.Error() != again.Error() {
		t.Fatalf("the diagnostics depend on the order of the documents:\n%v\n\n%v", err, again)
	}
	for _, part := range []string{`"x" is not declared`, `"deny" is not allowed`, `"base" is not allowed`, `"own" is taken`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in\n%v", part, err)
		}
	}
}

// TestCompileLeavesTheSpecAlone holds that defaults go into a copy.
func TestCompileLeavesTheSpecAlone(t *testing.T) {
	t.Parallel()
	spec := specOf(t, replicasPolicy+"\n---\n"+strings.Replace(replicasBinding, "validationActions", "matchResources: {}, validationActions", 1)+"\n---\n"+ownPolicy)
	spec.Objects = nil
	before := toJSON(t, documentsOf(spec))
	if _, err := policy.Compile(spec); err != nil {
		t.Fatal(err)
	}
	if after := toJSON(t, documentsOf(spec)); after != before {
		t.Errorf("the spec was changed from\n%s\nto\n%s", before, after)
	}
}

func TestEmptySpecAllows(t *testing.T) {
	t.Parallel()
	set, err := policy.Compile(policy.Spec{})
	must(t, err)
	if got := verdict(decide(t, set, review(t, readFile(t, "testdata/pod.json")))); got != "allowed" {
		t.Errorf("got %s", got)
	}
	if warnings := set.Warnings(); len(warnings) > 0 {
		t.Errorf("got warnings %v", warnings)
	}
}

func TestWarningsAreACopy(t *testing.T) {
	t.Parallel()
	set := compile(t, replicasPolicy)
	set.Warnings()[0] = diagnostic.Diagnostic{}
	if got := set.Warnings()[0].Object; got != "ValidatingAdmissionPolicy/replicas" {
		t.Errorf("the set's warnings were changed: %q", got)
	}
}

// documentsOf returns the documents of a spec.
func documentsOf(spec policy.Spec) any {
	return []any{spec.Policies, spec.Bindings, spec.AdmissionPolicies, spec.AdmissionPolicyBindings, spec.Exceptions, spec.Configuration}
}
