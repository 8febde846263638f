package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// place is a site with everybody whom it asks, and an API server that asks it.
type place struct {
	*site
	api *cluster.Cluster
	// issuer is an ordinary one. The people of plain have names and groups without a prefix, the tokens of brief end soon,
	// and foreign is not configured.
	issuer, plain, brief, foreign *dexServer
	// The people of the issuers: jane is in groups, rules keep mallory out, master claims a reserved group, rick is about
	// to be thrown out, and busy is in more groups than uncertified.
	jane, mallory, master, rick, busy dexUser

	directory *directory
}

// loginTest is a part of TestLogins.
type loginTest struct {
	name string
	test func(*testing.T)
}

// TestLogins is everything about logging in that leaves issuers and directory alone.
func TestLogins(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, about := range append(p.terminalTests(), []loginTest{
		{"revocation", p.testRevocation},
		{"JWT", p.testJWT},
		{"directory", p.testDirectory},
		{"commands", p.testCommands},
	}...) {
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
	p.busy = p.person("busy")
	for i := range 300 {
		p.busy.Groups = append(p.busy.Groups, fmt.Sprintf("a-group-of-the-company-%03d", i))
	}
	p.issuer = newDex(t, dexOptions{Users: []dexUser{p.jane, p.mallory, p.master, p.rick, p.busy}})
	p.plain = newDex(t, dexOptions{Users: []dexUser{p.master}})
	p.brief = newDex(t, dexOptions{Users: []dexUser{p.jane}, IDTokenTTL: 2 * time.Second})
	p.foreign = newDex(t, dexOptions{Users: []dexUser{p.jane}})
	p.directory = p.newDirectory(t, "jane", "bob", "eve", "mary", "victim", "rose", "kate")
	p.writeDocument(t, "issuers.yaml", issuersDocument(issuerOf(p.issuer, "dex:"), issuerOf(p.plain, ""), issuerOf(p.brief, "brief:")))
	p.writeDocument(t, "configuration.yaml", gatehouseDocument(p.directory.configuration(t, p.site)))
	p.start(t)
	p.api = p.apiServer(t)
	// Logs and metrics of both servers, an audit log, and what commands say.
	p.expectTraces(`"msg":"login"`, `"msg":"whoami"`, "gatehouse_logins_total{", `"resource":"selfsubjectreviews"`)
	return p
}

// fromNewAddress is the place as it is seen from another address.
func (p *place) fromNewAddress(t *testing.T) *place {
	t.Helper()
	other := *p
	other.site = p.site.fromNewAddress(t)
	return &other
}
