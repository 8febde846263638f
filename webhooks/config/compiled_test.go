package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// What gatehouse compile has made is left out beside its source, and nothing else is: a label or an annotation alone proves nothing.
func TestCompiledDocuments(t *testing.T) {
	t.Parallel()
	const source = "\n---\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: a}\nspec: {}\n"
	const profile = "\n---\napiVersion: gatehouse.dev/v1alpha1\nkind: SidecarProfile\nmetadata: {name: a}\nspec: {}\n"
	const label, from = "labels: {app.kubernetes.io/managed-by: gatehouse-compile}", "annotations: {gatehouse.dev/compiled-from: %s}"
	for name, c := range map[string]struct {
		more, metadata string
		left           int
	}{
		"beside its source":      {source, label + ", " + fmt.Sprintf(from, "AdmissionPolicy/a"), 4},
		"beside its profile":     {profile, label + ", " + fmt.Sprintf(from, "SidecarProfile/a"), 4},
		"alone":                  {"", label + ", " + fmt.Sprintf(from, "AdmissionPolicy/a"), 0},
		"of another source":      {source, label + ", " + fmt.Sprintf(from, "AdmissionPolicy/b"), 0},
		"of its own name":        {"", label + ", " + fmt.Sprintf(from, "ValidatingAdmissionPolicy/x"), 0},
		"of another kind":        {source, label + ", " + fmt.Sprintf(from, "ValidatingAdmissionPolicy/a"), 0},
		"without the label":      {source, fmt.Sprintf(from, "AdmissionPolicy/a"), 0},
		"without the annotation": {source, label, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
				fmt.Fprintf(&text, "---\napiVersion: admissionregistration.k8s.io/v1\nkind: %s\nmetadata: {name: x, %s}\nspec: {}\n", kind, c.metadata)
			}
			loaded, _ := config.InspectText("a.yaml", []byte(text.String()+c.more))
			warned := 0
			for _, w := range loaded.Warnings {
				if strings.Contains(w.Message, "is ignored: gatehouse compile has made it from") {
					warned++
				}
			}
			have := len(loaded.Policy.Policies) + len(loaded.Policy.Bindings) + len(loaded.Mutation.Policies) + len(loaded.Mutation.Bindings)
			if warned != c.left || have != 4-c.left {
				t.Errorf("%d are left out, %d are there: %v", warned, have, loaded.Warnings)
			}
		})
	}
}
