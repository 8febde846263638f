package install

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// templated renders the chart with values as --set-json takes them, and returns what helm says if it refuses.
func templated(t *testing.T, values ...string) (refused string) {
	t.Helper()
	program, err := support.Built("installers", "installers", "helm")
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
	workload := func(fields string) string {
		return `policyConfiguration={"workloads":[{"group":"argoproj.io","kind":"Rollout","resource":"rollouts",` + fields + `}]}`
	}
	const (
		grace   = "terminationGracePeriodSeconds 60: must be at least drainDelay"
		egress  = "networkPolicy.egress: no rule allows the API server"
		pattern = "does not match pattern"
	)
	for what, c := range map[string]struct {
		values []string
		want   string
	}{
		"drain that just fits":                    {[]string{`drainDelay="25s"`}, ""},
		"drain that does not":                     {[]string{`drainDelay="26s"`}, grace},
		"drain in several units, too long":        {[]string{`drainDelay="1m0.5s501ms"`, `terminationGracePeriodSeconds=96`}, "terminationGracePeriodSeconds 96"},
		"egress without a restriction":            {[]string{`networkPolicy.egress=[{"to":[{"ipBlock":{"cidr":"192.0.2.0/24"}}]}]`}, ""},
		"egress to the API server":                {[]string{`networkPolicy.egress=[{"ports":[{"port":53,"protocol":"UDP"}]},{"ports":[{"port":6443}]}]`}, ""},
		"egress to DNS alone":                     {[]string{`networkPolicy.egress=[{"ports":[{"port":53,"protocol":"UDP"},{"port":53}]}]`}, egress},
		"field of no PolicyConfiguration":         {[]string{`policyConfiguration={"exceptionz":{}}`}, "additional properties 'exceptionz' not allowed"},
		"workload without a template":             {[]string{workload(`"resource":"rollouts"`)}, "missing property 'template'"},
		"workload's template with its spec":       {[]string{workload(`"template":"spec.template.spec"`)}, "hint: spec.template)"},
		"collector with a password":               {[]string{`tracing.endpoint="http://a:b@collector:4318"`}, pattern},
		"class of the system, made":               {[]string{`priorityClass.name="system-cluster-critical"`}, `"system-cluster-critical": must not begin with system-`},
		"class of the system":                     {[]string{`priorityClass={"name":"system-cluster-critical","create":false}`}, ""},
		"label of all that is the chart's":        {[]string{`commonLabels={"helm.sh/chart":"x"}`}, `commonLabels: the label "helm.sh/chart" is set by the chart`},
		"recording that just fits its emptyDir":   {[]string{recordingOn, `recording.maxBytes="8Gi"`, `recording.emptyDir.sizeLimit="9Gi"`}, ""},
		"recording that fills its emptyDir":       {[]string{recordingOn, `recording.maxBytes="8Gi"`, `recording.emptyDir.sizeLimit="9215Mi"`}, "recording.emptyDir.sizeLimit 9215Mi: must be at least 9/8 of recording.maxBytes, which is 8Gi"},
		"recording that fills its claim":          {[]string{recordingOn, `recording.maxBytes="2Gi"`, `recording.persistence.enabled=true`}, "recording.persistence.size 2Gi: must be at least"},
		"recording in a claim of an unknown size": {[]string{recordingOn, `recording.maxBytes="1Ti"`, `recording.persistence={"enabled":true,"existingClaim":"mine"}`}, ""},
		"field of no RecordingConfiguration":      {[]string{`recording.config={"samples":{}}`}, "additional properties 'samples' not allowed"},
		"network of the node":                     {[]string{`hostNetwork=true`}, ""},
		"network of the node without its policy":  {[]string{`hostNetwork=true`, `networkPolicy.egress=[{"ports":[{"port":443}]}]`}, "networkPolicy.egress: has no effect with hostNetwork"},
		"port for two":                            {[]string{`ports.ops=9443`}, "ports.ops 9443: must differ from ports.reviews"},
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
