package configuration

import (
	"context"
	"log/slog"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/groups"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/issuers"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/ldap"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// IdentityProviders are the services that authentication asks: JWT issuers for their keys, directories about passwords, and
// group sources for groups. They
// outlive configurations: a new configuration keeps the connections and keys of each service that has not changed.
type IdentityProviders struct {
	issuers     *issuers.Issuers
	directories *ldap.Directories
	groups      *groups.Groups
}

// NewIdentityProviders returns providers that no configuration uses yet. At most keyWaits token reviews wait for keys at one time.
func NewIdentityProviders(log *slog.Logger, metrics *telemetry.Telemetry, keyWaits int) *IdentityProviders {
	p := &IdentityProviders{
		issuers:     issuers.New(issuers.Options{Log: log, Version: build.Version(), Waiting: keyWaits}),
		directories: ldap.NewDirectories(),
		groups:      groups.New(log, build.Version()),
	}
	metrics.Registry.MustRegister(p.issuers, p.directories, p.groups)
	return p
}

// identities are the providers of one configuration.
type identities struct {
	issuers     *issuers.View
	directories *ldap.View
	groups      *groups.View
}

// provide connects a configuration with its providers. If wait is true it waits for the keys of new issuers; until these are
// there, the decision about their tokens is "cannot decide".
func (p *IdentityProviders) provide(ctx context.Context, c *config.Config, wait bool) (identities, error) {
	known := make([]ldap.Options, len(c.Directories))
	for i := range c.Directories {
		known[i] = ldap.Options{Config: c.Directories[i].Config, BindPassword: c.Directories[i].BindPassword}
	}
	directories, view, err := p.directories.Provide(known)
	if err != nil {
		return identities{}, err
	}
	for i := range directories {
		c.Authn.Directories[i].Directory = directories[i]
	}
	ofGroups, err := p.groups.Provide(c)
	if err != nil {
		return identities{}, err
	}
	of := identities{issuers: p.issuers.Provide(&c.Authn), directories: view, groups: ofGroups}
	if wait {
		ctx, cancel := context.WithTimeout(ctx, maxLookupWait)
		defer cancel()
		_ = of.issuers.Wait(ctx)
	}
	return of, nil
}

// release stops providers that the active configuration does not have.
func (p *IdentityProviders) release(active identities) {
	p.issuers.Keep(active.issuers)
	p.directories.Keep(active.directories)
	p.groups.Keep(active.groups)
}

// Close stops all providers.
func (p *IdentityProviders) Close() {
	p.issuers.Close()
	p.groups.Close()
}
