package drill

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// now is the time of all tests.
var now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// clusterOf returns a cluster of the documents.
func clusterOf(t testing.TB, documents ...string) *Cluster {
	t.Helper()
	c := NewCluster()
	for _, document := range documents {
		for one := range strings.SplitSeq(document, "\n---\n") {
			text, err := yaml.YAMLToJSON([]byte(one))
			if err != nil {
				t.Fatalf("%v:\n%s", err, one)
			}
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal(text, &kind); err != nil {
				t.Fatal(err)
			}
			if err := c.Add(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind), text, Place{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// run runs a drill.
func run(t testing.TB, c *Cluster) *Report {
	t.Helper()
	d, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Run(t.Context(), Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// codes returns the codes of all findings, sorted.
func codes(r *Report) string {
	found := map[string]bool{}
	for _, s := range r.Subjects {
		for i := range s.Findings {
			found[string(s.Findings[i].Code)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}

// guard is a webhook in the namespace guard: the Service, two pods on two nodes, a budget, and a configuration whose one webhook has
// these fields.
func guard(fields string) []string {
	return []string{
		`{apiVersion: v1, kind: Service, metadata: {name: guard, namespace: guard}, spec: {selector: {app: guard}, ports: [{port: 443}]}}`,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: guard, namespace: guard}, spec: {replicas: 2, template: {metadata: {labels: {app: guard}},
  spec: {containers: [{name: guard, image: example.org/guard:1}]}}}}`,
		`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: guard, namespace: guard}, spec: {selector: {matchLabels: {app: guard}}}}`,
		hookWith("guard", fields),
	}
}

func hookWith(name, fields string) string {
	if !strings.Contains(fields, "clientConfig:") {
		fields = fmt.Sprintf("clientConfig: {service: {namespace: %[1]s, name: %[1]s}}, %s", name, fields)
	}
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: %[1]s}, webhooks: [
  {name: %[1]s.example.org, admissionReviewVersions: [v1], %[2]s}]}`, name, fields)
}

const (
	pods       = `rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]`
	notSystem  = `namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}`
	notOwn     = `namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, guard]}]}`
	everything = `rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]`
)

func rule(group, resource, operation string) string {
	return fmt.Sprintf(`rules: [{apiGroups: [%q], apiVersions: ["*"], operations: [%s], resources: [%q]}]`, group, operation, resource)
}

// TestLockouts has which requests a webhook holds up, by its rules, selectors and conditions.
func TestLockouts(t *testing.T) {
	t.Parallel()
	const lockedOut = "access-reviews api-server-start leases new-pods no-selector nodes own-namespace own-pods system-pods tokens wildcard"
	for name, c := range map[string]struct {
		fields, want string
	}{
		"everything":                        {everything, lockedOut},
		"everything, fails open":            {everything + ", failurePolicy: Ignore", "slow-leases"},
		"everything, fails open fast":       {everything + ", failurePolicy: Ignore, timeoutSeconds: 2", ""},
		"pods":                              {pods, "new-pods no-selector own-pods system-pods"},
		"pods but of kube-system":           {pods + ", " + notSystem, "new-pods own-pods"},
		"pods but of it and kube-system":    {pods + ", " + notOwn, "new-pods"},
		"pods of another label":             {pods + ", objectSelector: {matchLabels: {app: other}}", ""},
		"its own label":                     {pods + ", objectSelector: {matchLabels: {app: guard}}", "own-pods"},
		"no rule":                           {"rules: []", ""},
		"deletion":                          {rule("", "pods", "DELETE"), "no-selector own-pods system-pods"},
		"the status of pods":                {rule("", "pods/status", "UPDATE"), "no-selector own-pods system-pods"},
		"bindings":                          {rule("", "pods/binding", "CREATE"), "no-selector own-pods system-pods"},
		"tokens of ServiceAccounts":         {rule("", "serviceaccounts/token", "CREATE"), "no-selector own-pods tokens"},
		"nodes":                             {rule("", "nodes", "UPDATE"), "no-selector nodes"},
		"nodes, namespaces selected":        {rule("", "nodes", "UPDATE") + ", " + notOwn, "nodes"},
		"the status of nodes":               {rule("", "nodes/status", "UPDATE"), "no-selector nodes"},
		"nodes, a condition":                {rule("", "nodes", "UPDATE") + ", matchConditions: [{name: a, expression: '!request.userInfo.groups.exists(g, g.startsWith(\"system:\"))'}]", ""},
		"certificates":                      {rule("certificates.k8s.io", "certificatesigningrequests/*", "UPDATE"), "no-selector nodes"},
		"leases":                            {rule("coordination.k8s.io", "leases", "UPDATE"), "api-server-start leases no-selector own-namespace"},
		"leases but of the system":          {rule("coordination.k8s.io", "leases", "UPDATE") + `, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease]}]}`, "own-namespace"},
		"namespaced scope alone":            {`rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["nodes", "pods"], scope: Namespaced}], ` + notOwn, "new-pods wildcard"},
		"cluster scope alone":               {`rules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: ["*"], scope: Cluster}], ` + notOwn, "nodes wildcard"},
		"another version":                   {`rules: [{apiGroups: [apps], apiVersions: [v1beta1], operations: [UPDATE], resources: [deployments]}]`, "no-selector"},
		"deployments":                       {rule("apps", "deployments", "UPDATE"), "no-selector own-namespace"},
		"roles":                             {rule("rbac.authorization.k8s.io", "clusterroles", "CREATE"), "api-server-start no-selector"},
		"roles, but not of the API server":  {rule("rbac.authorization.k8s.io", "clusterroles", "CREATE") + `, matchConditions: [{name: a, expression: request.userInfo.username != "system:apiserver"}]`, ""},
		"webhook configurations":            {rule("admissionregistration.k8s.io", "*", "'*'"), ""},
		"custom resources":                  {rule("example.org", "*", "'*'"), ""},
		"a condition that fails":            {pods + `, ` + notOwn + `, matchConditions: [{name: a, expression: object.spec.nodeName != "x"}]`, "new-pods"},
		"a condition that fails for system": {pods + `, matchConditions: [{name: a, expression: object.metadata.labels.team != "x"}]`, "condition-error new-pods"},
		"a condition that fails, open":      {pods + `, failurePolicy: Ignore, matchConditions: [{name: a, expression: object.metadata.labels.team != "x"}]`, ""},
		"a false condition beside an error": {pods + `, matchConditions: [{name: a, expression: object.metadata.labels.team != "x"}, {name: b, expression: "false"}]`, ""},
		"a condition on a generated name":   {pods + `, matchConditions: [{name: a, expression: object.metadata.name.startsWith("guard-")}]`, "own-pods"},
		"a condition about rights":          {pods + `, matchConditions: [{name: a, expression: '!authorizer.requestResource.check("skip").allowed()'}]`, "new-pods own-pods system-pods"},
		"a condition of the namespace":      {pods + `, matchConditions: [{name: a, expression: '!(request.namespace in ["kube-system", "guard"])'}]`, "new-pods"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, clusterOf(t, guard(c.fields)...))
			want := strings.Fields(c.want)
			slices.Sort(want)
			if got := codes(r); got != strings.Join(want, " ") || len(r.Unknown) > 0 {
				t.Errorf("got  %s\nwant %s\nunknown %q", got, strings.Join(want, " "), r.Unknown)
			}
		})
	}
}

// TestGeneratedNames: a mutating webhook sees a pod before the API server has given it a name.
func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	documents := guard(pods + `, matchConditions: [{name: a, expression: object.metadata.name.startsWith("guard-")}]`)
	documents[len(documents)-1] = strings.Replace(documents[len(documents)-1], "Validating", "Mutating", 1)
	if got := codes(run(t, clusterOf(t, documents...))); got != "condition-error new-pods" {
		t.Errorf("got %q", got)
	}
}

// TestReviewsAreExempt: since Kubernetes 1.37 no webhook is called about reviews.
func TestReviewsAreExempt(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"": "access-reviews tokens", "1.36": "access-reviews tokens", "1.37": "", "1.40": "", "nonsense": "access-reviews tokens",
	} {
		c := clusterOf(t, guard(`rules: [{apiGroups: [authentication.k8s.io, authorization.k8s.io], apiVersions: ["*"], operations: ["*"], resources: ["*"]}], matchConditions: [{name: a, expression: "true"}]`)...)
		c.Kubernetes = version
		if got := codes(run(t, c)); got != strings.TrimSpace(want+" wildcard") {
			t.Errorf("%q: got %q", version, got)
		}
	}
}

// TestUnknown: what the API server would not accept, or what is not known, is named.
func TestUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fields, want string
		whole        bool
	}{
		"a condition that does not compile": {pods + ", matchConditions: [{name: a, expression: objekt.x}]", "is not declared", false},
		"too large a condition":             {pods + ", matchConditions: [{name: a, expression: '" + strings.Repeat("true && ", 5000) + "true'}]", "too large", false},
		"an invalid selector":               {pods + ", namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}", "a selector is invalid", false},
		"a namespace that is not known":     {pods + ", namespaceSelector: {matchLabels: {a: b}}", `the namespace "guard" is not known`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := clusterOf(t, guard(c.fields)...)
			cluster.Whole = c.whole
			if r := run(t, cluster); !strings.Contains(strings.Join(r.Unknown, "\n"), c.want) {
				t.Errorf("got %q", r.Unknown)
			}
		})
	}
}

// TestCodes: every code is explained, with a known severity.
func TestCodes(t *testing.T) {
	t.Parallel()
	for _, e := range explanations() {
		if !slices.Contains(Severities(), e.severity) || e.summary == "" || e.meaning == "" || !strings.HasSuffix(e.mend, ".") && !strings.HasSuffix(e.mend, "…") {
			t.Errorf("%+v", e)
		}
	}
	for _, code := range lockoutCodes() {
		if find(code).severity != Lockout {
			t.Errorf("%s is no lockout", code)
		}
	}
	if Explain("no-such-code") != "" {
		t.Error("an unknown code is explained")
	}
}
