package registration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestMutatingPolicies holds that what active policies change is sent for mutation, by their failurePolicy, and new pods once.
func TestMutatingPolicies(t *testing.T) {
	t.Parallel()
	rules := func(failure string, named ...admissionregistrationv1.NamedRuleWithOperations) (out mutation.Policy) {
		of := specWith(admissionregistrationv1.FailurePolicyType(failure), named...)
		out.Name, out.Spec.MatchConstraints, out.Spec.FailurePolicy = fmt.Sprint("p", failure), of.MatchConstraints, of.FailurePolicy
		return out
	}
	pods, deployments := named("", "v1", "pods", create), named("apps", "v1", "deployments", create, update)
	for _, tc := range []struct {
		name     string
		policies []mutation.Policy
		profiles int
		unbound  bool
		// want are the webhooks: name, failurePolicy, resources and operations.
		want []string
	}{
		{name: "none", want: nil},
		{name: "unbound", policies: []mutation.Policy{rules("", pods)}, unbound: true, want: nil},
		{name: "without profiles", policies: []mutation.Policy{rules("", pods), rules("Ignore", pods, deployments)}, want: []string{
			"fail.mutate Fail pods CREATE", "ignore.mutate Ignore deployments CREATE,UPDATE",
		}},
		{name: "with profiles", policies: []mutation.Policy{rules("Ignore", pods, deployments)}, profiles: 1, want: []string{
			"asked.mutate Fail pods CREATE", "default.mutate Ignore pods CREATE", "ignore.mutate Ignore deployments CREATE,UPDATE not-a-new-pod",
		}},
		{name: "that fail closed", policies: []mutation.Policy{rules("", pods)}, profiles: 1, want: []string{
			"asked.mutate Fail pods CREATE", "default.mutate Fail pods CREATE",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := &webhooks.Spec{Sidecar: sidecar.Spec{Profiles: make([]sidecar.Profile, tc.profiles)}, Policy: policy.Spec{}, Mutation: mutation.Spec{Policies: tc.policies}}
			for _, p := range tc.policies {
				var b mutation.Binding
				if b.Spec.PolicyName = p.Name; !tc.unbound {
					spec.Mutation.Bindings = append(spec.Mutation.Bindings, b)
				}
			}
			var got []string
			for _, d := range admissionOf(t, options(withURL, func(o *Options) { o.Spec = spec })).Documents {
				config, ok := d.object.(*admissionregistrationv1.MutatingWebhookConfiguration)
				if !ok {
					continue
				}
				for _, w := range config.Webhooks {
					var operations []string
					for _, operation := range w.Rules[0].Operations {
						operations = append(operations, string(operation))
					}
					line := strings.Join([]string{strings.TrimSuffix(w.Name, ".gatehouse.dev"), string(*w.FailurePolicy), strings.Join(w.Rules[0].Resources, ","), strings.Join(operations, ",")}, " ")
					if last := w.MatchConditions[len(w.MatchConditions)-1].Name; last == "not-a-new-pod" {
						line += " " + last
					}
					got = append(got, line)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
