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
	api := fakeapi.New(
		resource(v1alpha1.GroupVersion, "admissionpolicies", "AdmissionPolicy", false), resource(v1alpha1.GroupVersion, "sidecarprofiles", "SidecarProfile", false),
		resource(v1alpha1.GroupVersion, "policyexceptions", "PolicyException", true), resource(v1alpha1.GroupVersion, "admissionpolicybindings", "AdmissionPolicyBinding", false),
		resource(core, "namespaces", "Namespace", false), resource(core, "pods", "Pod", true),
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
	f.Kubeconfig = newCluster(t, "policyexceptions", refusing(), string(profile), shopNamespace, podInCluster)
	c := newPolicyConsole(t, f)
	status, _, text := c.get("GET", "/policies", nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(text, "Some data are missing", "the right to list policyexceptions.gatehouse.dev in namespace shop is missing", "labelsAdmissionPolicy", "no status")
	_, _, text = c.get("GET", "/policies/AdmissionPolicy/labels", nil)
	c.wants(text, "Defined inthe cluster", "Audit now")
	status, page, text := c.get("POST", "/policies/AdmissionPolicy/labels/audit", nil)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	c.wants(text, "gatehouse audit --kubeconfig", "-n shop")
	c.wants(c.waitForJob(page), "1 object")
	_, page, text = c.get("POST", "/try", url.Values{"documents": {strings.Replace(string(profile), "fluent-bit:3.2.4", "fluent-bit:9.9.9", 1)}, "manifests": {podInCluster}})
	c.wants(html.UnescapeString(text), "AdmissionPolicy labels: evaluated", "missing right: list policyexceptions.gatehouse.dev", "refused Pod/web shop")
	c.wants(page, "fluent-bit:9.9.9", `<pre class="diff"`)
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
