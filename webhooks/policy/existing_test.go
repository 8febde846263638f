package policy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// outcomes are the outcomes of all violations, in short.
func outcomes(d policy.Decision) string {
	var out []string
	for i := range d.Violations {
		v := &d.Violations[i]
		text := string(v.Outcome) + " " + v.Rule
		if v.Template != "" {
			text += " in " + v.Template
		}
		if v.Exception != "" {
			text += " by " + v.Exception
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

// own is an AdmissionPolicy about pods and Deployments.
func own(spec string) string {
	return `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: own}
spec: {matchConstraints: {resourceRules: [{apiGroups: ["", apps], apiVersions: [v1], operations: ["CREATE", UPDATE], resources: [pods, deployments, configmaps]}]},
  validationActions: [Deny], ` + spec + `}`
}

// TestExistingViolations holds which updates of objects that violate a rule
// already are let pass: those by which the rule sees nothing that it did not see
// before.
func TestExistingViolations(t *testing.T) {
	t.Parallel()
	images := own(`workloadTemplates: Ignore, variables: [{name: foreign, expression: "object.spec.containers.filter(c, !c.image.startsWith('good/'))"}],
  validations: [{expression: "variables.foreign.size() == 0", messageExpression: "variables.foreign.map(c, c.name).join(',')"}]`)
	pod := func(containers string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, labels: {team: a}}, spec: {containers: [` + containers + `]}}`
	}
	const bad, worse, good = `{name: a, image: bad/x, resources: {}}`, `{name: b, image: bad/y}`, `{name: c, image: good/z}`
	restricted := own(`matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods, pods/ephemeralcontainers]}]}, podSecurity: {level: baseline}`)
	restricted = strings.Replace(restricted, `matchConstraints: {resourceRules: [{apiGroups: ["", apps], apiVersions: [v1], operations: ["CREATE", UPDATE], resources: [pods, deployments, configmaps]}]},`, "", 1)
	labels := own(`validations: [{expression: "has(object.metadata.labels) && 'owner' in object.metadata.labels", message: owner}]`)
	config := func(metadata, rest string) string {
		return `{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop` + metadata + `}, ` + rest + `}`
	}
	for _, tc := range []struct {
		name, documents, old, object string
		want                         string
	}{
		{"nothing changes", images, pod(bad), pod(bad), "Existing validations[0]"},
		{"something else changes", images, pod(bad), strings.Replace(pod(bad), "team: a", "team: b", 1), "Existing validations[0]"},
		{"another field of the same container changes", images, pod(bad), pod(`{name: a, image: bad/x, resources: {limits: {cpu: 1}}}`), "Existing validations[0]"},
		{"the image becomes another bad one", images, pod(bad), pod(`{name: a, image: bad/w}`), "Violated validations[0]"},
		{"a second bad container", images, pod(bad), pod(bad + "," + worse), "Violated validations[0]"},
		{"a second container with the same bad image", images, pod(bad), pod(bad + `,{name: d, image: bad/x}`), "Violated validations[0]"},
		{"one of two bad containers goes", images, pod(bad + "," + worse), pod(worse), "Existing validations[0]"},
		{"the containers change places", images, pod(bad + "," + worse), pod(worse + "," + bad), "Existing validations[0]"},
		{"the object was good before", images, pod(good), pod(bad), "Violated validations[0]"},
		{"all is well after", images, pod(bad), pod(good), ""},
		{"Deny", strings.Replace(images, "workloadTemplates: Ignore", "workloadTemplates: Ignore, existingViolations: Deny", 1), pod(bad), pod(bad), "Violated validations[0]"},
		{"upstream's policies count everything", denyAll("p", `validations: [{expression: "object.data.a == 'c'"}]`, ""), configMap, configMap, "Violated validations[0]"},
		{"upstream's policies by annotation", strings.Replace(denyAll("p", `validations: [{expression: "object.data.a == 'c'"}]`, ""), "metadata: {name: p}", "metadata: {name: p, annotations: {gatehouse.dev/existing-violations: Allow}}", 1), configMap, configMap, "Existing validations[0]"},

		{"a rule about the change", own(`validations: [{expression: "object.data.a == oldObject.data.a"}]`), config("", "data: {a: x}"), config("", "data: {a: w}"), "Violated validations[0]"},
		{"a rule about the change, of something that was wrong", own(`validations: [{expression: "object.data.a == oldObject.data.a && object.data.b == 'ok'"}]`), config("", "data: {a: x, b: no}"), config("", "data: {a: w, b: no}"), "Violated validations[0]"},
		{"an error that was there before", own(`validations: [{expression: "object.data.missing == 'x'"}]`), config("", "data: {a: x}"), config("", "data: {a: w}"), "Existing validations[0]"},
		{"an error where there was a violation", own(`validations: [{expression: "object.data.m == 'x'"}]`), config("", "data: {m: w}"), config("", "data: {a: w}"), "Failed validations[0]"},
		{"a label is missing as before", labels, config("", "data: {a: x}"), config("", "data: {a: w}"), "Existing validations[0]"},
		{"another label comes", labels, config("", "data: {a: x}"), config(", labels: {team: x}", "data: {a: x}"), "Violated validations[0]"},
		{"a match condition was false before", own(`matchConditions: [{name: c, expression: "object.data.a == 'w'"}], validations: [{expression: "object.kind == 'x'"}]`), config("", "data: {a: x}"), config("", "data: {a: w}"), "Violated validations[0]"},
		{"a selector did not select before", strings.Replace(labels, "matchConstraints: {", "matchConstraints: {objectSelector: {matchLabels: {team: x}}, ", 1), config(", labels: {team: w}", "data: {}"), config(", labels: {team: x}", "data: {}"), "Violated validations[0]"},
		{
			"a binding did not select before", documents(strings.Replace(labels, "validationActions: [Deny], ", "", 1), `{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: own, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {team: x}}}}}`),
			config(", labels: {team: z}", "data: {}"), config(", labels: {team: x}", "data: {}"), "Violated validations[0]",
		},

		{"finalizers alone, where a rule looks at everything", own(`validations: [{expression: "dyn(object) == {'a': 1}"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Violated validations[0]"},
		{"finalizers alone", own(`validations: [{expression: "object.data.a == request.name"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Existing validations[0]"},
		{"finalizers that a rule protects", own(`validations: [{expression: "'x/y' in object.metadata.?finalizers.orValue([])"}]`), config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Violated validations[0]"},
		{"labels of an object that is being deleted", labels, config(`, deletionTimestamp: "2026-01-01T00:00:00Z", labels: {owner: x}`, "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), "Existing validations[0]"},
		{"data of an object that is being deleted", own(`validations: [{expression: "object.data.a == 'x'"}]`), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: w}"), "Violated validations[0]"},
		{"an object that only the update says is being deleted", labels, config(", labels: {owner: x}", "data: {a: x}"), config(`, deletionTimestamp: "2026-01-01T00:00:00Z"`, "data: {a: x}"), "Violated validations[0]"},
		{
			"finalizers alone, params missing", documents(strings.Replace(own(`paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params != null"}]`), "validationActions: [Deny], ", "", 1),
				`{apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionPolicyBinding, metadata: {name: b}, spec: {policyName: own, validationActions: [Deny], paramRef: {name: none, parameterNotFoundAction: Deny}}}`),
			config(", finalizers: [x/y]", "data: {a: x}"), config("", "data: {a: x}"), "Existing ",
		},

		{"a standard, another image", restricted, pod(`{name: a, image: x, securityContext: {privileged: true}}`), pod(`{name: a, image: w, securityContext: {privileged: true}}`), "Existing podSecurity.privileged"},
		{"a standard, another container", restricted, pod(`{name: a, image: x, securityContext: {privileged: true}}`), pod(`{name: a, image: w, securityContext: {privileged: true}}, {name: b, image: w, securityContext: {privileged: true}}`), "Violated podSecurity.privileged"},
		{"a standard, worse in the same container", restricted, pod(`{name: a, image: x, securityContext: {capabilities: {add: [SYS_TIME]}}}`), pod(`{name: a, image: w, securityContext: {capabilities: {add: [SYS_TIME, SYS_ADMIN]}}}`), "Violated podSecurity.capabilities_baseline"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, tc.documents)
			d := set.Decide(context.Background(), review(t, tc.object, updating(t, tc.old)), false)
			if got := outcomes(d); got != tc.want {
				t.Fatalf("got %q, want %q\n%s", got, tc.want, message(d.Response))
			}
			refused := strings.HasPrefix(tc.want, "Violated") || strings.HasPrefix(tc.want, "Failed")
			if d.Response.Allowed == refused {
				t.Errorf("allowed: %t", d.Response.Allowed)
			}
			if strings.HasPrefix(tc.want, "Existing") && (len(d.Response.Warnings) != 1 || d.Response.AuditAnnotations[policy.ExistingKey] == "") {
				t.Errorf("not told: warnings %q, audit %q", d.Response.Warnings, d.Response.AuditAnnotations)
			}
		})
	}
}

// TestExistingIsAboutRefusals holds that what is only warned about is warned about
// each time.
func TestExistingIsAboutRefusals(t *testing.T) {
	t.Parallel()
	set := compile(t, strings.Replace(own(`validations: [{expression: "false", message: old}]`), "[Deny]", "[Warn, Audit]", 1))
	response := decide(t, set, review(t, configMap, updating(t, configMap)))
	if len(response.Warnings) != 1 || strings.Contains(response.Warnings[0], "before") || response.AuditAnnotations["validation_failure"] == "" {
		t.Errorf("warnings %q, audit %q", response.Warnings, response.AuditAnnotations)
	}
}
