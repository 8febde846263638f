package policy_test

import (
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/redacted"
)

// TestGuardRedacted decides on a ConfigMap whose data is redacted. A rule that needs the data is
// undecided: it neither refuses nor lets pass, whatever the failure policy is.
func TestGuardRedacted(t *testing.T) {
	t.Parallel()
	const (
		secret = redacted.Prefix + "k:one"
		object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop"},"data":{"mode":"` + secret + `"}}`
		other  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop"},"data":{"mode":"` + redacted.Prefix + `k:two"}}`
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
		{"immutable, and kept", `validations: [{expression: 'request.operation != "UPDATE" || object.data == oldObject.data', message: immutable}]`, object, "allowed"},
		{"immutable, and changed", `validations: [{expression: 'request.operation != "UPDATE" || object.data == oldObject.data', message: immutable}]`, other, "immutable"},
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
			spec.GuardRedacted, spec.Previous = true, nil
			set, err := policy.Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			request := review(t, object, func(r *admission.Request) {
				if tt.old != "" {
					r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(tt.old)}
				}
			})
			d := set.Decide(t.Context(), policy.Input{Request: request, Violations: true})
			got := "allowed"
			switch {
			case d.Err != nil && !redacted.Depends(redacted.Explain(d.Err).Error()):
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

// TestGuardRedactedException has an exception whose condition reads a redacted value: the
// object may be excepted, so that the violation refuses nothing.
func TestGuardRedactedException(t *testing.T) {
	t.Parallel()
	for _, condition := range []string{`object.data.mode == "prod"`, `!object.data.mode`} {
		t.Run(condition, func(t *testing.T) {
			t.Parallel()
			testGuardRedactedException(t, condition)
		})
	}
}

func testGuardRedactedException(t *testing.T, condition string) {
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
	spec.GuardRedacted, spec.Previous = true, nil
	spec.Configuration = nil
	set, err := policy.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop"},"data":{"mode":"` + redacted.Prefix + `k:one"}}`
	if d := set.Decide(t.Context(), policy.Input{Request: review(t, object), Violations: true}); !errors.Is(d.Err, redacted.Err) {
		t.Errorf("err = %v, response %+v; want undecided", d.Err, d.Response())
	}
}

// TestGuardRedactedPodSecurity has pods with redacted values where Pod Security reads, and elsewhere.
func TestGuardRedactedPodSecurity(t *testing.T) {
	t.Parallel()
	const secret = `"` + redacted.Prefix + `k:one"`
	for name, tt := range map[string]struct{ spec, annotations, want string }{
		"no check reads it":    {`"containers":[{"name":"a","image":"b","env":[{"name":"A","value":` + secret + `}]}]`, `"kubectl.kubernetes.io/last-applied-configuration":` + secret, "allowed"},
		"a check reads it":     {`"securityContext":{"seLinuxOptions":{"type":` + secret + `}},"containers":[{"name":"a","image":"b"}]`, "", "undecided"},
		"in an annotation":     {`"containers":[{"name":"a","image":"b"}]`, `"container.apparmor.security.beta.kubernetes.io/a":` + secret, "undecided"},
		"another check denies": {`"hostNetwork":true,"containers":[{"name":"a","image":"b","command":[` + secret + `]}]`, "", "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: standard}
spec:
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}
  podSecurity: {level: baseline, version: latest}`)
			spec.GuardRedacted, spec.Previous = true, nil
			set, err := policy.Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			d := set.Decide(t.Context(), policy.Input{Request: review(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop","annotations":{`+tt.annotations+`}},"spec":{`+tt.spec+`}}`), Violations: true})
			got := "denied"
			switch {
			case errors.Is(d.Err, redacted.Err):
				got = "undecided"
			case d.Response().Allowed:
				got = "allowed"
			}
			if got != tt.want {
				t.Errorf("%s (%v, %+v), want %s", got, d.Err, d.Response(), tt.want)
			}
		})
	}
}
