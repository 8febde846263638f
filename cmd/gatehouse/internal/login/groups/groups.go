// Package groups looks up groups of users outside of their tokens: at UserInfo endpoints, in LDAP directories, at
// Microsoft Graph, and at HTTP services of the operator.
//
// Groups are looked up only for verified tokens, so forged tokens cause no requests. Requests about the same user at the
// same time are one. For each source, the number of requests, their time and the size of an answer are bounded, and a
// source that fails repeatedly is not asked for a while. Answers are cached in bounded memory. If a source does not
// answer, its last answer is used for a while, and marked as stale.
package groups

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/ldap"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/groupsource"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// cacheBytes bounds the memory of all cached answers: some tens of thousands of users with
// twenty groups each.
const cacheBytes = 32 << 20

// Groups are the group sources of a configuration, and for a moment those of the one before
// it. It is safe for concurrent use.
type Groups struct {
	prometheus.Collector

	problems *problemlog.Log
	agent    string
	metrics  *metrics
	cache    *cache

	ctx   context.Context
	close context.CancelFunc

	mu    sync.Mutex
	known []*source
}

// View is the group sources of one configuration.
type View struct{ all []*source }

// New returns Groups without any source. The version of this program is for the logs of the
// services. Close must be called in the end.
func New(log *slog.Logger, version string) *Groups {
	g := &Groups{problems: problemlog.New(log, "group sources"), agent: strings.TrimSuffix("gatehouse/"+version, "/"), cache: newCache(cacheBytes)}
	g.metrics = newMetrics(g.cache)
	g.Collector = g.metrics
	g.ctx, g.close = context.WithCancel(context.Background())
	return g
}

// Close ends all look-ups.
func (g *Groups) Close() { g.close() }

// Provide gives each issuer of a configuration the look-ups of its group sources. A source
// with the same settings as one that is known is that one, with what it has cached. The
// configuration has its directories.
func (g *Groups) Provide(c *config.Config) (*View, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range c.Authn.Issuers {
		c.Authn.Issuers[i].Groups = nil // of an earlier call about the same documents
	}
	v := &View{}
	for i := range c.GroupSources {
		configured := &c.GroupSources[i]
		n := slices.IndexFunc(c.Authn.Issuers, func(one authn.Issuer) bool { return one.Config.Issuer.URL == configured.Issuer })
		if n < 0 {
			continue // An error of the configuration, which is reported elsewhere.
		}
		of, err := g.source(configured, c.Authn.Directories)
		if err != nil {
			return nil, fmt.Errorf("group source %q of issuer %q: %w", configured.Config.Name, configured.Issuer, err)
		}
		v.all = append(v.all, of)
		c.Authn.Issuers[n].Groups = append(c.Authn.Issuers[n].Groups, of)
	}
	return v, nil
}

// ProvideOnce gives each issuer of a configuration the look-ups of its group sources, for a
// command. End must be called in the end.
func ProvideOnce(c *config.Config) (end func(), err error) {
	for i := range c.Directories {
		one, err := ldap.New(ldap.Options{Config: c.Directories[i].Config, BindPassword: c.Directories[i].BindPassword})
		if err != nil {
			return nil, err
		}
		c.Authn.Directories[i].Directory = one
	}
	g := New(slog.New(slog.DiscardHandler), build.Version())
	if _, err := g.Provide(c); err != nil {
		g.Close()
		return nil, err
	}
	return g.Close, nil
}

// source returns the source with these settings. The caller holds the lock.
func (g *Groups) source(configured *config.GroupSource, directories []authn.NamedDirectory) (*source, error) {
	var directory authn.Directory
	for _, one := range directories {
		if asked := configured.Config.LDAP; asked != nil && asked.Directory == one.Config.Name {
			directory = one.Directory
		}
	}
	i := slices.IndexFunc(g.known, func(one *source) bool {
		return reflect.DeepEqual(&one.given, configured) && one.directory == directory
	})
	if i >= 0 {
		return g.known[i], nil
	}
	complete := *configured
	complete.Config = groupsource.Complete(configured.Config)
	ask, err := newBackend(&complete, directory, g.agent)
	if err != nil {
		return nil, err
	}
	of := g.newSource(&complete, ask)
	of.given, of.directory = *configured, directory
	g.known = append(g.known, of)
	return of, nil
}

// newSource returns a source that asks. The configuration has defaults.
func (g *Groups) newSource(configured *config.GroupSource, ask backend) *source {
	c := configured.Config
	return &source{
		GroupSource: *configured, groups: g, backend: ask,
		slots: make(chan struct{}, c.MaxRequests), queue: make(chan struct{}, callsPerSlot*c.MaxRequests),
		count: g.metrics.of(configured.Issuer, c.Name),
	}
}

// Keep forgets the sources that do not belong to the View.
func (g *Groups) Keep(v *View) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.known {
		if !slices.ContainsFunc(v.all, func(kept *source) bool { return kept.Issuer == one.Issuer && kept.Config.Name == one.Config.Name }) {
			g.metrics.drop(one.Issuer, one.Config.Name)
			g.problems.Retain(func(what string) bool { return what != one.name() })
		}
	}
	g.known = slices.Clone(v.all)
}
