package groups

import (
	"log/slog"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/auth/ldap"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

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
