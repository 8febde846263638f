package registration

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// What the guard would refuse is not needed, and named. TestGuardOfRegistration has the same of the API server.
func TestNeedsAreIncluded(t *testing.T) {
	t.Parallel()
	validates := func(rules ...testRule) webhooks.Spec {
		return webhooks.Spec{Policy: policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{ours("a", specWith("", rules...))}}}
	}
	mutates := func(rules ...testRule) webhooks.Spec {
		var spec webhooks.Spec
		mutatingPolicy(&spec, "Fail", rules...)
		return spec
	}
	roles := named("rbac.authorization.k8s.io", "v1", "roles,clusterroles", create)
	secretsAndMaps := named("", "v1", "secrets,configmaps", create)
	const fail = "fail.validate: "
	for name, c := range map[string]struct {
		spec          webhooks.Spec
		included      []string
		want, leftOut []string
	}{
		"Secrets":                      {validates(secretsAndMaps), nil, []string{fail + "/v1 * configmaps CREATE"}, []string{"secrets"}},
		"Secrets, included":            {validates(secretsAndMaps), []string{"secrets"}, []string{fail + "/v1 * configmaps,secrets CREATE"}, nil},
		"RBAC, validated":              {validates(roles), nil, []string{fail + "rbac.authorization.k8s.io/v1 * clusterroles,roles CREATE"}, nil},
		"RBAC, changed":                {mutates(roles), nil, nil, []string{"clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io"}},
		"RBAC, changed, a part":        {mutates(roles), []string{"roles.rbac.authorization.k8s.io"}, []string{"fail.mutate: rbac.authorization.k8s.io/v1 * roles CREATE"}, []string{"clusterroles.rbac.authorization.k8s.io"}},
		"RBAC, changed, the group":     {mutates(roles), []string{"*.rbac.authorization.k8s.io"}, []string{"fail.mutate: rbac.authorization.k8s.io/v1 * clusterroles,roles CREATE"}, nil},
		"definitions, changed":         {mutates(named("apiextensions.k8s.io", "v1", "customresourcedefinitions", create)), nil, nil, []string{"customresourcedefinitions.apiextensions.k8s.io"}},
		"the resources of a group":     {validates(named("policy", "v1", "*", create)), nil, []string{fail + "policy/v1 * poddisruptionbudgets CREATE"}, []string{"*.policy"}},
		"with subresources":            {validates(named("policy", "v1", "*/*", create)), nil, []string{fail + "policy/v1 * poddisruptionbudgets/* CREATE"}, []string{"*.policy"}},
		"subresources of one":          {validates(named("", "v1", "pods/*", create)), nil, []string{fail + "/v1 * pods/* CREATE"}, nil},
		"a resource in all groups":     {validates(named("*", "v1", "deployments", create)), nil, []string{fail + "apps/v1 * deployments CREATE"}, []string{"deployments.*"}},
		"Secrets in all groups":        {validates(named("*", "v1", "secrets", create)), nil, nil, []string{"secrets.*"}},
		"the resources of a group, so": {validates(named("policy", "v1", "*", create)), []string{"*.policy"}, []string{fail + "policy/v1 * * CREATE"}, nil},
		"everything, included":         {validates(named("*", "*", "*/*", "*")), []string{"*"}, []string{fail + "*/* * */* *"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs, leftOut, err := NeedsOf(&c.spec, c.included)
			if got := needsText(needs); err != nil || !slices.Equal(got, c.want) || !slices.Equal(leftOut, c.leftOut) {
				t.Errorf("got  %q without %q, %v\nwant %q without %q", got, leftOut, err, c.want, c.leftOut)
			}
		})
	}
	// Of everything, what Kubernetes itself serves is sent by few rules, and what a rule that is not sent would have covered is.
	spec := validates(named("*", "*", "*", "*"))
	spec.Policy.AdmissionPolicies = append(spec.Policy.AdmissionPolicies, ours("b", specWith("Ignore", named("example.org", "v1", "things", create))))
	needs, _, err := NeedsOf(&spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	rules := needs[FailValidate].Rules
	sent := atomsOf(rules)
	for resource, want := range map[string]bool{"pods": true, "configmaps": true, "secrets": false, "nodes": false} {
		if got := sent.covers(atom{"", "v1", resource, "*", "CREATE"}, false); got != want {
			t.Errorf("%s: sent is %t", resource, got)
		}
	}
	if len(rules) > MaxRules || len(needs[IgnoreValidate].Rules) != 1 {
		t.Errorf("%d rules, and %q", len(rules), short(needs[IgnoreValidate].Rules))
	}
	var rest []admissionregistrationv1.RuleWithOperations
	spec = validates()
	for i := range 2 * MaxRules {
		rule := named("g"+string(rune('a'+i%26))+string(rune('a'+i/26)), "v1", "things", create)
		spec.Policy.AdmissionPolicies = append(spec.Policy.AdmissionPolicies, ours("many", specWith("", rule)))
		rest = append(rest, rule.RuleWithOperations)
	}
	needs, leftOut, err := NeedsOf(&spec, nil)
	if err != nil || len(needs[FailValidate].Rules) != MaxRules || len(leftOut) != len(rest)-MaxRules {
		t.Errorf("more than fit: %d rules, %d left out, %v", len(needs[FailValidate].Rules), len(leftOut), err)
	}
}
