package request

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

func withOxen() *Resources {
	definition := func(group, kind, plural string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"group": group, "scope": "Namespaced", "versions": []any{map[string]any{"name": "v1"}},
			"names": map[string]any{"kind": kind, "plural": plural},
		}}}
	}
	return NewResources([]*unstructured.Unstructured{definition("example.org", "Cattle", "cattle"), definition("nodes.k8s.io", "Rack", "racks")})
}

func TestServed(t *testing.T) {
	t.Parallel()
	resources := withOxen()
	for name, c := range map[string]struct{ apiVersion, kind, want string }{
		"a kind of Kubernetes":                {"apps/v1", "Deployment", ""},
		"a kind that is not in the scheme":    {"apiextensions.k8s.io/v1", "CustomResourceDefinition", ""},
		"a kind of a subresource":             {"v1", "PodExecOptions", ""},
		"a custom kind":                       {"example.org/v1", "Cattle", ""},
		"another kind of that group":          {"example.org/v1", "Herdsman", ""},
		"a kind of a group that nobody knows": {"argoproj.io/v1alpha1", "Rollout", ""},
		"a group below one of Kubernetes":     {"snapshot.storage.k8s.io/v1", "VolumeSnapshot", ""},
		"two characters swapped":              {"netwokring.k8s.io/v1", "Ingress", `group "netwokring.k8s.io" of apiVersion is not known (hint: did you mean "networking.k8s.io"?)`},
		"a character missing":                 {"rbac.authorization.k8.io/v1", "Role", `group "rbac.authorization.k8.io" of apiVersion is not known (hint: did you mean "rbac.authorization.k8s.io"?)`},
		"a group in another case":             {"Networking.k8s.io/v1", "Anything", `group "Networking.k8s.io" of apiVersion is not known (hint: did you mean "networking.k8s.io"?)`},
		"a group of a project of Kubernetes":  {"scheduling.x-k8s.io/v1alpha1", "PodGroup", ""},
		"a group above one of Kubernetes":     {"gateway.networking.k8s.io/v1", "Gateway", ""},
		"another group of k8s.io":             {"metrics.k8s.io/v1beta1", "PodMetrics", ""},
		"a defined group that is near":        {"nodes.k8s.io/v1", "Shelf", ""},
		"a group of a definition, nearly":     {"exampl.org/v1", "Cattle", ""},
		"another case":                        {"apps/v1", "deployment", `kind "deployment" of "apps/v1" is not known (hint: did you mean "Deployment"?)`},
		"a resource for a kind":               {"v1", "Pods", `kind "Pods" of "v1" is not known (hint: did you mean "Pod"?)`},
		"nothing like it":                     {"v1", "Whatever", `kind "Whatever" of "v1" is not known`},
		"the core group for another":          {"v1", "Deployment", `kind "Deployment" of "v1" is not known (hint: write apiVersion: apps/v1)`},
		"a group for the core one":            {"apps/v1", "Pod", `kind "Pod" of "apps/v1" is not known (hint: write apiVersion: v1)`},
		"a group with a character missing":    {"app/v1", "Deployment", `kind "Deployment" of "app/v1" is not known (hint: write apiVersion: apps/v1)`},
		"a group that no custom resource has": {"deployments/v1", "Deployment", `kind "Deployment" of "deployments/v1" is not known (hint: write apiVersion: apps/v1)`},
		"a group and kind that nothing has":   {"x/v1", "Whatever", `kind "Whatever" of "x/v1" is not known`},
		"a version that never was":            {"apps/v3", "Deployment", `kind "Deployment" is not in apiVersion "apps/v3" (hint: write apiVersion: apps/v1)`},
		"a version that is no longer":         {"apps/v1beta1", "Deployment", `kind "Deployment" of "apps/v1beta1" is in no version of Kubernetes since 1.16 (hint: write apiVersion: apps/v1)`},
		"a group that is no longer":           {"extensions/v1beta1", "Ingress", `kind "Ingress" of "extensions/v1beta1" is in no version of Kubernetes since 1.22 (hint: write apiVersion: networking.k8s.io/v1)`},
		"a version that is not defined":       {"example.org/v2", "Cattle", `kind "Cattle" is not in apiVersion "example.org/v2" (hint: write apiVersion: example.org/v1)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := resources.Served(schema.FromAPIVersionAndKind(c.apiVersion, c.kind)); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestServedKindsAreServed: what is stable in Kubernetes is served.
func TestServedKindsAreServed(t *testing.T) {
	t.Parallel()
	resources := NewResources(nil)
	stable := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version != "v1" || resources.Of(gvk).Guessed {
			continue
		}
		stable++
		if err := resources.Served(gvk); err != nil {
			t.Errorf("%s: %v", gvk, err)
		}
	}
	if stable < 50 {
		t.Errorf("%d kinds were looked at", stable)
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	const (
		subdomain = `is not valid: a lowercase RFC 1123 subdomain must consist of`
	)
	resources := withOxen()
	for name, c := range map[string]struct{ kind, metadata, want string }{
		"a name":                        {`v1 Pod`, `{"name":"a.b-c"}`, ""},
		"a name that is yet to be made": {`v1 Pod`, `{"generateName":"a-"}`, ""},
		"both":                          {`v1 Pod`, `{"name":"a","generateName":"b-"}`, ""},
		"no name":                       {`v1 Pod`, `{}`, `metadata.name: is missing`},
		"no metadata":                   {`v1 Pod`, `null`, `metadata.name: is missing`},
		"nobody asks for a name":        {`authorization.k8s.io/v1 SubjectAccessReview`, `{}`, ""},
		"options":                       {`v1 PodExecOptions`, `{}`, ""},
		"a name that is none":           {`v1 Pod`, `{"name":"My_Pod"}`, `metadata.name: "My_Pod" ` + subdomain},
		"a beginning that is none":      {`v1 Pod`, `{"generateName":"My_"}`, `metadata.generateName: "My_" ` + subdomain},
		"a number":                      {`v1 Pod`, `{"name":123}`, `metadata.name: is a number, and must be a string (hint: put it in quotes)`},
		"a namespace that is none":      {`v1 Pod`, `{"name":"a","namespace":"a.b"}`, `metadata.namespace: "a.b" is not valid: must not contain dots`},
		"a namespace that is a boolean": {`v1 Pod`, `{"name":"a","namespace":true}`, `metadata.namespace: is a boolean, and must be a string`},
		"a namespace that does not count": {
			`v1 Node`, `{"name":"a","namespace":"A"}`, "",
		},
		"the name of a namespace":         {`v1 Namespace`, `{"name":"a.b"}`, `metadata.name: "a.b" is not valid: must not contain dots`},
		"a role":                          {`rbac.authorization.k8s.io/v1 ClusterRole`, `{"name":"system:Node_x"}`, ""},
		"a role that cannot be in a path": {`rbac.authorization.k8s.io/v1 Role`, `{"name":"a/b"}`, `metadata.name: "a/b" is not valid: may not contain '/'`},
		"an address":                      {`networking.k8s.io/v1 IPAddress`, `{"name":"2001:db8::1"}`, ""},
		"a custom resource":               {`example.org/v1 Cattle`, `{"name":"A"}`, `metadata.name: "A" ` + subdomain},
		"a kind that nobody knows":        {`user.example.com/v1 User`, `{"name":"jane@example.com"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apiVersion, kind, _ := strings.Cut(c.kind, " ")
			got := ""
			if err := resources.CheckName([]byte(`{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":` + c.metadata + `}`)).Err(); err != nil {
				got = err.Error()
			}
			if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	if err := resources.CheckName([]byte(`[]`)).Err(); err != nil {
		t.Errorf("what is no object: %v", err)
	}
}
