package testrunner

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// request returns the request that the API server would send for a case.
func (r *Runner) request(c *Case) (admission.Request, error) {
	if c.Inject {
		return admit.Request(r.Resources, c.Spec)
	}
	return r.Resources.Build(c.Spec)
}

// decide decides about a request as a cluster does: mutating policies first, then sidecars, then policies.
func (r *Runner) decide(ctx context.Context, snapshot *webhooks.Snapshot, c *Case, req admission.Request) (out Outcome) {
	sent := req
	defer func() { out.sent, out.object = sent.Object.Raw, req.Object.Raw }()
	if c.Inject {
		d := admit.Mutate(ctx, snapshot.Mutation, &req, false)
		if out.addMutation(&d); out.Verdict != "" {
			return out
		}
	}
	if c.Inject && sidecar.IsNewPod(&req) {
		d := admit.Inject(ctx, snapshot.Sidecar, &req)
		if out.addInjection(&d); out.Verdict != "" {
			return out
		}
	}
	if c.Inject {
		if _, made, _ := admit.Result(ctx, r.Resources, snapshot.Mutation, &sent, &req); len(made) > 0 {
			out.Verdict, out.Violations = v1alpha1.TestDenied, made
			return out
		}
	}
	d := snapshot.Policy.Decide(ctx, policy.Input{Request: req, Violations: true})
	out.addPolicies(&d)
	return out
}

// addMutation adds the decision of mutating policies. The outcome has a verdict if nothing else decides.
func (o *Outcome) addMutation(d *mutation.Decision) {
	switch {
	case d.Err != nil:
		o.Verdict, o.Error = v1alpha1.TestCannotDecide, d.Err.Error()
	case d.Refusal != nil:
		o.Verdict, o.Violations = v1alpha1.TestDenied, admit.MutationViolations(d)
	}
}

// addInjection adds the decision of injection. The outcome has a verdict if policies are not evaluated.
func (o *Outcome) addInjection(d *sidecar.Decision) {
	o.Warnings = slices.Clone(d.Warnings)
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Reason == sidecar.Applied {
			o.Profiles = append(o.Profiles, v.Profile)
		}
	}
	switch {
	case len(d.Refusals) > 0:
		o.Verdict, o.Violations = v1alpha1.TestDenied, admit.Refusals(d)
	case d.Err != nil:
		o.Verdict, o.Error = v1alpha1.TestCannotDecide, d.Err.Error()
	}
}

// addPolicies adds the decision of policies.
func (o *Outcome) addPolicies(d *policy.Decision) {
	response := d.Response()
	o.Warnings = append(o.Warnings, response.Warnings...)
	o.AuditAnnotations = response.AuditAnnotations
	for i := range d.Violations {
		v := &d.Violations[i]
		if v.Refuses() {
			o.Violations = append(o.Violations, *v)
		} else {
			o.Others = append(o.Others, *v)
		}
		if v.Outcome == policy.Excepted {
			o.Exceptions = slices.AppendSeq(o.Exceptions, policy.Exceptions(v.Exception))
		}
	}
	slices.Sort(o.Exceptions)
	o.Exceptions = slices.Compact(o.Exceptions)
	switch {
	case d.Err != nil:
		o.Verdict, o.Error = v1alpha1.TestCannotDecide, d.Err.Error()
	case response.Allowed:
		o.Verdict = v1alpha1.TestAllowed
	default:
		o.Verdict = v1alpha1.TestDenied
	}
}
