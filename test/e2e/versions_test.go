package e2e

import (
	"fmt"
	"regexp"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// The feature gates of docs/kubernetes-versions.md have the stages and defaults that it names.
func TestDocumentedFeatureGates(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	minor := w.Minor(t)
	metrics, err := w.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	for gate, want := range map[string]map[int]string{ // the stage, and 1 if it is on
		"APIServerWebhookAuthenticationToken":     {35: "none", 36: "none", 37: "ALPHA 0"},
		"ExcludeAdmissionWebhookVirtualResources": {35: "none", 36: "none", 37: "BETA 1"},
		"ManifestBasedAdmissionControlConfig":     {35: "none", 36: "ALPHA 0", 37: "BETA 1"},
		"MutatingAdmissionPolicy":                 {35: "BETA 0", 36: " 1", 37: " 1"},
		"WebhookRoundTripLoadBalancing":           {35: "none", 36: "none", 37: "BETA 1"},
	} {
		got := "none"
		line := regexp.MustCompile(`(?m)^kubernetes_feature_enabled\{name="` + gate + `",stage="([A-Z]*)"\} ([01])$`)
		if found := line.FindSubmatch(metrics); found != nil {
			got = fmt.Sprintf("%s %s", found[1], found[2])
		}
		if got != want[minor] {
			t.Errorf("%s is %q, want %q", gate, got, want[minor])
		}
	}
}

// The API server's own CEL differs as docs/kubernetes-versions.md says.
func TestDocumentedCEL(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const name = "versions"
	w.newNamespace(t, name, map[string]string{name: name})
	api := w.Client().AdmissionregistrationV1()
	policy := func(expression string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{name: name}},
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
					}}},
				},
				Validations: []admissionregistrationv1.Validation{{Expression: expression}},
			},
		}
	}
	_, err := api.ValidatingAdmissionPolicies().Create(t.Context(), policy("['a'].includes(object.metadata.name)"), dryRun)
	must(t, refusal(err, 422, "undeclared reference to 'includes'"))

	_, err = api.ValidatingAdmissionPolicies().Create(t.Context(), policy("object.metadata.name.orValue('') == 'other'"), metav1.CreateOptions{})
	must(t, err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	want := "failed expression"
	if w.Minor(t) >= 37 {
		want = "no such overload"
	}
	support.Eventually(t, "the policy", func() error {
		_, err := w.Client().CoreV1().ConfigMaps(name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, dryRun)
		return refusal(err, 422, want)
	})
}
