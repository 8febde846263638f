package console

import (
	"bytes"
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
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas/replicastest"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
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
gatehouse_certificate_not_after_timestamp_seconds{subject="serving certificate"} 1795200000
gatehouse_ca_rotation_phase{phase="Hold"} 1
gatehouse_reviews_total{endpoint="validate",decision="allowed",reason=""} 1200
gatehouse_reviews_total{endpoint="validate",decision="denied",reason="policy"} 34
gatehouse_record_reviews_total{result="recorded"} 1230
gatehouse_record_dropped_total{reason="queue"} 4
gatehouse_record_bytes 1048576
gatehouse_record_failing_since_timestamp_seconds 0
gatehouse_issuer_keys{issuer="https://issuer.example/<script>"} 2
gatehouse_issuer_keys_fetched_timestamp_seconds{issuer="https://issuer.example/<script>"} 1795175400
`

const metricsB = `gatehouse_config_info{digest="bbbbbbbbbbbbbbbbbbbb"} 1
gatehouse_config_last_load_successful 0
gatehouse_ca_bundle_trusted{kind="ValidatingWebhookConfiguration",name="gatehouse"} 0
gatehouse_issuer_keys{issuer="https://issuer.example/<script>"} 0
`

const expiring = `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"PolicyException","metadata":{"name":"legacy","namespace":"shop"},"spec":{"expiresAt":"2026-11-22T12:00:00Z"}},
{"apiVersion":"gatehouse.dev/v1alpha1","kind":"PolicyException","metadata":{"name":"later","namespace":"shop"},"spec":{"expiresAt":"2027-11-22T12:00:00Z"}}`

const degraded = `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionPolicy","metadata":{"name":"limits"},"status":{"conditions":[{"type":"Ready","status":"False","reason":"Invalid","message":"it does not <b>compile</b>"},{"type":"Degraded","status":"True","reason":"X","message":"an older one is active"}]}},
{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionPolicy","metadata":{"name":"fine"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`

const accessTokens = `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessToken","metadata":{"name":"ci","generation":1,"uid":"1"},"spec":{"sha256":"5555555555555555555555555555555555555555555555555555555555555555","user":{"username":"ci-bot","groups":["a","b"]},"expiresAt":"2026-11-21T12:00:00Z"}},
{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AccessToken","metadata":{"name":"old","generation":1,"uid":"2"},"spec":{"sha256":"6666666666666666666666666666666666666666666666666666666666666666","user":{"username":"old-bot"},"expiresAt":"2026-01-21T12:00:00Z"}}`

const revocations = `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"TokenRevocation","metadata":{"name":"r1","generation":1,"uid":"3"},"spec":{"user":"eve","issuedBefore":"2026-11-01T00:00:00Z","reason":"left"}}`

// TestOverviewCluster loads the parts of the page as a user with all rights but those on Secrets and webhook configurations.
func TestOverviewCluster(t *testing.T) {
	t.Parallel()
	s := replicastest.NewAPIServer(t, map[string]http.Handler{"gatehouse-a": opsServer(t, metricsA), "gatehouse-b": opsServer(t, metricsB)})
	const api = "/apis/gatehouse.dev/v1alpha1/"
	serveObjects(s, map[string]string{
		api + "admissionpolicies": degraded, api + "admissionpolicybindings": "", api + "sidecarprofiles": "", api + "policyexceptions": expiring,
		api + "accesstokens": accessTokens, api + "tokenrevocations": revocations,
	})
	p := newOverview(t, clusterFlags(t, s))
	if shell := p.get("/"); !strings.Contains(shell, `hx-get="/overview/attention/part" hx-trigger="load, every 60s"`) || !strings.Contains(shell, `<a href="/overview/attention">`) {
		t.Errorf("the page without its parts: %s", shell)
	}
	p.expect("/overview/replicas/part", []string{
		"gatehouse-a", "gatehouse-b", `not ready: Running`, "v1.2.3", ">aaaaaaaaaaaa<", "differs", "a newer one has errors", "2026-11-20T12:00:00Z", `<td class="bad"><bdi>not ready: Pending`,
	}, "<html")
	p.expect("/overview/replicas", []string{"<html", "gatehouse-a"})
	p.expect("/overview/attention/part", []string{
		"AdmissionPolicy limits", "is not active: it does not &lt;b&gt;compile", "is degraded: an older one is active", "PolicyException shop/legacy", "expires in 2 days", "1 token will expire within 7 days",
		"the serving certificate ends at 2026-11-20T18:40:00Z", "has not recorded 4 reviews", "its newest configuration has errors", "ValidatingWebhookConfiguration, name gatehouse",
	}, "shop/later", "fine", "missing")
	p.expect("/overview/alerts/part", []string{"GatehouseConfigurationsDiffer", "GatehouseNotTrusted", "if this is so for 10m", "GatehouseRotationIsStuck", "if this is so for 2h", "need Prometheus"}, "GatehouseRecordingFails")
	p.expect("/overview/reviews/part", []string{"The first numbers a minute come after 15 seconds", "34"}, "<polyline")
	p.expect("/overview/certificates/part", []string{
		"serving certificate", "ends soon", "Hold: gatehouse-a", "the right to get secrets is missing: Secret gatehouse-system/gatehouse-ca", "the right to list leases is missing", "the right to get mutatingwebhookconfigurations.admissionregistration.k8s.io is missing", "certs status --kubeconfig",
	})
	p.expect("/login/tokens/part", []string{"ci-bot", "expires in 1 day", ">2</td>", "old-bot", "expired"}, strings.Repeat("5", 16), strings.Repeat("6", 16))
	p.expect("/login/revocations/part", []string{"eve", "left", "2026-11-01T00:00:00Z"})
	p.expect("/login/whoami/part", []string{"<bdi>t</bdi>", "the kubeconfig has no address of Gatehouse"})
	p.expect("/login/trust/part", []string{"ValidatingWebhookConfiguration/gatehouse", "cannot decide"})
	p.expect("/login/issuers/part", []string{"https://issuer.example/&lt;script&gt;", "0: no token can be verified", "2026-11-20T11:50:00Z (10m ago)"}, "<script>")
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
		forward, "the right to list admissionpolicies.gatehouse.dev is missing", "the right to list policyexceptions.gatehouse.dev in namespace shop is missing", "the right to list accesstokens.gatehouse.dev is missing",
	}, "Nothing.</p>")
	p.expect("/login/tokens/part", []string{"the right to list accesstokens.gatehouse.dev is missing"}, "There is none")
	p.expect("/login/revocations/part", []string{"the right to list tokenrevocations.gatehouse.dev is missing"})
	p.lookAtRecordings()
	support.Eventually(t, "the recordings are read", func() error {
		if state := p.mirror.mirror.State(); state.Segments != 1 {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
	p.expect("/overview/recording/part", []string{"Not read: " + forward, "Recordings of 1 of 2 replicas: 1 segment"})
	p.expect("/decisions", []string{"Not read: " + forward, `hx-trigger="every `})
}

// TestOverviewNoCluster shows a cluster that cannot be reached.
func TestOverviewNoCluster(t *testing.T) {
	t.Parallel()
	s := replicastest.NewAPIServer(t, nil)
	f := clusterFlags(t, s)
	s.Close()
	p := newOverview(t, f)
	for _, name := range []string{"attention", "replicas", "reviews", "certificates", "recording", "alerts"} {
		p.expect("/overview/"+name+"/part", []string{"connection refused", `class="note notice"`})
	}
	for _, name := range []string{"issuers", "tokens", "revocations", "trust"} {
		p.expect("/login/"+name+"/part", []string{"connection refused", `notice"`})
	}
}

// TestOverviewConfiguration shows a directory without a cluster.
func TestOverviewConfiguration(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"exceptions.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: PolicyException\nmetadata: {name: legacy, namespace: shop}\nspec:\n  policies: [{name: none}]\n  match: {names: [a]}\n  reason: until the move\n  expiresAt: 2026-11-23T12:00:00Z\n",
		"revocation.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: TokenRevocation\nmetadata: {name: r1}\nspec: {user: eve, issuedBefore: 2026-11-01T00:00:00Z}\n",
		"issuers.yaml":    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: https://issuer.example, audiences: [kubernetes]}\n  claimMappings:\n    username: {claim: sub, prefix: 'oidc:'}\n    groups: {expression: 'claims.roles'}\n",
	})
	p := newOverview(t, flags{config: dir})
	p.expect("/", []string{"/overview/configuration/part"}, "/overview/replicas")
	p.expect("/overview/configuration/part", []string{"<dd>3 in 3 files</dd>", "shop/legacy", "expires in 3 days", "until the move", "lint --config"})
	p.expect("/login/sources/part", []string{"https://issuer.example", "kubernetes", "username = &#34;oidc:&#34; and the claim sub", "groups = claims.roles"})
	p.expect("/login/revocations/part", []string{"eve"})
	p.expect("/login/tokens/part", []string{"There is none", "token list --config"})
	if p.mirrorText() != nil || p.isMirrored() {
		t.Error("there is a mirror without a cluster")
	}
}

// TestOverviewRecordings shows recordings without a cluster.
func TestOverviewRecordings(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	w, err := record.NewWriter(&file, &record.Header{Format: record.FormatVersion, Source: record.FromServer, Replica: "a", Started: noon(), Sampling: "all"})
	if err != nil {
		t.Fatal(err)
	}
	for i, decision := range []review.Decision{review.Allowed, review.Denied, review.Allowed} {
		if err := w.Write(&record.Line{Review: &record.Review{
			ID: fmt.Sprint(i), Time: noon().Add(time.Duration(i) * time.Hour), Endpoint: "validate", Decision: decision,
			Request: json.RawMessage(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"version":"v1","kind":"Pod"},"name":"cart","namespace":"shop","operation":"CREATE","userInfo":{"username":"joe"}}}`),
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := writeFiles(t, map[string]string{"1-a.gatehouse.zst": file.String(), "2-b.gatehouse.zst": "no recording"})
	p := newOverview(t, flags{recordings: []string{dir}})
	support.Eventually(t, "the recordings are read", func() error {
		if state := p.index.State(); !state.Ready || len(state.Problems) == 0 {
			return fmt.Errorf("%+v", state)
		}
		return nil
	})
	p.expect("/", []string{"/overview/recordings/part"}, "/overview/replicas", "/overview/configuration")
	p.expect("/overview/recordings/part", []string{
		"<dd>3</dd>", "2026-11-20T12:00:00Z to 2026-11-20T14:00:00Z", `<a href="/decisions">`, `<rect class="bad"`, "1-a.gatehouse.zst", "complete", "is no recording", "record show",
	})
}

func TestRates(t *testing.T) {
	t.Parallel()
	o := &observer{now: noon}
	at := func(seconds int, reviews map[string]map[string]float64) {
		o.points = append(o.points, point{noon().Add(time.Duration(seconds) * time.Second), reviews})
	}
	at(0, map[string]map[string]float64{"a": {"allowed": 10}, "b": {"allowed": 100}})
	at(30, map[string]map[string]float64{"a": {"allowed": 20, "denied": 1}, "b": {"allowed": 4}, "new": {"allowed": 1000}})
	at(60, map[string]map[string]float64{"a": {"allowed": 20, "denied": 1}})
	var out bytes.Buffer
	for _, r := range o.rates() {
		fmt.Fprintf(&out, "%s %v %g\n", r.At.Format(time.TimeOnly), r.By, r.Total)
	}
	if got, want := out.String(), "12:00:30 map[allowed:28 denied:2] 30\n12:01:00 map[allowed:0 denied:0] 0\n"; got != want {
		t.Errorf("rates\n%s\nwant\n%s", got, want)
	}
	for range 300 {
		o.keep(testSample(t, `gatehouse_reviews_total{decision="allowed"} 1`))
	}
	if len(o.points) != maxPoints {
		t.Errorf("%d points are kept", len(o.points))
	}
	if l := newLine("allowed", "good", []float64{0, 5, 10}); l.Points != "0.0,38.0 120.0,20.0 240.0,2.0" || l.Last != 10 || l.Most != 10 {
		t.Errorf("%+v", l)
	}
}
