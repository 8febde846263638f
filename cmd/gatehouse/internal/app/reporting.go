package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/active"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/audit/background"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/events"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/podcount"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/status"
	crdversion "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/version"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

// reporting writes the status of custom resources.
type reporting struct {
	status        *status.Controller
	definitions   *crdversion.Definitions
	registrations *cluster.Registrations
	// audits is nil without --audit-every.
	audits *background.Controller
	// assumed reports whether the registrations are the default because no flag names them.
	assumed bool
}

// Requests of status and definitions share a client of their own, so that they never delay
// lookups of reviews.
const reportingQPS, reportingBurst = 30, 60

// notSent returns a function that returns remarks on what an object matches and the webhook
// configurations do not send. It is nil while these are not known. The configuration has the
// kinds of workloads.
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

// follow connects the reconciler with its reports.
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

// documents returns the reviewer of custom resources, nil without any.
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

// details returns the state of audits for /readyz?verbose.
func (r *reporting) details() []string {
	if r == nil || r.audits == nil {
		return nil
	}
	return []string{r.audits.Details()}
}

// run writes reports until the context ends.
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

// policyCounts returns the counts of this replica.
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

// reports returns what writes the status of custom resources. The cluster need not be
// reachable yet.
func (f *Options) reports(ctx context.Context, access *rest.Config, world *cluster.Cluster, current *active.Active, load *reviewLoad, log *slog.Logger, metrics *telemetry.Telemetry) (*reporting, error) {
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-status/" + build.Version()
	access.QPS, access.Burst = reportingQPS, reportingBurst
	client, err := certs.NewClient(access)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for %s: %w", access.Host, err)
	}
	checked, err := crdversion.New(crdversion.Config{Client: objects, Log: log})
	if err != nil {
		return nil, err
	}
	replica := certstore.ReplicaName(f.replica)
	recorder := events.New(context.WithoutCancel(ctx), events.Config{Client: client.CoreV1(), Replica: replica, Log: log})
	audits, err := f.auditor(access, current, load, log)
	if err != nil {
		return nil, err
	}
	r := &reporting{definitions: checked, audits: audits}
	cfg := status.Config{
		Client: objects, Leases: client.CoordinationV1(), Namespace: f.ownNamespace(), Group: install.DefaultGroup, Replica: replica,
		Record: recorder.Write, Log: log,
		Policies: func() map[string]status.PolicyCount { return policyCounts(metrics, current.Config.Load()) },
		Pods:     f.podCounter(client, current, log),
	}
	if audits != nil {
		cfg.Audit = audits
		metrics.Registry.MustRegister(audits)
	}
	r.status = status.New(cfg)
	metrics.Registry.MustRegister(r.status)
	names := f.registrationNames()
	if r.assumed = !f.changed("registration") && len(names) == 0; r.assumed {
		names = []string{install.DefaultRegistration}
	}
	if len(names) > 0 {
		r.registrations = world.Registrations(names)
	}
	return r, nil
}

// podCounter returns the counter of the pods of profiles, without those of namespaces that
// are never sent. It is nil without --count-pods-every.
func (f *Options) podCounter(client certs.Client, current *active.Active, log *slog.Logger) status.PodCounter {
	if f.CountPods == 0 {
		return nil
	}
	left := neverSent(f.ownNamespace())
	return podcount.New(podcount.Config{
		Client: client.CoreV1().RESTClient(), Every: f.CountPods, Log: log,
		Set: func() *sidecar.Set {
			if s := current.Snapshot.Load(); s != nil {
				return s.Sidecar
			}
			return nil
		},
		Left: func(namespace string) bool { return slices.Contains(left, namespace) },
	})
}

// ownNamespace returns the namespace that this process runs in.
func (f *Options) ownNamespace() string {
	if f.Namespace != "" {
		return f.Namespace
	}
	if f.InCluster {
		text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if name := string(bytes.TrimSpace(text)); err == nil && len(validation.IsDNS1123Label(name)) == 0 {
			return name
		}
	}
	return install.DefaultNamespace
}
