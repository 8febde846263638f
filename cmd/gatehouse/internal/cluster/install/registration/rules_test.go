package registration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// short is a rule on one line: group/version scope resources operations.
func short(list []admissionregistrationv1.RuleWithOperations) []string {
	var lines []string
	for _, r := range list {
		var operations []string
		for _, o := range r.Operations {
			operations = append(operations, string(o))
		}
		lines = append(lines, fmt.Sprintf("%s/%s %s %s %s", strings.Join(r.APIGroups, ","), strings.Join(r.APIVersions, ","), *r.Scope, strings.Join(r.Resources, ","), strings.Join(operations, ",")))
	}
	return lines
}

type testRule = admissionregistrationv1.NamedRuleWithOperations

func TestPolicyRules(t *testing.T) {
	all := admissionregistrationv1.OperationAll
	for name, c := range map[string]struct {
		fail, ignore         []testRule
		wantFail, wantIgnore []string
	}{
		"nothing": {},
		"one": {
			fail:     []testRule{named("apps", "v1", "deployments", create)},
			wantFail: []string{"apps/v1 * deployments CREATE"},
		},
		"the same resources twice are one rule": {
			fail:     []testRule{named("apps", "v1", "deployments", create), named("apps", "v1", "statefulsets,deployments", update, create)},
			wantFail: []string{"apps/v1 * deployments,statefulsets CREATE,UPDATE"},
		},
		"each operation only where it is wanted": {
			fail:     []testRule{named("", "v1", "pods", create), named("", "v1", "pods/exec", connect), named("", "v1", "pods,secrets", remove)},
			wantFail: []string{"/v1 * pods CREATE,DELETE", "/v1 * pods/exec CONNECT", "/v1 * secrets DELETE"},
		},
		"what fails closed is not sent twice": {
			fail:       []testRule{named("", "v1", "pods", create)},
			ignore:     []testRule{named("", "v1", "pods,secrets", create, update)},
			wantFail:   []string{"/v1 * pods CREATE"},
			wantIgnore: []string{"/v1 * secrets CREATE,UPDATE", "/v1 * pods UPDATE"},
		},
		"a wildcard covers what is in it": {
			fail:     []testRule{named("apps", "*", "*", all), named("apps", "v1", "deployments", create), named("batch", "v1", "jobs/*", create), named("batch", "v1", "jobs,jobs/status", create)},
			ignore:   []testRule{named("apps", "v1", "deployments", remove), named("apps", "v1", "deployments/scale", update)},
			wantFail: []string{"apps/* * * *", "batch/v1 * jobs/* CREATE"},
			// "*" is no subresource.
			wantIgnore: []string{"apps/v1 * deployments/scale UPDATE"},
		},
		"everything": {
			fail:     []testRule{named("*", "*", "*/*", all), named("apps", "v1", "deployments", create)},
			ignore:   []testRule{named("*", "*", "*", all)},
			wantFail: []string{"*/* * */* *"},
		},
		"what is never sent": {
			fail: []testRule{
				named("", "v1", "nodes,nodes/status,events,configmaps", create), named("coordination.k8s.io", "v1", "*", all), named("certificates.k8s.io", "*", "certificatesigningrequests/approval", update),
				named("authentication.k8s.io", "v1", "tokenreviews", create), named("authorization.k8s.io", "*", "*/*", all), named("events.k8s.io", "v1", "events", create), named("x.example", "v1", "nodes", create),
			},
			wantFail: []string{"/v1 * configmaps CREATE", "x.example/v1 * nodes CREATE"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			needs, _, err := NeedsOf(&webhooks.Spec{Policy: policy.Spec{
				Policies:          []policy.Policy{upstream("fail", specWith("", c.fail...)), upstream("unbound", specWith("", named("x", "x", "x", create)))},
				Bindings:          []policy.Binding{bindingOf("fail")},
				AdmissionPolicies: []policy.AdmissionPolicy{ours("ignore", specWith("Ignore", c.ignore...)), ours("none", admissionregistrationv1.ValidatingAdmissionPolicySpec{})},
			}}, []string{"*"})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(c.wantIgnore)
			failRules, ignoreRules := needs[FailValidate].Rules, needs[IgnoreValidate].Rules
			got := short(ignoreRules)
			slices.Sort(got)
			if !slices.Equal(short(failRules), c.wantFail) || !slices.Equal(got, c.wantIgnore) {
				t.Errorf("got  %q and %q\nwant %q and %q", short(failRules), got, c.wantFail, c.wantIgnore)
			}
			sameRequests(t, append(slices.Clone(c.fail), c.ignore...), append(slices.Clone(failRules), ignoreRules...))
			sameRequests(t, c.fail, failRules)
		})
	}
}

// sameRequests holds the rules against the API server's own matching: what the
// policies are about is sent, and nothing else, but for what is never sent.
func sameRequests(t *testing.T, want []testRule, got []admissionregistrationv1.RuleWithOperations) {
	t.Helper()
	groups := []string{"", "apps", "batch", "coordination.k8s.io", "certificates.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "events.k8s.io", "x.example"}
	resources := []string{
		"pods", "pods/exec", "secrets", "configmaps", "deployments", "deployments/scale", "statefulsets", "jobs", "jobs/status", "nodes", "nodes/status",
		"events", "leases", "certificatesigningrequests", "certificatesigningrequests/approval", "tokenreviews", "subjectaccessreviews",
	}
	for _, group := range groups {
		for _, resource := range resources {
			if (atom{group: group, resource: resource}).isExcluded() {
				continue
			}
			for _, version := range []string{"v1", "v1beta1"} {
				for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
					name, sub, _ := strings.Cut(resource, "/")
					a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "ns", "x", schema.GroupVersionResource{Group: group, Version: version, Resource: name}, sub, operation, nil, false, nil)
					wanted := slices.ContainsFunc(want, func(r testRule) bool {
						m := rules.Matcher{Rule: r.RuleWithOperations, Attr: a}
						return m.Matches()
					})
					sent := slices.ContainsFunc(got, func(r admissionregistrationv1.RuleWithOperations) bool {
						m := rules.Matcher{Rule: r, Attr: a}
						return m.Matches()
					})
					if wanted != sent {
						t.Errorf("%s %s/%s %s: the policies are about it: %v, it is sent: %v", operation, group, version, resource, wanted, sent)
					}
				}
			}
		}
	}
}
