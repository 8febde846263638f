package install

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/installers"
)

// templated renders the chart with values as --set-json takes them, and returns what helm says if it refuses.
func templated(t *testing.T, values ...string) (refused string) {
	t.Helper()
	program, err := installers.Binary(installers.Helm)
	must(t, err)
	args := []string{"template", name, filepath.Join(root(t), chart), "--namespace", system}
	for _, value := range values {
		args = append(args, "--set-json", value)
	}
	command := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	command.Env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_CACHE_HOME=" + home, "XDG_DATA_HOME=" + home}
	output, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	return string(output)
}

// TestChartRefuses: values that would lock a cluster, or a Gatehouse that never works, are refused with a reason, and those
// next to them are not.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	extra := func(group, resource string) string {
		return `webhooks.validate.extraRules=[{"apiGroups":["` + group + `"],"apiVersions":["*"],"operations":["CREATE"],"resources":["` + resource + `"]}]`
	}
	const (
		grace   = "terminationGracePeriodSeconds 60: must be at least drainDelay"
		locks   = "must not fail closed"
		egress  = "networkPolicy.egress: no rule lets Gatehouse call the API server"
		pattern = "does not match pattern"
	)
	for what, c := range map[string]struct {
		values []string
		want   string
	}{
		"drain that just fits":               {[]string{`drainDelay="25s"`}, ""},
		"drain that does not":                {[]string{`drainDelay="26s"`}, grace},
		"drain in several units":             {[]string{`drainDelay="1m0.5s500ms"`, `terminationGracePeriodSeconds=96`}, ""},
		"drain in several units, too long":   {[]string{`drainDelay="1m0.5s501ms"`, `terminationGracePeriodSeconds=96`}, "terminationGracePeriodSeconds 96"},
		"milliseconds":                       {[]string{`drainDelay="25000ms"`}, ""},
		"egress without a restriction":       {[]string{`networkPolicy.egress=[{"to":[{"ipBlock":{"cidr":"192.0.2.0/24"}}]}]`}, ""},
		"egress to the API server":           {[]string{`networkPolicy.egress=[{"ports":[{"port":53,"protocol":"UDP"}]},{"ports":[{"port":6443}]}]`}, ""},
		"egress to a range":                  {[]string{`networkPolicy.egress=[{"ports":[{"port":1,"endPort":1024}]}]`}, ""},
		"egress to DNS alone":                {[]string{`networkPolicy.egress=[{"ports":[{"port":53,"protocol":"UDP"},{"port":53}]}]`}, egress},
		"egress by UDP":                      {[]string{`networkPolicy.egress=[{"ports":[{"port":443,"protocol":"UDP"}]}]`}, egress},
		"rule about services":                {[]string{extra("", "services")}, ""},
		"rule about scale":                   {[]string{extra("apps", "deployments/scale")}, ""},
		"rule about nodes of another group":  {[]string{extra("metrics.k8s.io", "nodes")}, ""},
		"rule about all groups":              {[]string{extra("*", "services")}, "/webhooks/validate/extraRules/0/apiGroups/0"},
		"rule about everything":              {[]string{extra("", "*")}, pattern},
		"rule about subresources":            {[]string{extra("", "pods/*")}, pattern},
		"rule about a status":                {[]string{extra("apps", "deployments/status")}, "/webhooks/validate/extraRules/0/resources/0"},
		"rule about nodes":                   {[]string{extra("", "nodes")}, locks},
		"rule about a subresource of nodes":  {[]string{extra("", "nodes/proxy")}, locks},
		"rule about evictions":               {[]string{extra("", "pods/eviction")}, locks},
		"rule about tokens of workloads":     {[]string{extra("", "serviceaccounts/token")}, locks},
		"rule about endpoint slices":         {[]string{extra("discovery.k8s.io", "endpointslices")}, locks},
		"rule about leases":                  {[]string{extra("coordination.k8s.io", "leases")}, locks},
		"rule about definitions":             {[]string{extra("apiextensions.k8s.io", "customresourcedefinitions")}, locks},
		"rule about webhook configurations":  {[]string{extra("admissionregistration.k8s.io", "validatingwebhookconfigurations")}, locks},
		"rule about aggregated API services": {[]string{extra("apiregistration.k8s.io", "apiservices")}, locks},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			got := templated(t, c.values...)
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("helm says %q, want %q", got, c.want)
			}
		})
	}
}
