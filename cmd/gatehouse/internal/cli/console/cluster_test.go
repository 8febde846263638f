package console

import (
	"html"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/clitest"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// newCluster returns the kubeconfig of a cluster with objects. Resources that are forbidden cannot be listed.
func newCluster(t *testing.T, forbidden string, objects ...string) string {
	t.Helper()
	resource := func(version schema.GroupVersion, plural, kind string, namespaced bool) fakeapi.Resource {
		return fakeapi.Resource{GroupVersionResource: version.WithResource(plural), Kind: kind, Namespaced: namespaced}
	}
	core := schema.GroupVersion{Version: "v1"}
	registration := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	reports := schema.GroupVersion{Group: "openreports.io", Version: "v1alpha1"}
	api := fakeapi.New(
		resource(v1alpha1.GroupVersion, "admissionpolicies", "AdmissionPolicy", false), resource(v1alpha1.GroupVersion, "sidecarprofiles", "SidecarProfile", false),
		resource(v1alpha1.GroupVersion, "policyexceptions", "PolicyException", true), resource(v1alpha1.GroupVersion, "admissionpolicybindings", "AdmissionPolicyBinding", false),
		resource(core, "namespaces", "Namespace", false), resource(core, "pods", "Pod", true),
		resource(registration, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false), resource(registration, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false),
		resource(reports, "reports", "Report", true), resource(reports, "clusterreports", "ClusterReport", false),
	)
	for _, text := range objects {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		api.Put(object)
	}
	api.Intercept = func(r *fakeapi.Request) (any, error) {
		if r.Resource == forbidden && forbidden != "" {
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: r.Resource}, "", nil)
		}
		return nil, nil //nolint:nilnil // as without Intercept
	}
	return clitest.Kubeconfig(t, api)
}

const shopNamespace = `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {logs: shipped}}}`

const podInCluster = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: web, image: "web:1"}]}}`

func TestCluster(t *testing.T) {
	t.Parallel()
	profile, err := os.ReadFile("../../../../../manifests/examples/log-shipper/profile.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f := flags{namespaces: []string{"shop"}}
	f.Kubeconfig = newCluster(t, "policyexceptions", refusing(), string(profile), shopNamespace, podInCluster,
		`{apiVersion: openreports.io/v1alpha1, kind: Report, metadata: {name: gatehouse, namespace: shop, labels: {app.kubernetes.io/managed-by: gatehouse}}, source: gatehouse,
		  results: [{source: gatehouse, policy: labels, rule: "validations[0]", result: fail, message: "<i>no</i>", resources: [{kind: Pod, name: web, namespace: shop}]}]}`,
		`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: gatehouse}, webhooks: [{name: fail.validate.gatehouse.dev, failurePolicy: Ignore,
		  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}], matchConditions: [{name: not-nodes, expression: request.kind.kind != "Node"}]}]}`)
	c := newPolicyConsole(t, f)
	status, _, text := c.get("GET", "/policies", nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(text, "Some data are missing", "the right to list policyexceptions.gatehouse.dev is missing", "labelsAdmissionPolicy", "no status", "fail.validate.gatehouse.dev", "requests are admitted (Ignore)", "CREATE of pods", "not-nodes")
	_, page, text := c.get("GET", "/policies/AdmissionPolicy/labels", nil)
	c.wants(text, "Defined inthe cluster", "1 results in reports", "Pod/web", "Audit now")
	if strings.Contains(page, "<i>") {
		t.Error("a message is HTML")
	}
	status, page, text = c.get("POST", "/policies/AdmissionPolicy/labels/audit", nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(text, "gatehouse audit --kubeconfig", "-n shop")
	c.wants(c.waitForJob(page), "objects were decided", "is skipped: ")
	_, page, text = c.get("POST", "/try", url.Values{"documents": {strings.Replace(string(profile), "fluent-bit:3.2.4", "fluent-bit:9.9.9", 1)}, "manifests": {podInCluster}})
	c.wants(html.UnescapeString(text), "AdmissionPolicy labels: evaluated", "missing right: list policyexceptions.gatehouse.dev", "Pod shop/web: refused")
	c.wants(page, "fluent-bit:9.9.9", `<table class="diff"`)
}

func TestCompareCluster(t *testing.T) {
	t.Parallel()
	f := flags{config: writeFiles(t, map[string]string{"policy.yaml": strict, "other.yaml": strings.Replace(strict, "name: labels", "name: same", 1)})}
	f.Kubeconfig = newCluster(t, "", refusing(), strings.Replace(strict, "name: labels", "name: same", 1)+"  workloadTemplates: Check\n  existingViolations: Allow\n")
	c := newPolicyConsole(t, f)
	status, _, text := c.get("GET", compareURL("cluster", "dir:"+f.config), nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(html.UnescapeString(text), "0 added, 0 removed, 1 changed, 1 unchanged", "changed AdmissionPolicy labels")
}
