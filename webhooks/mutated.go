package webhooks

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const (
	// MutatedByKey is the key of the audit annotation that names the policies, and behind a slash the bindings, that changed the
	// object of a request.
	MutatedByKey = "mutated-by"
	// MutationIgnoredKey is the key of the audit annotation that names those that could not be evaluated, under failurePolicy
	// Ignore.
	MutationIgnoredKey = "mutation-ignored"

	// maxAuditNames is how many bytes an audit annotation of these may have.
	maxAuditNames = 1024
)

// annotate adds the audit annotations for what policies did with the object of a request. They hold nothing of the object.
func annotate(response *admission.Response, d *mutation.Decision) {
	add := func(key, policy, binding string) {
		name := strings.TrimSuffix(policy+"/"+binding, "/")
		value := response.AuditAnnotations[key]
		switch {
		case value == "":
			value = name
		case !slices.Contains(strings.Split(value, ","), name):
			value += "," + name
		}
		if response.AuditAnnotations == nil {
			response.AuditAnnotations = map[string]string{}
		}
		response.AuditAnnotations[key] = value
	}
	for i := range d.Failures {
		key := policy.DeniedByKey
		if d.Failures[i].Ignored {
			key = MutationIgnoredKey
		}
		add(key, d.Failures[i].Policy, d.Failures[i].Binding)
	}
	for _, a := range d.Applied {
		if a.Changed && response.Allowed {
			add(MutatedByKey, a.Policy, a.Binding)
		}
	}
	for _, key := range [...]string{policy.DeniedByKey, MutationIgnoredKey, MutatedByKey} {
		if value := response.AuditAnnotations[key]; len(value) > maxAuditNames {
			response.AuditAnnotations[key] = truncate.Bytes(value, maxAuditNames)
		}
	}
}

// mutatingKind is the kind of the policies that change objects.
const mutatingKind = "MutatingAdmissionPolicy"

// observe returns the results of policies for their metrics.
func observe(d *mutation.Decision) []policy.Observation {
	out := make([]policy.Observation, 0, len(d.Applied)+len(d.Failures))
	for _, a := range d.Applied {
		if slices.ContainsFunc(d.Failures, func(f mutation.Failure) bool { return f.Policy == a.Policy && f.Binding == a.Binding }) {
			continue
		}
		out = append(out, policy.Observation{Kind: mutatingKind, Policy: a.Policy, Binding: a.Binding, Outcome: policy.Done, Cost: a.Cost})
	}
	for i := range d.Failures {
		outcome := policy.Failed
		if d.Failures[i].Ignored {
			outcome = policy.Ignored
		}
		out = append(out, policy.Observation{Kind: mutatingKind, Policy: d.Failures[i].Policy, Binding: d.Failures[i].Binding, Outcome: outcome})
	}
	return out
}
