package active

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/issuers"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/ldap"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
)

// IdentityProviders are the services that logging in asks: issuers of JWTs for
// their keys, and directories about passwords. They outlive configurations, so
// that a new one of which a service is the same neither connects nor fetches
// anew.
type IdentityProviders struct {
	issuers     *issuers.Issuers
	directories *ldap.Directories
	Attempts    *login.Attempts
}

func NewIdentityProviders(log *slog.Logger, metrics *telemetry.Telemetry) *IdentityProviders {
	p := &IdentityProviders{
		issuers:     issuers.New(issuers.Options{Log: log, Version: build.Version(), Waiting: server.KeyWaits()}),
		directories: ldap.NewDirectories(),
		Attempts:    login.NewAttempts(login.AttemptsOptions{Now: time.Now}),
	}
	metrics.Registry.MustRegister(p.issuers, p.directories)
	return p
}

// provided are the services of one configuration.
type provided struct {
	issuers     *issuers.View
	directories *ldap.View
}

// provide makes a configuration ask the services, and gives the keys of new
// issuers a moment to be fetched before it is used: until they are, tokens of these
// issuers are "could not tell".
func (p *IdentityProviders) provide(ctx context.Context, c *config.Config) (provided, error) {
	return p.provideWithin(ctx, c, true)
}

// provideWithin is provide, which waits for new issuers or does not.
func (p *IdentityProviders) provideWithin(ctx context.Context, c *config.Config, wait bool) (provided, error) {
	c.Authn.Attempts = p.Attempts
	known := make([]ldap.Options, len(c.Directories))
	for i := range c.Directories {
		known[i] = ldap.Options{Config: c.Directories[i].Config, BindPassword: c.Directories[i].BindPassword}
	}
	directories, view, err := p.directories.Provide(known)
	if err != nil {
		return provided{}, err
	}
	for i := range directories {
		c.Authn.Directories[i].Directory = directories[i]
	}
	of := provided{issuers: p.issuers.Provide(&c.Authn), directories: view}
	if !wait {
		return of, nil
	}
	const moment = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	_ = of.issuers.Wait(ctx) // what is missing is logged and measured by the issuers
	return of, nil
}

// keep ends what a configuration that is in use does not ask.
func (p *IdentityProviders) keep(of provided) {
	p.issuers.Keep(of.issuers)
	p.directories.Keep(of.directories)
}

func (p *IdentityProviders) Close() {
	p.issuers.Close()
	p.directories.Close()
}
