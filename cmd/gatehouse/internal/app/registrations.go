package app

import (
	"context"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	manifest "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/leader"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/registration"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// registrations are the webhook configurations that call this server, and what reads and writes them.
type registrations struct {
	// reader is nil without names. Assumed reports whether they are the default because no flag names them: then nothing
	// waits until they trust the certificate.
	reader  *registration.Reader
	assumed bool
	// writer is nil if nothing is written, and rules if only CAs are.
	writer *registration.Writer
	rules  *managedRules
	// candidate is nil if the elected replica has nothing to do.
	candidate *leader.Candidate
}

// registrations returns what reads and writes the webhook configurations, and the election of the replica that writes. Client is
// that of certificates, nil without one.
func (f *Options) registrations(access *rest.Config, client certs.Client, notify func(certs.Event), log *slog.Logger) (*registrations, error) {
	r := &registrations{}
	if access == nil {
		return r, nil
	}
	names, err := f.parsedRegistrations()
	if err != nil {
		return nil, err
	}
	if r.assumed = f.CustomResources && !f.changed("registration") && len(names) == 0; r.assumed {
		names = []registration.Name{{Name: install.DefaultRegistration}}
	}
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-registration/" + build.Version()
	if client == nil {
		if client, err = certs.NewClient(access); err != nil {
			return nil, err
		}
	}
	if len(names) > 0 {
		r.reader = registration.NewReader(registration.ReaderConfig{Client: client, Names: names, Hosts: f.selfSigned, Log: log, Notify: notify})
		writer := registration.WriterConfig{Client: client, Reader: r.reader, Notify: notify}
		if f.ManageRegistration {
			r.rules = &managedRules{log: log}
			writer.Needs = r.rules.own
		}
		if f.ManageRegistration || f.publishesBundles() {
			r.writer = registration.NewWriter(writer)
		}
	}
	if f.CustomResources || f.selfSignedSecret != "" || r.writer != nil {
		access.QPS, access.Burst, access.Timeout = reportingQPS, reportingBurst, reportingTimeout
		leases, err := certs.NewClient(access)
		if err != nil {
			return nil, err
		}
		r.candidate = leader.New(leader.Config{
			Leases: leases.CoordinationV1(), Namespace: f.electionNamespace(), Name: install.DefaultGroup + "-leader", Replica: replicaName(f.replica), Log: log,
		})
	}
	return r, nil
}

// electionNamespace returns the namespace of the Lease of the election: that of what the replicas share.
func (f *Options) electionNamespace() string {
	if namespace, _, err := install.ParseNamespacedName(f.selfSignedSecret); err == nil && namespace != "" {
		return namespace
	}
	return f.ownNamespace()
}

// trusted returns the reader of what must trust the certificate, nil without any.
func (r *registrations) trusted() *registration.Reader {
	if r.assumed {
		return nil
	}
	return r.reader
}

// run reads, and writes while this replica is elected, until the context ends. Work is what else the elected replica does.
func (r *registrations) run(ctx context.Context, group *errgroup.Group, c *certificates, publish bool, work []func(context.Context)) {
	if r.reader != nil {
		group.Go(func() error { return r.reader.Run(ctx) })
	}
	if r.candidate == nil {
		return
	}
	if c.own != nil && publish {
		r.writer.Publish(c.own)
	}
	if c.own != nil {
		work = append(work, c.own.Lead)
	}
	if r.writer != nil {
		work = append(work, r.writer.Lead)
	}
	group.Go(func() error {
		r.candidate.Run(ctx, work...)
		return nil
	})
}

// managedRules are the rules that the active configuration needs. It is safe for concurrent use.
type managedRules struct {
	// complete reports whether the active configuration has everything that was there at the start.
	complete func() bool
	log      *slog.Logger

	mu sync.Mutex
	// of is the configuration that needs were made of.
	of    *config.Config
	needs manifest.Needs
}

// use decides what a configuration needs, unless it is the same as before.
func (r *managedRules) use(c *config.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == c {
		return
	}
	needs, err := manifest.NeedsOf(new(c.Spec()))
	if err != nil { // an active configuration has none
		r.log.Error("registration", "error", err.Error(), "hint", "the rules stay as they are")
		return
	}
	r.of, r.needs = c, needs
}

// own returns what this replica needs, and whether that is known.
func (r *managedRules) own() (manifest.Needs, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.needs, r.needs != nil && r.complete()
}

// matchesEverything is what it costs that a policy matches everything, for people.
const matchesEverything = "it matches every resource, so that every request is sent that may be (hint: name resources in spec.matchConstraints.resourceRules)"
