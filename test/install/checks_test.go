package install

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support/installers"
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
	rule := func(fields string) string {
		return `webhooks.validate.extraRules=[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["services"]` + fields + `}]`
	}
	workload := func(fields string) string {
		return `policyConfiguration={"workloads":[{"group":"argoproj.io","kind":"Rollout","resource":"rollouts",` + fields + `}]}`
	}
	const (
		grace   = "terminationGracePeriodSeconds 60: must be at least drainDelay"
		locks   = "must not fail closed"
		egress  = "networkPolicy.egress: no rule allows the API server"
		pattern = "does not match pattern"
	)
	for what, c := range map[string]struct {
		values []string
		want   string
	}{
		"drain that just fits":                    {[]string{`drainDelay="25s"`}, ""},
		"drain that does not":                     {[]string{`drainDelay="26s"`}, grace},
		"drain in several units":                  {[]string{`drainDelay="1m0.5s500ms"`, `terminationGracePeriodSeconds=96`}, ""},
		"drain in several units, too long":        {[]string{`drainDelay="1m0.5s501ms"`, `terminationGracePeriodSeconds=96`}, "terminationGracePeriodSeconds 96"},
		"milliseconds":                            {[]string{`drainDelay="25000ms"`}, ""},
		"egress without a restriction":            {[]string{`networkPolicy.egress=[{"to":[{"ipBlock":{"cidr":"192.0.2.0/24"}}]}]`}, ""},
		"egress to the API server":                {[]string{`networkPolicy.egress=[{"ports":[{"port":53,"protocol":"UDP"}]},{"ports":[{"port":6443}]}]`}, ""},
		"egress to a range":                       {[]string{`networkPolicy.egress=[{"ports":[{"port":1,"endPort":1024}]}]`}, ""},
		"egress to DNS alone":                     {[]string{`networkPolicy.egress=[{"ports":[{"port":53,"protocol":"UDP"},{"port":53}]}]`}, egress},
		"egress by UDP":                           {[]string{`networkPolicy.egress=[{"ports":[{"port":443,"protocol":"UDP"}]}]`}, egress},
		"rule about services":                     {[]string{extra("", "services")}, ""},
		"rule about scale":                        {[]string{extra("apps", "deployments/scale")}, ""},
		"rule about nodes of another group":       {[]string{extra("metrics.k8s.io", "nodes")}, ""},
		"rule about all groups":                   {[]string{extra("*", "services")}, "/webhooks/validate/extraRules/0/apiGroups/0': '*' does not match pattern"},
		"rule about everything":                   {[]string{extra("", "*")}, pattern},
		"rule about subresources":                 {[]string{extra("", "pods/*")}, pattern},
		"rule about a status":                     {[]string{extra("apps", "deployments/status")}, locks},
		"rule about nodes":                        {[]string{extra("", "nodes")}, locks},
		"rule about a subresource of nodes":       {[]string{extra("", "nodes/proxy")}, locks},
		"rule about evictions":                    {[]string{extra("", "pods/eviction")}, locks},
		"rule about tokens of workloads":          {[]string{extra("", "serviceaccounts/token")}, locks},
		"rule about endpoint slices":              {[]string{extra("discovery.k8s.io", "endpointslices")}, locks},
		"rule about leases":                       {[]string{extra("coordination.k8s.io", "leases")}, locks},
		"rule about definitions":                  {[]string{extra("apiextensions.k8s.io", "customresourcedefinitions")}, locks},
		"rule about webhook configurations":       {[]string{extra("admissionregistration.k8s.io", "validatingwebhookconfigurations")}, locks},
		"rule about aggregated API services":      {[]string{extra("apiregistration.k8s.io", "apiservices")}, locks},
		"rule with a scope":                       {[]string{rule(`,"scope":"Namespaced"`)}, ""},
		"rule with a scope that is none":          {[]string{rule(`,"scope":"Namespace"`)}, "must be one of 'Namespaced', 'Cluster', '*'"},
		"rule with a field that is none":          {[]string{rule(`,"apiGroup":"apps"`)}, "additional properties 'apiGroup' not allowed"},
		"rule without most of it":                 {[]string{`webhooks.validate.extraRules=[{"resources":["services"]}]`}, "missing properties 'apiGroups', 'apiVersions', 'operations'"},
		"rule without any group":                  {[]string{rule(`,"apiGroups":[]`)}, "/webhooks/validate/extraRules/0/apiGroups"},
		"rule about an operation of no name":      {[]string{rule(`,"operations":["CREAT"]`)}, "must be one of 'CREATE', 'UPDATE', 'DELETE', 'CONNECT', '*'"},
		"rule about a version that is none":       {[]string{rule(`,"apiVersions":["1"]`)}, pattern},
		"field of no PolicyConfiguration":         {[]string{`policyConfiguration={"exceptionz":{}}`}, "additional properties 'exceptionz' not allowed"},
		"kind of a PolicyConfiguration":           {[]string{`policyConfiguration={"kind":"PolicyConfiguration"}`}, "additional properties 'kind' not allowed"},
		"field of no ExceptionRules":              {[]string{`policyConfiguration={"exceptions":{"namespace":[]}}`}, "additional properties 'namespace' not allowed"},
		"version of CEL that is a number":         {[]string{`policyConfiguration={"celCompatibilityVersion":1.36}`}, "got number, want string"},
		"nothing to spend":                        {[]string{`policyConfiguration={"requestCostBudget":0}`}, "/policyConfiguration/requestCostBudget"},
		"workload":                                {[]string{workload(`"template":"spec.template"`)}, ""},
		"workload without a template":             {[]string{workload(`"resource":"rollouts"`)}, "missing property 'template'"},
		"workload that is a resource":             {[]string{workload(`"template":"spec.template","kind":"rollout"`)}, pattern},
		"workload's template with its spec":       {[]string{workload(`"template":"spec.template.spec"`)}, "hint: spec.template)"},
		"workload's template in a list":           {[]string{workload(`"template":"spec.templates[0]"`)}, pattern},
		"collector":                               {[]string{`tracing.endpoint="https://collector.monitoring:4318/v1/traces"`}, ""},
		"collector without a scheme":              {[]string{`tracing.endpoint="collector:4318"`}, pattern},
		"collector with a password":               {[]string{`tracing.endpoint="http://a:b@collector:4318"`}, pattern},
		"address":                                 {[]string{`service.clusterIP="10.96.0.10"`}, ""},
		"address of IPv6":                         {[]string{`service.clusterIP="fd00::a"`}, ""},
		"address that is none":                    {[]string{`service.clusterIP="foo"`}, "'foo' is not valid ipv4"},
		"class of the system, made":               {[]string{`priorityClass.name="system-cluster-critical"`}, `"system-cluster-critical": must not begin with system-`},
		"class of the system":                     {[]string{`priorityClass={"name":"system-cluster-critical","create":false}`}, ""},
		"no class":                                {[]string{`priorityClass={"name":"","create":false}`}, ""},
		"label":                                   {[]string{`commonLabels={"team":"a"}`, `podLabels={"tier":"b"}`}, ""},
		"label of all that is the chart's":        {[]string{`commonLabels={"helm.sh/chart":"x"}`}, `commonLabels: the label "helm.sh/chart" is set by the chart`},
		"label of pods that is the chart's":       {[]string{`podLabels={"app.kubernetes.io/name":"x"}`}, `podLabels: the label "app.kubernetes.io/name" is set by the chart`},
		"recording without a key and a cluster":   {[]string{recordingOn}, "recording.keySecret: needed without access to the cluster"},
		"recording with a key":                    {[]string{recordingOn, recordingKey}, ""},
		"recording that just fits its emptyDir":   {[]string{recordingOn, recordingKey, `recording.maxBytes="8Gi"`, `recording.emptyDir.sizeLimit="9Gi"`}, ""},
		"recording that fills its emptyDir":       {[]string{recordingOn, recordingKey, `recording.maxBytes="8Gi"`, `recording.emptyDir.sizeLimit="9215Mi"`}, "recording.emptyDir.sizeLimit 9215Mi: must be at least 9/8 of recording.maxBytes, which is 8Gi"},
		"recording that fills its claim":          {[]string{recordingOn, recordingKey, `recording.maxBytes="2Gi"`, `recording.persistence.enabled=true`}, "recording.persistence.size 2Gi: must be at least"},
		"recording in a claim of an unknown size": {[]string{recordingOn, recordingKey, `recording.maxBytes="1Ti"`, `recording.persistence={"enabled":true,"existingClaim":"mine"}`}, ""},
		"recording for some days":                 {[]string{recordingOn, recordingKey, `recording.maxAge="7d"`}, ""},
		"recording of a size without a unit":      {[]string{`recording.maxBytes="1000"`}, pattern},
		"field of no RecordingConfiguration":      {[]string{`recording.config={"samples":{}}`}, "additional properties 'samples' not allowed"},
		"share of a recording that is none":       {[]string{`recording.config={"sampling":{"default":2}}`}, "/recording/config/sampling/default"},
		"share without a name":                    {[]string{`recording.config={"sampling":{"groups":[{"share":1}]}}`}, "missing property 'name'"},
		"secret for images without a name":        {[]string{`imagePullSecrets=[{}]`}, "missing property 'name'"},
		"network of the node":                     {[]string{`hostNetwork=true`}, ""},
		"network of the node without its policy":  {[]string{`hostNetwork=true`, `networkPolicy.egress=[{"ports":[{"port":443}]}]`}, "networkPolicy.egress: has no effect with hostNetwork"},
		"port for two":                            {[]string{`ports.ops=9443`}, "ports.ops 9443: must differ from ports.reviews"},
		"port that needs a right":                 {[]string{`ports.reviews=443`}, "/ports/reviews"},
		"DNS policy that is none":                 {[]string{`dnsPolicy="Cluster"`}, "/dnsPolicy"},
		"two monitors":                            {[]string{`monitoring.podMonitor.enabled=true`, `monitoring.serviceMonitor.enabled=true`}, "monitoring.serviceMonitor.enabled: excludes monitoring.podMonitor.enabled"},
		"account without a name":                  {[]string{`serviceAccount.name=""`}, "/serviceAccount/name"},
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
