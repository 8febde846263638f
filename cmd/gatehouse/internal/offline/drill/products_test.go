package drill

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestProducts has what well-known products would stop, as their charts install them.
func TestProducts(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"cert-manager":                 "one-replica",
		"istio":                        "one-replica",
		"linkerd":                      "one-replica",
		"linkerd-ha":                   "new-pods",
		"kyverno":                      "access-reviews api-server-start leases new-pods nodes one-replica tokens wildcard",
		"kyverno-without-exclusions":   "access-reviews api-server-start leases new-pods no-selector nodes one-replica own-namespace own-pods system-pods tokens wildcard",
		"gatekeeper":                   "",
		"gatekeeper-fail":              "access-reviews api-server-start leases new-pods nodes system-pods tokens wildcard",
		"opa":                          "one-replica slow-leases",
		"vault":                        "one-replica",
		"datadog":                      "one-replica",
		"ingress-nginx":                "no-selector one-replica",
		"keda":                         "api-service one-replica",
		"aws-load-balancer-controller": "no-budget",
		"external-secrets":             "one-replica",
		"crossplane":                   "one-replica wildcard",
		"knative":                      "one-replica",
		"kube-prometheus-stack":        "one-replica",
		"opentelemetry-operator":       "one-replica",
		"longhorn":                     "conversion",
		"cloudnative-pg":               "one-replica",
		"cluster-api":                  "conversion one-replica",
		"metallb":                      "one-replica",
		"consul":                       "new-pods one-replica",
		"dapr":                         "one-replica",
		"kueue":                        "no-selector one-replica own-namespace",
		"vertical-pod-autoscaler":      "one-replica",
		"metrics-server":               "api-service one-replica",
		"metadata-injection":           "one-replica",
	}
	archive, err := txtar.ParseFile("testdata/products.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range archive.Files {
		t.Run(file.Name, func(t *testing.T) {
			t.Parallel()
			r := run(t, clusterOf(t, string(file.Data)))
			expected, known := want[file.Name]
			if got := codes(r); got != expected || !known || len(r.Unknown) > 0 {
				t.Errorf("got  %q\nwant %q\nunknown %q", got, expected, r.Unknown)
			}
		})
		all = append(all, string(file.Data))
	}
	if len(archive.Files) != len(want) {
		t.Errorf("%d products, %d expected", len(archive.Files), len(want))
	}
	// Together in one cluster, but for variants of one product.
	for _, dropped := range []string{"linkerd-ha", "kyverno-without-exclusions", "gatekeeper-fail"} {
		i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == dropped })
		all[i] = `{apiVersion: v1, kind: Namespace, metadata: {name: ` + dropped + `}}`
	}
	r := run(t, clusterOf(t, strings.Join(all, "\n---\n")))
	if got := codes(r); !strings.Contains(got, "slow-requests") || !strings.Contains(got, "order") || !strings.Contains(got, "mutual-dependence") {
		t.Errorf("together: %s", got)
	}
	if len(r.Cycles) == 0 {
		t.Error("no cycle")
	}
	for _, c := range r.Cycles {
		t.Log(c)
	}
}
