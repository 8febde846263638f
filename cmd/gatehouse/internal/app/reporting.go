package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/configuration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/events"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/podcount"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/status"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/background"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// reporting writes the status of custom resources, and does what one replica of the install does.
type reporting struct {
	status        *status.Controller
	registrations *registrations
	// audits is nil without --audit-every, and pods without --count-pods-every.
	audits *background.Controller
	pods   *podcount.Counter
}

// Requests of status have a client of their own, so that they never delay
// lookups of reviews. Its rate is that of writes of status.
const (
	reportingQPS, reportingBurst = 20, 40
	reportingTimeout             = 10 * time.Second
)

// notSent returns a function that returns remarks on what an object matches and the webhook
// configurations do not send, and on what it costs that they send everything. It is nil while
// these are not known. The configuration has the kinds of workloads.
func (r *reporting) notSent(c *config.Config) func(object any) (notSent, warnings []string) {
	rules := r.registrations.rules
	if rules != nil {
		rules.use(c)
		r.registrations.writer.Poke()
	}
	if r.registrations.reader == nil {
		return nil
	}
	mutating, knowsMutating := r.registrations.reader.Mutating()
	validating, knowsValidating := r.registrations.reader.Validating()
	if !knowsMutating || !knowsValidating || r.registrations.assumed && len(mutating)+len(validating) == 0 {
		return nil
	}
	ofProfiles, workloads, sent := registration.ProfilesNotSent(mutating), workload.FromAPI(c.Workloads()), registration.SentBy(validating)
	if rules != nil {
		sent = sent.Managed(r.registrations.writer.Hint())
	}
	return func(object any) (notSent, warnings []string) {
		switch o := object.(type) {
		case *v1alpha1.SidecarProfile:
			return ofProfiles, nil
		case *v1alpha1.AdmissionPolicy:
			if rules != nil && registration.MatchesEverything(o) {
				warnings = []string{matchesEverything}
			}
			return registration.NotSent(o, workloads, sent), warnings
		default:
			return nil, nil
		}
	}
}

// follow connects the reconciler with its reports.
func (r *reporting) follow(c *configuration.Reconciler) {
	c.Report = func(report status.Report) {
		r.status.Use(report)
	}
	c.NotSent = r.notSent
	if r.registrations.reader != nil {
		c.Renotify[0] = r.registrations.reader.Noticed()
	}
	if r.registrations.rules != nil {
		r.registrations.rules.complete = func() bool { return c.CheckComplete() == nil }
		c.Renotify[1] = r.registrations.writer.Changed()
	}
}

// documents returns the reviewer of custom resources, nil without any.
func (r *reporting) documents(current *configuration.Active) *crdadmission.Reviewer {
	if r == nil {
		return nil
	}
	return crdadmission.New(current.Config.Load)
}

// details returns the state of audits for /readyz?verbose.
func (r *reporting) details() []string {
	if r == nil || r.audits == nil {
		return nil
	}
	return []string{r.audits.Details()}
}

// elected returns what the elected replica does.
func (r *reporting) elected() []func(context.Context) {
	if r == nil {
		return nil
	}
	elected := []func(context.Context){r.status.Lead}
	if r.pods != nil {
		elected = append(elected, r.pods.Run)
	}
	if r.audits != nil {
		elected = append(elected, r.audits.Run)
	}
	return elected
}

// run writes reports until the context ends.
func (r *reporting) run(ctx context.Context, group *errgroup.Group) {
	if r == nil {
		return
	}
	group.Go(func() error {
		r.status.Run(ctx)
		return nil
	})
}

// reports returns what writes the status of custom resources. The cluster need not be
// reachable yet.
func (f *Options) reports(ctx context.Context, access *rest.Config, called *registrations, current *configuration.Active, load *reviewLoad, log *slog.Logger, metrics *telemetry.Telemetry) (*reporting, error) {
	unlimited := access
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-status/" + build.Version()
	access.QPS, access.Burst, access.Timeout = reportingQPS, reportingBurst, reportingTimeout
	client, err := certs.NewClient(access)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for %s: %w", access.Host, err)
	}
	replica, namespace := replicaName(f.replica), f.ownNamespace()
	recorder := events.New(context.WithoutCancel(ctx), events.Config{Client: client.CoreV1(), Replica: replica, Log: log})
	r := &reporting{registrations: called}
	cfg := status.Config{
		Client: objects, Leases: client.CoordinationV1(), Namespace: namespace, Group: install.DefaultGroup, Replica: replica,
		Record: recorder.Write, Log: log,
	}
	changed := func() { r.status.Recheck() }
	if r.audits, err = f.auditor(unlimited, current, load, changed, log); err != nil {
		return nil, err
	}
	if r.audits != nil {
		cfg.Audits = r.audits.Counts
		metrics.Registry.MustRegister(r.audits)
	}
	if f.CountPods > 0 {
		if r.pods, err = f.podCounter(unlimited, current, changed, log); err != nil {
			return nil, err
		}
		cfg.Pods = r.pods.Counts
	}
	if r.status, err = status.New(cfg); err != nil {
		return nil, err
	}
	metrics.Registry.MustRegister(r.status)
	return r, nil
}

// podCounter returns the counter of the pods of profiles, without those of namespaces that
// are never sent.
func (f *Options) podCounter(access *rest.Config, current *configuration.Active, changed func(), log *slog.Logger) (*podcount.Counter, error) {
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-status/" + build.Version()
	client, err := certs.NewClient(access)
	if err != nil {
		return nil, err
	}
	left := neverSent(f.ownNamespace())
	return podcount.New(podcount.Config{
		Client: client.CoreV1().RESTClient(), Every: f.CountPods, Changed: changed, Log: log,
		Set: func() *sidecar.Set {
			if s := current.Snapshot.Load(); s != nil {
				return s.Sidecar
			}
			return nil
		},
		Left: func(namespace string) bool { return slices.Contains(left, namespace) },
	}), nil
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
