package replay_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
)

// TestMissingOldObject replays updates and deletions whose oldObject an audit log does not hold: what depends on it is not
// decided. A server gets it from the API server, so that none is none.
func TestMissingOldObject(t *testing.T) {
	t.Parallel()
	const (
		pod       = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","labels":{"team":"shop"}},"spec":{"containers":[{"name":"app","image":"a"}]}}`
		undecided = "AdmissionPolicy 'p' reads oldObject, which the recording does not hold"
		exception = `apiVersion: gatehouse.dev/v1alpha1
kind: PolicyException
metadata: {name: x, namespace: gatehouse-system}
spec: {reason: test, expiresAt: "2030-01-01T00:00:00Z", policies: [{name: p}], match: {namespaces: [shop], objectSelector: {matchLabels: {team: shop}}}}`
	)
	policy := func(expression, more string) string {
		operations := "CREATE, UPDATE, DELETE"
		if strings.Contains(expression, "podSecurity") {
			operations = "CREATE, UPDATE"
		}
		return `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [` + operations + `], resources: [pods, pods/ephemeralcontainers]}]
    ` + more + `
  validationActions: [Deny]
  ` + expression
	}
	rule := func(expression string) string {
		return "validations: [{expression: \"" + expression + "\", message: wrong}]"
	}
	update, remove, create := request{operation: "UPDATE", object: pod}, request{operation: "DELETE"}, request{object: pod}
	known := request{operation: "UPDATE", object: pod, oldObject: pod}
	refused := []replay.Change{replay.NewlyRefused}
	for _, tt := range []struct {
		name      string
		from      record.Source
		request   request
		policy    string
		undecided string
		changes   []replay.Change
	}{
		{name: "a rule reads it", request: update, policy: policy(rule("object.spec == oldObject.spec"), ""), undecided: undecided},
		{name: "a rule asks whether it is null", request: update, policy: policy(rule("oldObject == null"), ""), undecided: undecided},
		{name: "a rule asks for a field", request: remove, policy: policy(rule("has(oldObject.metadata.labels)"), ""), undecided: undecided},
		{name: "a variable", request: update, policy: policy("variables: [{name: old, expression: oldObject}]\n  "+rule("variables.old != null"), ""), undecided: undecided},
		{name: "a condition", request: update, policy: policy("matchConditions: [{name: c, expression: 'oldObject != null'}]\n  "+rule("false"), ""), undecided: undecided},
		{name: "a rule does not need it", request: update, policy: policy(rule("object.metadata.name == 'web' || oldObject == null"), "")},
		{name: "the labels of the old object select it", request: remove, policy: policy(rule("false"), "objectSelector: {matchLabels: {team: shop}}"), undecided: undecided},
		{name: "the labels of the new object do not select it", request: update, policy: policy(rule("false"), "objectSelector: {matchLabels: {team: other}}"), undecided: undecided},
		{name: "the labels of the new object select it", request: update, policy: policy(rule("request.operation == 'CREATE'"), "objectSelector: {matchLabels: {team: shop}}"), changes: refused},
		{name: "the object may have violated the rule before", request: update, policy: policy(rule("object.metadata.name != 'web'"), ""), undecided: undecided},
		{name: "existing violations are denied", request: update, policy: policy("existingViolations: Deny\n  "+rule("object.metadata.name != 'web'"), ""), changes: refused},
		{name: "a deletion that a rule refuses anyway", request: remove, policy: policy(rule("false"), ""), changes: refused},
		{name: "an exception may not select the old object", request: update, policy: documents(policy("existingViolations: Deny\n  "+rule("object.metadata.name != 'web'"), ""), exception), undecided: "exception gatehouse-system/x reads oldObject, which the recording does not hold"},
		{name: "the template may have violated it before", request: request{operation: "UPDATE", group: "apps", kind: "Deployment", resource: "deployments", object: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"a"}]}}}}`}, policy: policy(rule("object.spec.containers.all(c, c.image == 'b')"), ""), undecided: undecided},
		{name: "Pod Security", request: update, policy: policy("existingViolations: Deny\n  podSecurity: {level: restricted}", ""), undecided: undecided},
		{name: "the log holds it", request: known, policy: policy(rule("oldObject == null"), ""), changes: refused},
		{name: "a creation has none", request: create, policy: policy(rule("oldObject == null"), "")},
		{name: "of a server", from: record.FromServer, request: update, policy: policy(rule("oldObject == null"), "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.request.namespace = "shop"
			from := tt.from
			if from == "" {
				from = record.FromAuditLog
			}
			one := record.Review{ID: "1", Time: recordedAt, Endpoint: "validate", Request: tt.request.body("1"), Lookups: &record.Lookups{Namespaces: []record.NamespaceLookup{{Name: "shop"}}}}
			source := fileOf(t, from, "a", "", "", &record.Line{Review: &one})
			_, all := run(t, replay.Options{Sources: []replay.Source{source}, Candidate: load(t, documents(shop, tt.policy)), Against: load(t, shop)})
			if len(all) != 1 || all[0].Undecided != tt.undecided || !slices.Equal(all[0].Changes, tt.changes) {
				t.Errorf("got %+v, want %q %q", all, tt.undecided, tt.changes)
			}
		})
	}
}
