package app

import (
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/rules"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/status"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/install/registration"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// managedRules are the rules that the active configuration needs, which the elected replica writes. It is safe for concurrent use.
type managedRules struct {
	publisher *rules.Publisher
	// complete reports whether the active configuration has everything that was there at the start.
	complete func() bool
	log      *slog.Logger

	mu sync.Mutex
	// of is the configuration that needs and encoded were made of.
	of      *config.Config
	needs   registration.Needs
	encoded string
}

// managedRules returns the rules of the webhook configurations of these names.
func (f *Options) managedRules(access *rest.Config, names []string, reports *status.Controller, log *slog.Logger) (*managedRules, error) {
	access = rest.CopyConfig(access)
	access.UserAgent = "gatehouse-registration/" + build.Version()
	access.QPS, access.Burst, access.Timeout = reportingQPS, reportingBurst, reportingTimeout
	client, err := certs.NewClient(access)
	if err != nil {
		return nil, err
	}
	r := &managedRules{log: log}
	r.publisher = rules.New(rules.Config{
		Client: client, Names: names, Install: f.ownNamespace(), Own: r.own, Log: log,
		Peers: func() *status.Peers { return reports.Peers(client.CoordinationV1()) },
	})
	return r, nil
}

// use decides what a configuration needs, unless it is the same as before.
func (r *managedRules) use(c *config.Config) {
	defer r.publisher.Poke()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == c {
		return
	}
	needs, err := registration.NeedsOf(new(c.Spec()))
	if err != nil { // an active configuration has none
		r.log.Error("registration", "error", err.Error(), "hint", "the rules stay as they are")
		return
	}
	r.of, r.needs, r.encoded = c, needs, rules.Encode(needs)
}

// own returns what this replica needs, and whether that is known.
func (r *managedRules) own() (registration.Needs, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.needs, r.needs != nil && r.complete()
}

// report returns what this replica reports to the others.
func (r *managedRules) report() string {
	if _, known := r.own(); !known {
		return rules.Unready
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.encoded
}
