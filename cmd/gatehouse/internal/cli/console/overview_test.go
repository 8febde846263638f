package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/offline"
	"github.com/gatehouse-dev/gatehouse/test/support/portforward"
)

// noon is the time of consoles in tests.
func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// overviewPages is a console whose pages a test loads.
type overviewPages struct {
	*console

	t *testing.T
}

// newOverview returns the console of these flags, with the commands that its overview runs.
func newOverview(t *testing.T, f flags) *overviewPages {
	t.Helper()
	run := func(ctx context.Context, args []string, s cli.Streams) int {
		return cli.Run(ctx, args, s, certs.NewCommand, offline.NewLintCommand)
	}
	c, err := newConsole(t.Context(), &f, run, t.TempDir(), testAddress, testSecrets, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.now = noon
	t.Cleanup(c.background.Wait) // the context of the test has ended then
	return &overviewPages{c, t}
}

// get returns a page.
func (p *overviewPages) get(path string) string {
	p.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://"+testAddress+testSecrets.Base+path, http.NoBody)
	r.AddCookie(&http.Cookie{Name: "gatehouse-console-8642", Value: testSecrets.Session})
	w := httptest.NewRecorder()
	p.web.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		p.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return strings.ReplaceAll(w.Body.String(), testSecrets.Base, "")
}

// expect compares a page with what it must have and must not have.
func (p *overviewPages) expect(path string, want []string, unwanted ...string) {
	p.t.Helper()
	text := p.get(path)
	for _, one := range want {
		if !strings.Contains(text, one) {
			p.t.Errorf("%s:\n%s\nlacks %s", path, text, one)
		}
	}
	for _, one := range unwanted {
		if strings.Contains(text, one) {
			p.t.Errorf("%s:\n%s\nhas %s", path, text, one)
		}
	}
}

func clusterFlags(t *testing.T, s *portforward.APIServer) flags {
	t.Helper()
	var f flags
	f.Kubeconfig = s.Kubeconfig(t)
	return f
}

// TestOverviewNoCluster shows a cluster that cannot be reached.
func TestOverviewNoCluster(t *testing.T) {
	t.Parallel()
	s := portforward.NewAPIServer(t, nil)
	f := clusterFlags(t, s)
	s.Close()
	p := newOverview(t, f)
	for _, name := range []string{"attention", "replicas"} {
		p.expect("/overview/"+name+"/part", []string{"connection refused", `notice"`})
	}
	p.expect("/overview/certificates/part", []string{"connection refused"})
}

// TestOverviewConfiguration shows a directory without a cluster.
func TestOverviewConfiguration(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"exceptions.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: legacy, namespace: shop}\nspec:\n  policies: [{name: none}]\n  match: {names: [a]}\n  reason: until the move\n  expiresAt: 2026-11-23T12:00:00Z\n",
	})
	p := newOverview(t, flags{config: dir})
	p.expect("/", []string{"/overview/configuration/part"}, "/overview/replicas")
	p.expect("/overview/configuration/part", []string{"lint --config", "exceptions.yaml"})
}
