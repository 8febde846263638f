package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/login"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/offline"
	tokencommand "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/token"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/debug"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas/replicastest"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

// noon is the time of consoles in tests.
func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// overviewPages is a console whose pages a test loads.
type overviewPages struct {
	*console

	t *testing.T
}

// newOverview returns the console of these flags, with the commands that its overview and login pages run.
func newOverview(t *testing.T, f flags) *overviewPages {
	t.Helper()
	run := func(ctx context.Context, args []string, s cli.Streams) int {
		return cli.Run(ctx, args, s, certs.NewCommand, tokencommand.NewCommand, login.NewWhoamiCommand, offline.NewLintCommand)
	}
	c, err := newConsole(t.Context(), &f, run, t.TempDir(), testAddress, "secret")
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
	r := httptest.NewRequest(http.MethodGet, "http://"+testAddress+path, http.NoBody)
	r.AddCookie(&http.Cookie{Name: "gatehouse-console-8642", Value: "secret"})
	w := httptest.NewRecorder()
	p.web.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		p.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
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

// opsServer is the listener of a replica.
func opsServer(t *testing.T, metrics string) http.Handler {
	t.Helper()
	recording := replicastest.Recording(t, map[string][]byte{"1-a.gatehouse.zst": []byte("segment")})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == debug.RecordingPath || strings.HasPrefix(r.URL.Path, debug.RecordingPath+"/") {
			recording.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, metrics)
	})
}

// serveObjects adds lists of objects to an API server, by their path. Other lists are refused, as for a user without rights.
func serveObjects(s *replicastest.APIServer, lists map[string]string) {
	s.Mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if items, ok := lists[r.URL.Path]; ok {
			_, _ = fmt.Fprintf(w, `{"kind":"List","apiVersion":"v1","metadata":{},"items":[%s]}`, items)
			return
		}
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		group, where, verb := "", " at the cluster scope", "list"
		if parts[0] == "apis" {
			group, parts = parts[1], parts[1:]
		}
		parts = parts[2:]
		if parts[0] == "namespaces" && len(parts) > 2 {
			where, parts = fmt.Sprintf(" in the namespace %q", parts[1]), parts[2:]
		}
		resource := parts[0]
		if len(parts) > 1 {
			verb = "get"
		}
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(&metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
			Message: fmt.Sprintf(`%s is forbidden: User "joe" cannot %s resource %q in API group %q%s`, resource, verb, resource, group, where),
		})
	})
}

func clusterFlags(t *testing.T, s *replicastest.APIServer) flags {
	t.Helper()
	var f flags
	f.Kubeconfig = s.Kubeconfig(t)
	return f
}

const metricsA = `gatehouse_build_info{version="v1.2.3",go="go1.26"} 1
gatehouse_config_info{digest="aaaaaaaaaaaaaaaaaaaa"} 1
gatehouse_config_last_load_successful 1
gatehouse_config_loaded_timestamp_seconds 1795176000
gatehouse_reviews_total{endpoint="validate",decision="allowed",reason=""} 1200
gatehouse_reviews_total{endpoint="validate",decision="denied",reason="policy"} 34
gatehouse_record_reviews_total{result="recorded"} 1230
gatehouse_record_dropped_total{reason="queue"} 4
gatehouse_record_bytes 1048576
gatehouse_record_failing_since_timestamp_seconds 0
`

const metricsB = `gatehouse_config_info{digest="bbbbbbbbbbbbbbbbbbbb"} 1
gatehouse_config_last_load_successful 0
`

const expiring = `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"PolicyException","metadata":{"name":"legacy","namespace":"shop"},"spec":{"expiresAt":"2026-11-22T12:00:00Z"}},
{"apiVersion":"gatehouse.dev/v1alpha1","kind":"PolicyException","metadata":{"name":"later","namespace":"shop"},"spec":{"expiresAt":"2027-11-22T12:00:00Z"}}`

const degraded = `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionPolicy","metadata":{"name":"limits"},"status":{"conditions":[{"type":"Ready","status":"False","reason":"Invalid","message":"it does not <b>compile</b>"},{"type":"Degraded","status":"True","reason":"X","message":"an older one is active"}]}},
{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionPolicy","metadata":{"name":"fine"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`

const accessTokens = `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessToken","metadata":{"name":"ci","generation":1,"uid":"1"},"spec":{"sha256":"5555555555555555555555555555555555555555555555555555555555555555","user":{"username":"ci-bot","groups":["a","b"]},"expiresAt":"2026-11-21T12:00:00Z"}},
{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessToken","metadata":{"name":"old","generation":1,"uid":"2"},"spec":{"sha256":"6666666666666666666666666666666666666666666666666666666666666666","user":{"username":"old-bot"},"expiresAt":"2026-01-21T12:00:00Z"}}`

// TestOverviewCluster loads the parts of the page as a user with all rights but those on Secrets and webhook configurations.
func TestOverviewCluster(t *testing.T) {
	t.Parallel()
	s := replicastest.NewAPIServer(t, map[string]http.Handler{"gatehouse-a": opsServer(t, metricsA), "gatehouse-b": opsServer(t, metricsB)})
	const api = "/apis/gatehouse.dev/v1alpha1/"
	serveObjects(s, map[string]string{
		api + "admissionpolicies": degraded, api + "admissionpolicybindings": "", api + "sidecarprofiles": "", api + "policyexceptions": expiring,
		api + "accesstokens": accessTokens, api + "tokenrevocations": "",
	})
	p := newOverview(t, clusterFlags(t, s))
	if shell := p.get("/"); !strings.Contains(shell, `hx-get="/overview/attention/part" hx-trigger="load, every 60s"`) || !strings.Contains(shell, `<a href="/overview/attention">`) {
		t.Errorf("the page without its parts: %s", shell)
	}
	p.expect("/overview/replicas/part", []string{
		"gatehouse-a", "gatehouse-b", `not ready: Running`, "v1.2.3", ">aaaaaaaaaaaa<", "differs", "a newer one has errors", "2026-11-20T12:00:00Z", `<td class="bad"><bdi>not ready: Pending`,
		"allowed 1200, denied 34", "recorded 1230; dropped: queue 4",
	}, "<html")
	p.expect("/overview/replicas", []string{"<html", "gatehouse-a"})
	p.expect("/overview/attention/part", []string{
		"AdmissionPolicy limits", "is not active: it does not &lt;b&gt;compile", "is degraded: an older one is active", "PolicyException shop/legacy", "expires in 2 days",
	}, "shop/later", "fine", "missing")
	p.expect("/overview/certificates/part", []string{"user &#34;joe&#34; may not &#34;get&#34; secrets", "certs status --kubeconfig"})
	p.expect("/login/tokens/part", []string{"ci-bot", "old-bot"}, strings.Repeat("5", 16), strings.Repeat("6", 16))
	p.expect("/login/whoami/part", []string{"the kubeconfig has no address of Gatehouse"})
}

// TestOverviewWithoutRights names each right that is missing.
func TestOverviewWithoutRights(t *testing.T) {
	t.Parallel()
	s := replicastest.NewAPIServer(t, map[string]http.Handler{"gatehouse-a": opsServer(t, metricsA), "gatehouse-b": opsServer(t, metricsB)})
	s.Forbidden = "gatehouse-b"
	serveObjects(s, nil)
	f := clusterFlags(t, s)
	f.namespaces = []string{"shop"}
	p := newOverview(t, f)
	const forward = "the right to create pods/portforward in namespace gatehouse-system is missing"
	p.expect("/overview/replicas/part", []string{forward, "v1.2.3"})
	p.expect("/overview/attention/part", []string{
		"the right to list admissionpolicies.gatehouse.dev is missing", "the right to list policyexceptions.gatehouse.dev in namespace shop is missing",
	}, "Nothing.</p>")
	p.expect("/login/tokens/part", []string{"accesstokens"})
	p.lookAtRecordings()
	support.Eventually(t, "the recordings are read", func() error {
		if state := p.observer.mirror.State(); state.Segments != 1 {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
	p.expect("/decisions", []string{"Not read: " + forward, "Recordings of 1 of 2 replicas: 1 segment", `hx-trigger="every `})
}

// TestOverviewNoCluster shows a cluster that cannot be reached.
func TestOverviewNoCluster(t *testing.T) {
	t.Parallel()
	s := replicastest.NewAPIServer(t, nil)
	f := clusterFlags(t, s)
	s.Close()
	p := newOverview(t, f)
	for _, name := range []string{"attention", "replicas"} {
		p.expect("/overview/"+name+"/part", []string{"connection refused", `notice"`})
	}
	for _, path := range []string{"/overview/certificates", "/login/tokens"} {
		p.expect(path+"/part", []string{"connection refused"})
	}
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
	p.expect("/login/tokens/part", []string{"token list --config"})
	if p.mirrorText() != nil || p.isMirrored() {
		t.Error("there is a mirror without a cluster")
	}
}
