package app

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/configuration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	manifest "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/leader"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// registrations are the webhook configurations that call this server.
type registrations struct {
	// reader is nil without names. Assumed reports whether they are the default because no flag names them: then nothing
	// waits until they trust the certificate.
	reader  *registration.Reader
	assumed bool
	// writer is nil if nothing is written, and rules if only CAs are.
	writer *registration.Writer
	rules  *managedRules
	// native is nil without custom resources. With leave, nothing is sent for what the API server enforces itself.
	native *configuration.Native
	leave  bool
	// neverSent are the namespaces that are not sent if the webhook configurations do not say it.
	neverSent []string
}

// addRegistrations adds what reads and writes the webhook configurations, and the election of the replica that writes.
func (w *wiring) addRegistrations(context.Context) error {
	if w.access == nil {
		return nil
	}
	names := w.registrationNames()
	r := &w.called
	if r.assumed = w.CustomResources && !w.changed("registration") && len(names) == 0; r.assumed {
		names = []string{install.DefaultRegistration}
	}
	access, client := w.accessOf("registration"), w.certClient
	if client == nil {
		var err error
		if client, err = certs.NewClient(access); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		r.reader = registration.NewReader(registration.ReaderConfig{Client: client, Names: names, Hosts: w.selfSigned, Log: w.log, Notify: w.notify})
		w.add(part{run: r.reader.Run})
		writer := registration.WriterConfig{Client: client, Reader: r.reader, Notify: w.notify}
		if w.ManageRegistration {
			r.rules = &managedRules{log: w.log, complete: func() bool { return w.reconciler.CheckComplete() == nil }}
			writer.Needs = r.rules.own
		}
		if w.ManageRegistration || w.publishesBundles() {
			r.writer = registration.NewWriter(writer)
			w.certMetrics.Writer(r.writer)
			w.add(part{lead: r.writer.Lead})
		}
	}
	if !w.CustomResources && w.selfSignedSecret == "" && r.writer == nil {
		return nil // the elected replica has nothing to do
	}
	access.QPS, access.Burst, access.Timeout = reportingQPS, reportingBurst, reportingTimeout
	leases, err := certs.NewClient(access)
	if err != nil {
		return err
	}
	candidate := leader.New(leader.Config{
		Leases: leases.CoordinationV1(), Namespace: w.electionNamespace(), Name: install.DefaultGroup + "-leader", Replica: replicaName(w.replica), Log: w.log,
	})
	w.add(part{metrics: candidate, run: endless(func(ctx context.Context) { candidate.Run(ctx, w.leads()...) })})
	return nil
}

// electionNamespace returns the namespace of the Lease of the election: that of what the replicas share.
func (f *Options) electionNamespace() string {
	if namespace, _, err := install.ParseNamespacedName(f.selfSignedSecret); err == nil && namespace != "" {
		return namespace
	}
	return f.ownNamespace()
}

// notSent returns a function that returns remarks on what an object matches and the webhook
// configurations do not send, and on what it costs that they send everything. It is nil while
// these are not known. The configuration has the kinds of workloads.
func (r *registrations) notSent(c *config.Config) func(object any) (notSent, warnings []string) {
	enforced := r.native.Use(c, r.excluded())
	if r.rules != nil {
		var left []compile.Enforcement
		if r.leave {
			left = enforced
		}
		r.rules.use(c, left)
		r.writer.Poke()
	}
	if r.reader == nil {
		return nil
	}
	mutating, knowsMutating := r.reader.Mutating()
	validating, knowsValidating := r.reader.Validating()
	if !knowsMutating || !knowsValidating || r.assumed && len(mutating)+len(validating) == 0 {
		return nil
	}
	ofProfiles, workloads, sent := manifest.ProfilesNotSent(mutating), workload.FromAPI(c.Workloads()), manifest.SentBy(validating)
	if r.rules != nil {
		sent = sent.Managed(r.writer.Hint())
	}
	return func(object any) (notSent, warnings []string) {
		switch o := object.(type) {
		case *v1alpha1.SidecarProfile:
			return ofProfiles, nil
		case *v1alpha1.AdmissionPolicy:
			if compile.Of(enforced, "AdmissionPolicy", o.Name).IsWhole() {
				return nil, nil
			}
			if r.rules != nil && manifest.MatchesEverything(o) {
				warnings = []string{matchesEverything}
			}
			return manifest.NotSent(o, workloads, sent), warnings
		default:
			return nil, nil
		}
	}
}

// excluded returns the namespaces that are never sent, as far as the webhook configurations say so.
func (r *registrations) excluded() []string {
	if r.reader != nil {
		validating, _ := r.reader.Validating()
		for i := range validating {
			if names, err := manifest.ParseExcluded(validating[i].Annotations); err == nil {
				return names
			}
		}
	}
	return r.neverSent
}

// managedRules are the rules that the active configuration needs. It is safe for concurrent use.
type managedRules struct {
	// complete reports whether the active configuration has everything that was there at the start.
	complete func() bool
	log      *slog.Logger

	mu sync.Mutex
	// of is the active configuration, left what the API server enforces of it, and needs what was made of both, by what is included.
	of    *config.Config
	left  []compile.Enforcement
	needs map[string]needed
}

type needed struct {
	needs   manifest.Needs
	leftOut []string
}

// use sets the active configuration, and what is left to the API server.
func (r *managedRules) use(c *config.Config, left []compile.Enforcement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of != c || !slices.Equal(r.left, left) {
		r.of, r.left, r.needs = c, left, map[string]needed{}
	}
}

// own returns what this replica needs, what of it is not included, and whether that is known.
func (r *managedRules) own(included []string) (manifest.Needs, []string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || !r.complete() {
		return nil, nil, false
	}
	key := strings.Join(included, ",")
	n, ok := r.needs[key]
	if !ok {
		spec := r.of.Spec()
		spec.Policy = compile.Without(spec.Policy, r.left)
		var err error
		if n.needs, n.leftOut, err = manifest.NeedsOf(&spec, included); err != nil { // an active configuration has none
			r.log.Error("registration", "error", err.Error(), "hint", "the rules stay as they are")
			return nil, nil, false
		}
		r.needs[key] = n
	}
	return n.needs, n.leftOut, true
}

// matchesEverything is what it costs that a policy matches everything, for people.
const matchesEverything = "it matches every resource, so that every request is sent that may be (hint: name resources in spec.matchConstraints.resourceRules)"
