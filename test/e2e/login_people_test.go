package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/cluster"
	"github.com/gatehouse-dev/gatehouse/test/dex"
)

// place is a site with everybody whom it asks, and an API server that asks it.
type place struct {
	*site
	api *cluster.Cluster
	// issuer is an ordinary one. The tokens of brief end soon, and its people have names and groups without a prefix.
	// foreign is not configured.
	issuer, brief, foreign *dex.Server
	// The people of the issuers: jane is in groups, rules keep mallory out, master claims a reserved group, and rick is
	// about to be thrown out.
	jane, mallory, master, rick dex.User

	directory *directory
}

// TestLogins is everything about logging in that leaves issuers and directory alone.
func TestLogins(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, about := range []struct {
		name string
		test func(*testing.T)
	}{
		{"JWT", p.testJWT},
		{"directory", p.testDirectory},
		{"revocation", p.testRevocation},
		{"commands", p.testCommands},
	} {
		t.Run(about.name, func(t *testing.T) {
			t.Parallel()
			about.test(t)
		})
	}
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{site: prepareSite(t, "logins")}
	p.jane, p.mallory, p.master, p.rick = p.person("jane", "dev", "eng"), p.person("mallory"), p.person("master", "system:masters"), p.person("rick")
	p.mallory.Email = "mallory@blocked.example.org"
	all := []dex.User{p.jane, p.mallory, p.master, p.rick}
	p.issuer = dex.New(t, dex.Options{Users: all})
	p.brief = dex.New(t, dex.Options{Users: all, IDTokenTTL: 2 * time.Second})
	p.foreign = dex.New(t, dex.Options{Users: all})
	p.directory = p.newDirectory(t, "jane", "bob", "eve", "mary", "victim", "leaver", "rose", "kate")
	p.put(t, "issuers.yaml", upstream(trusting(p.issuer, "dex:"), trusting(p.brief, "")))
	p.put(t, "configuration.yaml", ours(p.directory.configuration(t, p.site)))
	p.start(t)
	p.api = p.apiServer(t)
	ready := p.idToken(t, p.issuer, dex.Client, p.jane)
	eventually(t, "the keys of the issuers", func() error {
		return errors.Join(yes(p.review(t, ready)), yes(p.review(t, p.idToken(t, p.brief, dex.Client, p.jane))))
	})
	return p
}

// elsewhere is the place as it is seen from another address.
func (p *place) elsewhere(t *testing.T) *place {
	t.Helper()
	other := *p
	other.site = p.site.elsewhere(t)
	return &other
}
