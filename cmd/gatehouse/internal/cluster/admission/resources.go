package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// resource is the name of a kind in the API.
type resource struct{ kind, plural, scope string }

const cluster, namespaced = "Cluster", "Namespaced"

// isNamespaced reports whether a kind that is reviewed is in namespaces.
func isNamespaced(kind string) bool {
	return slices.ContainsFunc(resources(), func(r resource) bool { return r.kind == kind && r.scope == namespaced })
}

// resources returns the kinds that are reviewed.
func resources() []resource {
	return []resource{
		{"SidecarProfile", "sidecarprofiles", cluster},
		{"AdmissionPolicy", "admissionpolicies", cluster},
		{"AdmissionPolicyBinding", "admissionpolicybindings", cluster},
		{"PolicyException", "policyexceptions", namespaced},
		{"PolicyBaseline", "policybaselines", namespaced},
		{"AccessToken", "accesstokens", cluster},
		{"TokenRevocation", "tokenrevocations", cluster},
		{"Grant", "grants", cluster},
	}
}

// Definitions returns CustomResourceDefinitions of the kinds that are reviewed, with their
// names, scopes and versions alone.
func Definitions() []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, r := range resources() {
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   map[string]any{"name": r.plural + "." + Group},
			"spec": map[string]any{
				"group":    Group,
				"scope":    r.scope,
				"names":    map[string]any{"kind": r.kind, "plural": r.plural},
				"versions": []any{map[string]any{"name": v1alpha1.GroupVersion.Version}},
			},
		}})
	}
	return out
}
