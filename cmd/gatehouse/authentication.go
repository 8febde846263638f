package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/issuers"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/ldap"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
)

// identityProviders are the services that logging in asks: issuers of JWTs for
// their keys, and directories about passwords. They outlive configurations, so
// that a new one of which a service is the same neither connects nor fetches
// anew.
type identityProviders struct {
	issuers     *issuers.Issuers
	directories *ldap.Directories
	attempts    *login.Attempts
}

func newIdentityProviders(log *slog.Logger, metrics *telemetry.Telemetry) *identityProviders {
	p := &identityProviders{
		issuers:     issuers.New(issuers.Options{Log: log, Version: version(), Waiting: server.KeyWaits()}),
		directories: ldap.NewDirectories(),
		attempts:    login.NewAttempts(login.AttemptsOptions{Now: time.Now}),
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
func (p *identityProviders) provide(ctx context.Context, c *config.Config) (provided, error) {
	return p.provideWithin(ctx, c, true)
}

// provideWithin is provide, which waits for new issuers or does not.
func (p *identityProviders) provideWithin(ctx context.Context, c *config.Config, wait bool) (provided, error) {
	c.Authn.Attempts = p.attempts
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
func (p *identityProviders) keep(of provided) {
	p.issuers.Keep(of.issuers)
	p.directories.Keep(of.directories)
}

func (p *identityProviders) close() {
	p.issuers.Close()
	p.directories.Close()
}
