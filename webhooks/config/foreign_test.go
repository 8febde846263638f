package config_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// A constraint of Gatekeeper is a policy that is not evaluated, unless a policy here has it as its params, as a converted one has.
func TestForeignPolicies(t *testing.T) {
	t.Parallel()
	const constraint = "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: NoPrivileged\nmetadata: {name: all}\n"
	policy := func(apiVersion, kind, of string) string {
		return "\n---\napiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: a}\nspec: {paramKind: {apiVersion: constraints.gatekeeper.sh/v1beta1, kind: " + of + "}}\n"
	}
	for name, c := range map[string]struct {
		more  string
		warns bool
	}{
		"alone":                        {"", true},
		"beside another param":         {policy("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "Other"), true},
		"a param":                      {policy("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "NoPrivileged"), false},
		"a param of our own policy":    {policy("gatehouse.dev/v1alpha1", "AdmissionPolicy", "NoPrivileged"), false},
		"a param of a mutating policy": {policy("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", "NoPrivileged"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			warns := false
			loaded, _ := config.InspectText("a.yaml", []byte(constraint+c.more))
			for _, w := range loaded.Warnings {
				if w.Field == "kind" {
					warns = true
					if got := w.Object + ": " + w.Message; got != "NoPrivileged/all: Gatehouse does not evaluate it: it is a policy of Gatekeeper" {
						t.Errorf("got %q", got)
					}
				}
			}
			if warns != c.warns {
				t.Errorf("got %v", loaded.Warnings)
			}
		})
	}
}
