package app

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/active"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/status"
	crdversion "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/version"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/source/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

// reporting tells the people of a cluster what becomes of their custom resources.
type reporting struct {
	status        *status.Controller
	definitions   *crdversion.Definitions
	registrations *cluster.Registrations
	// assumed tells that nobody said which the registrations are.
	assumed bool
}

// Requests of status and definitions share a client of their own, so that they
// never keep look-ups of reviews waiting.
const reportingQPS, reportingBurst = 30, 60

// notSent is what makes remarks on what an object is about and the webhook
// configurations do not send, nil while these are not known. Of the configuration are
// the kinds of workloads.
func (r *reporting) notSent(c *config.Config) func(object any) []string {
	if r.registrations == nil {
		return nil
	}
	mutating, knowsMutating := r.registrations.Mutating()
	validating, knowsValidating := r.registrations.Validating()
	if !knowsMutating || !knowsValidating || r.assumed && len(mutating)+len(validating) == 0 {
		return nil
	}
	ofProfiles, workloads := registration.ProfilesNotSent(mutating), workload.FromAPI(c.Workloads())
	return func(object any) []string {
		switch o := object.(type) {
		case *v1alpha1.SidecarProfile:
			return ofProfiles
		case *v1alpha1.AdmissionPolicy:
			return registration.NotSent(o, workloads, validating)
		default:
			return nil
		}
	}
}

// follow makes the configurator tell.
func (r *reporting) follow(c *active.Reconciler) {
	c.Report = func(report status.Report) {
		report.Outdated = r.definitions.Outdated()
		r.status.Use(report)
	}
	c.NotSent = r.notSent
	c.Renotify = []<-chan struct{}{r.definitions.Changed(), nil}
	if r.registrations != nil {
		c.Renotify[1] = r.registrations.Changed()
	}
}

// documents answers /validate about custom resources, nil without any.
func (r *reporting) documents(current *active.Active) *crdadmission.Reviewer {
	if r == nil {
		return nil
	}
	return crdadmission.New(crdadmission.Options{
		Current: current.Config.Load,
		NotSent: func(object any) []string {
			if notSent := r.notSent(current.Config.Load()); notSent != nil {
				return notSent(object)
			}
			return nil
		},
	})
}

// run goes on until the context ends.
func (r *reporting) run(ctx context.Context, group *errgroup.Group) {
	if r == nil {
		return
	}
	group.Go(func() error { return r.status.Run(ctx) })
	group.Go(func() error {
		r.definitions.Run(ctx)
		return nil
	})
}

// policyCounts are the counts of this replica.
func policyCounts(metrics *telemetry.Telemetry, c *config.Config) map[string]status.PolicyCount {
	refusing := map[[2]string]bool{}
	if c != nil {
		for i := range c.Policy.AdmissionPolicies {
			p := &c.Policy.AdmissionPolicies[i]
			refusing[[2]string{p.Name, ""}] = slices.Contains(p.Spec.ValidationActions, admissionregistrationv1.Deny)
		}
		for i := range c.Policy.AdmissionPolicyBindings {
			b := &c.Policy.AdmissionPolicyBindings[i]
			refusing[[2]string{b.Spec.PolicyName, b.Name}] = slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
		}
	}
	counts := map[string]status.PolicyCount{}
	for name, n := range metrics.PolicyCounts(func(policy, binding string) bool { return refusing[[2]string{policy, binding}] }) {
		counts[name] = status.PolicyCount{Evaluations: n.Evaluations, Refusals: n.Refusals}
	}
	return counts
}
