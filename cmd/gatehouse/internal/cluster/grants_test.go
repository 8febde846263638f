package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install/registration"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// TestGrantsCountIfTheAPIServerVerifiesThem changes what the API server enforces, and looks at what counts.
func TestGrantsCountIfTheAPIServerVerifiesThem(t *testing.T) {
	t.Parallel()
	group := admissionregistrationv1.SchemeGroupVersion
	policies := fakeapi.Resource{GroupVersionResource: group.WithResource("validatingadmissionpolicies"), Kind: "ValidatingAdmissionPolicy"}
	bindings := fakeapi.Resource{GroupVersionResource: group.WithResource("validatingadmissionpolicybindings"), Kind: "ValidatingAdmissionPolicyBinding"}
	a := fakeapi.New(policies, bindings)
	for i, kind := range config.ResourceKinds() {
		a.Serve(fakeapi.Resource{GroupVersionResource: v1alpha1.GroupVersion.WithResource(install.CustomResources()[i]), Kind: kind.Kind, Namespaced: kind.Kind == "PolicyBaseline" || kind.Kind == "PolicyException"})
	}
	installed := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, created := range map[string]time.Time{"before": installed.Add(-time.Second), "with": installed, "soon": installed.Add(9 * time.Second), "after": installed.Add(10 * time.Second)} {
		put(t, a, v1alpha1.GroupVersion.WithKind("Grant"), fmt.Sprintf(`{"metadata": {"name": %q, "creationTimestamp": %q},
			"spec": {"subject": {"user": "jane"}, "groups": ["oncall"], "expiresAt": "2099-01-01T00:00:00Z", "grantedBy": "boss"}}`, name, created.Format(time.RFC3339)))
	}
	policy, binding, err := registration.GrantPolicy()
	if err != nil {
		t.Fatal(err)
	}
	policy.CreationTimestamp, binding.CreationTimestamp = metav1.NewTime(installed.Add(-time.Hour)), metav1.NewTime(installed)
	object := func(value any) map[string]any {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]any{}
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	forbid(a, "list", "validatingadmissionpolicies")
	c, _ := connected(t, a)
	r, err := c.Resources()
	if err != nil {
		t.Fatal(err)
	}
	// counts waits until these Grants have no error, and the errors of the others say why.
	counts := func(names, why string) {
		t.Helper()
		support.Eventually(t, "what counts", func() error {
			all := r.All()
			if len(all) != 4 {
				return fmt.Errorf("%d resources", len(all))
			}
			for _, one := range all {
				switch err := one.Found.Err(); {
				case (err == nil) != strings.Contains(names, one.Name):
					return fmt.Errorf("%s: %w", one.Name, err)
				case err != nil && !strings.Contains(err.Error(), why):
					return fmt.Errorf("%w, want %s", err, why)
				}
			}
			return nil
		})
	}
	counts("none", `spec.grantedBy: the API server may not have checked that this user may grant, so Gatehouse gives nothing: Gatehouse cannot read the ValidatingAdmissionPolicy "gatehouse-grants": `)
	restore(a)
	counts("none", `the ValidatingAdmissionPolicy "gatehouse-grants" does not exist (hint: delete the policy and its binding, as far as they exist, and install both again: `)
	a.Put(object(policy))
	counts("none", `the ValidatingAdmissionPolicyBinding "gatehouse-grants" does not exist`)
	a.Put(object(binding))
	const older = `, and the API server checks Grants since 2026-11-20T12:00:10Z (hint: delete the Grant and create it again)`
	counts("after", older)
	before := r.All()

	changed := policy.DeepCopy()
	changed.Spec.Validations = changed.Spec.Validations[1:]
	a.Put(object(changed))
	counts("none", `the spec of the ValidatingAdmissionPolicy "gatehouse-grants" is not the one of this version of Gatehouse`)
	a.Put(object(policy))
	counts("none", `the spec of the ValidatingAdmissionPolicy "gatehouse-grants" was changed since it was created`)
	a.Delete(policies, "", install.GrantPolicy)
	a.Put(object(policy))
	counts("after", older)
	loose := binding.DeepCopy()
	loose.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	a.Put(object(loose))
	counts("none", `the spec of the ValidatingAdmissionPolicyBinding "gatehouse-grants" is not the one`)
	a.Put(object(binding))
	counts("none", `the spec of the ValidatingAdmissionPolicyBinding "gatehouse-grants" was changed since it was created`)
	a.Delete(bindings, "", install.GrantPolicy)
	counts("none", "does not exist")
	binding.CreationTimestamp = metav1.NewTime(installed.Add(time.Hour))
	a.Put(object(binding))
	counts("none", "since 2026-11-20T13:00:10Z")
	for _, one := range before {
		if one.Name == "after" && one.Found.Err() != nil {
			t.Error("a resource that was returned has changed")
		}
	}
}
