// Package monitoring looks at the files for Prometheus and Grafana as those who are woken by them do: that every series
// that they read exists, and that each alert leads to a page that says what to do.
package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const (
	root     = "../.."
	rules    = root + "/manifests/monitoring/prometheusrule.yaml"
	board    = root + "/manifests/monitoring/dashboard.json"
	runbooks = root + "/docs/runbooks.md"
	deadline = time.Minute
)

// alert is one of the rules.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Spec struct {
			Groups []struct {
				Rules []alert `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	must(t, yaml.UnmarshalStrict(removed(t, read(t, rules)), &file))
	var list []alert
	for _, group := range file.Spec.Groups {
		list = append(list, group.Rules...)
	}
	if len(list) < 30 {
		t.Fatalf("%s has %d alerts", rules, len(list))
	}
	return list
}

// removed is the file without what is Kubernetes' and without names of groups, so that a misspelt field of a rule shows.
func removed(t *testing.T, text string) []byte {
	t.Helper()
	var object map[string]any
	must(t, yaml.Unmarshal([]byte(text), &object))
	if object["apiVersion"] != "monitoring.coreos.com/v1" || object["kind"] != "PrometheusRule" {
		t.Fatalf("%s is a %v of %v", rules, object["kind"], object["apiVersion"])
	}
	spec, _ := object["spec"].(map[string]any)
	groups, _ := spec["groups"].([]any)
	for _, group := range groups {
		g, _ := group.(map[string]any)
		delete(g, "name")
	}
	out, err := yaml.Marshal(map[string]any{"spec": spec})
	must(t, err)
	return out
}

// query is an expression and where it is from.
type query struct{ where, expr string }

// dashboard are the queries of the dashboard.
func dashboard(t *testing.T) []query {
	t.Helper()
	var file struct {
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			GridPos struct {
				X, Y, W, H int
			} `json:"gridPos"`
			Datasource struct {
				UID string `json:"uid"`
			} `json:"datasource"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	must(t, json.Unmarshal([]byte(read(t, board)), &file))
	var (
		list  []query
		rows  []string
		ids   = map[int]bool{}
		taken = map[[2]int]string{}
	)
	for _, p := range file.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" {
					t.Fatalf("the panels %q and %q overlap", other, p.Title)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q reads the data source %q", p.Title, p.Datasource.UID)
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			list = append(list, query{"panel " + p.Title, target.Expr})
		}
	}
	want := []string{"Traffic", "Decisions", "Latency", "Injection", "Policy", "Authentication", "Certificates", "Resources"}
	if !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	return list
}

// queries are all expressions of the files.
func queries(t *testing.T) []query {
	t.Helper()
	list := dashboard(t)
	for _, a := range alerts(t) {
		list = append(list, query{"alert " + a.Alert, a.Expr})
	}
	return list
}

type (
	parts struct {
		Error                string `json:"error"`
		Selectors, Groupings []selector
	}
	selector struct{ Metrics, Labels []string }
)

// taken takes expressions apart, with Prometheus' own parser.
func taken(t *testing.T, list []query) []parts {
	t.Helper()
	var texts []string
	for _, q := range list {
		texts = append(texts, ofGrafana(q.expr))
	}
	return promql[parts](t, "parts", texts)
}

// ofGrafana is a query with what Grafana puts in the place of its variables.
func ofGrafana(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(expr)
}

// TestSeriesExist looks for every metric and label that an alert or a panel reads: among those of the program that runs
// and in its source, and of an API server that has met webhooks that do not answer.
func TestSeriesExist(t *testing.T) {
	t.Parallel()
	list := queries(t)
	known := declared(t)
	running := exposed(ofGatehouse(t))
	for name, labels := range running {
		if strings.HasPrefix(name, "gatehouse_") {
			if known[name] == nil {
				t.Errorf("the source seems not to have %s, which the program exposes: this test reads it wrongly", name)
			}
			for label := range labels {
				if !known[name][label] {
					t.Errorf("the source seems not to have the label %s of %s: this test reads it wrongly", label, name)
				}
			}
			continue
		}
		known.add(name, sorted(labels)...)
	}
	for name, labels := range exposed(ofAPIServer(t)) {
		if strings.HasPrefix(name, "apiserver_") {
			known.add(name, sorted(labels)...)
		}
	}
	for name, labels := range others() {
		known.add(name, sorted(labels)...)
	}
	// Prometheus and its operator add these to what they scrape.
	ofTargets := []string{"instance", "job", "namespace"}
	for i, p := range taken(t, list) {
		q := list[i]
		if p.Error != "" {
			t.Errorf("%s: %s: %s", q.where, q.expr, p.Error)
		}
		has := func(metric, label string) bool { return slices.Contains(ofTargets, label) || known[metric][label] }
		for _, s := range p.Selectors {
			for _, metric := range s.Metrics {
				if known[metric] == nil {
					t.Errorf("%s: nothing exposes %s", q.where, metric)
					continue
				}
				for _, label := range s.Labels {
					if !has(metric, label) {
						t.Errorf("%s: %s has no label %s", q.where, metric, label)
					}
				}
			}
		}
		for _, g := range p.Groupings {
			for _, label := range g.Labels {
				if !slices.ContainsFunc(g.Metrics, func(metric string) bool { return has(metric, label) }) {
					t.Errorf("%s: none of %q has the label %s, by which it groups", q.where, g.Metrics, label)
				}
			}
		}
	}
}

var (
	labelOf = regexp.MustCompile(`\$labels\.([a-z_]+)`)
	heading = regexp.MustCompile(`(?m)^### (Gatehouse\w+)$`)
	linked  = regexp.MustCompile(`\]\(([a-z-]+\.md)?#([a-z-]+)\)`)
)

// TestAlerts have what whoever is woken needs: what it is, with numbers, and a page.
func TestAlerts(t *testing.T) {
	t.Parallel()
	list := alerts(t)
	var asked []query
	for _, a := range list {
		asked = append(asked, query{"alert " + a.Alert, a.Expr})
	}
	page := read(t, runbooks)
	var sections, names []string
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		sections = append(sections, m[1])
	}
	for i, p := range taken(t, asked) {
		a := list[i]
		names = append(names, a.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: the severity is %q", a.Alert, a.Labels["severity"])
		}
		summary, description := a.Annotations["summary"], a.Annotations["description"]
		if summary == "" || strings.Contains(summary, "{{") {
			t.Errorf("%s: the summary is %q, which must be the same for all of its series", a.Alert, summary)
		}
		if !strings.Contains(description, "$value") && !strings.HasPrefix(a.Expr, "absent(") && !strings.HasSuffix(a.Expr, "== 0") && !strings.HasSuffix(a.Expr, "== 1") {
			t.Errorf("%s: the description has no number: %q", a.Alert, description)
		}
		if want := "https://github.com/gatehouse-dev/gatehouse/blob/main/docs/runbooks.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", a.Alert, a.Annotations["runbook_url"], want)
		}
		// What is grouped has the labels of the group only.
		for _, m := range labelOf.FindAllStringSubmatch(description, -1) {
			grouped := strings.Contains(a.Expr, " by (")
			if grouped && !slices.ContainsFunc(p.Groupings, func(g selector) bool { return slices.Contains(g.Labels, m[1]) }) &&
				!slices.ContainsFunc(list, func(b alert) bool { return b.Alert == a.Alert && b.Expr != a.Expr }) {
				t.Errorf("%s: the description has the label %s, by which nothing is grouped", a.Alert, m[1])
			}
		}
	}
	names = slices.Compact(names)
	if !slices.Equal(names, sections) {
		t.Errorf("the alerts are\n%q\nand the sections of %s\n%q", names, runbooks, sections)
	}
	for section := range strings.SplitSeq(page, "\n### ") {
		if name, _, _ := strings.Cut(section, "\n"); slices.Contains(names, name) {
			for _, part := range []string{"\n**Meaning** (", "\n**For users**: ", "\n**Check**:\n", "\n**Mend**: ", "\n**Silence**: "} {
				if strings.Count(section, part) != 1 {
					t.Errorf("the section %s has %q %d times", name, strings.TrimSpace(part), strings.Count(section, part))
				}
			}
		}
	}
	for _, m := range linked.FindAllStringSubmatch(page, -1) {
		target := page
		if m[1] != "" {
			target = read(t, filepath.Join(filepath.Dir(runbooks), m[1]))
		}
		if !slices.Contains(anchors(target), m[2]) {
			t.Errorf("%s links to %s#%s, which is not there", runbooks, m[1], m[2])
		}
	}
}

// anchors are those of a page's headings, as GitHub makes them.
func anchors(page string) []string {
	var list []string
	for line := range strings.Lines(page) {
		if text, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && strings.HasPrefix(line, "#") {
			text = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), "")
			list = append(list, strings.ReplaceAll(text, " ", "-"))
		}
	}
	return list
}

// start starts a server, with further flags.
func start(t *testing.T, flags ...string) *gatehouse.Server {
	t.Helper()
	server, err := gatehouse.Start(t.Context(), filepath.Join(t.TempDir(), "log"), append([]string{
		"--config", root + "/manifests/examples/log-shipper", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--self-signed", "127.0.0.1", "--drain-delay", "0s",
	}, flags...)...)
	must(t, err)
	t.Cleanup(server.Kill)
	return server
}

// ofGatehouse are the metrics of a server that has just started.
func ofGatehouse(t *testing.T) string {
	t.Helper()
	_, text, err := start(t, "--tracing-endpoint", "http://127.0.0.1:1", "--record", filepath.Join(t.TempDir(), "recording")).Get(t.Context(), "/metrics")
	must(t, err)
	return text
}

// ofAPIServer are the metrics of an API server that has asked two webhooks in vain.
func ofAPIServer(t *testing.T) string {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	client := c.Client()
	webhook := func(name, resource string, policy admissionregistrationv1.FailurePolicyType) admissionregistrationv1.ValidatingWebhook {
		none, url := admissionregistrationv1.SideEffectClassNone, "https://127.0.0.1:1/validate"
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, FailurePolicy: &policy, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}},
		}
	}
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gatehouse"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			webhook("ignore.validate.gatehouse.dev", "configmaps", admissionregistrationv1.Ignore),
			webhook("fail.validate.gatehouse.dev", "secrets", admissionregistrationv1.Fail),
		},
	}, metav1.CreateOptions{})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for i := 0; ; i++ {
		name := metav1.ObjectMeta{Name: fmt.Sprintf("a%d", i), Namespace: "default"}
		_, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: name}, metav1.CreateOptions{})
		refused := err != nil && strings.Contains(err.Error(), "failed calling webhook")
		_, err = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: name}, metav1.CreateOptions{})
		must(t, err)
		text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		must(t, err)
		if refused && bytes.Contains(text, []byte("apiserver_admission_webhook_fail_open_count{")) {
			return string(text)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
