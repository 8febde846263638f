package redacted_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/redacted"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// TestGuarded decides on a ConfigMap whose data is redacted. A rule that needs the data is
// undecided: it neither refuses nor lets pass, whatever the failure policy is.
func TestGuarded(t *testing.T) {
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
			spec.Guard = redacted.Guard{}
			set, err := policy.Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			request := request("ConfigMap", "configmaps", object)
			if tt.old != "" {
				request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(tt.old)
			}
			d := set.Decide(t.Context(), policy.Input{Request: request, Violations: true})
			got := "allowed"
			switch {
			case d.Err != nil && !redacted.Guard{}.Depends(d.Err):
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

// TestGuardedException has an exception whose condition reads a redacted value: the
// object may be excepted, so that the violation refuses nothing.
func TestGuardedException(t *testing.T) {
	t.Parallel()
	for _, condition := range []string{`object.data.mode == "prod"`, `!object.data.mode`} {
		t.Run(condition, func(t *testing.T) {
			t.Parallel()
			testGuardedException(t, condition)
		})
	}
}

func testGuardedException(t *testing.T, condition string) {
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
	spec.Guard = redacted.Guard{}
	set, err := policy.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"shop"},"data":{"mode":"` + redacted.Prefix + `k:one"}}`
	if d := set.Decide(t.Context(), policy.Input{Request: request("ConfigMap", "configmaps", object), Violations: true}); !errors.Is(d.Err, redacted.Err) {
		t.Errorf("err = %v, response %+v; want undecided", d.Err, d.Response())
	}
}

// TestGuardedPodSecurity has pods with redacted values where Pod Security reads, and elsewhere.
func TestGuardedPodSecurity(t *testing.T) {
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
			spec.Guard = redacted.Guard{}
			set, err := policy.Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			d := set.Decide(t.Context(), policy.Input{Request: request("Pod", "pods", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"shop","annotations":{`+tt.annotations+`}},"spec":{`+tt.spec+`}}`), Violations: true})
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

// request returns the request to create an object in the namespace shop.
func request(kind, resource, object string) admission.Request {
	var r admission.Request
	r.Kind, r.Resource = metav1.GroupVersionKind{Version: "v1", Kind: kind}, metav1.GroupVersionResource{Version: "v1", Resource: resource}
	r.Operation, r.Namespace, r.Object.Raw = admissionv1.Create, "shop", []byte(object)
	return r
}
