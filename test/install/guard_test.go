package install

import (
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// guardNames are the objects of the guard in a variant.
func guardNames(v *variant) (names []string) {
	for _, o := range v.objects {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && o.GetName() == "gatehouse-registration" {
			names = append(names, o.GetKind())
		}
	}
	return names
}

// TestGuardIsInstalled: where Gatehouse may patch its webhook configurations, the guard is part of every install, unless it
// is left out on purpose or the API server has no such policies.
func TestGuardIsInstalled(t *testing.T) {
	t.Parallel()
	rendered := func(args ...string) func(t *testing.T) *variant {
		return func(t *testing.T) *variant {
			t.Helper()
			return helm(t, args...)
		}
	}
	const (
		// What Helm knows of a cluster.
		pods   = "--api-versions=v1/Pod"
		policy = "--api-versions=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
	)
	for what, c := range map[string]struct {
		rendered func(t *testing.T) *variant
		want     bool
	}{
		"a cluster with policies":    {rendered(pods, policy), true},
		"a cluster without policies": {rendered(pods), false},
		"without policies, demanded": {rendered(pods, "--set", "webhooks.guard.enabled=true"), true},
		"left out":                   {rendered(pods, policy, "--set", "webhooks.guard.enabled=false"), false},
		"cert-manager":               {rendered("--set", "certificates.source=certManager"), true},
		"cert-manager, own webhooks": {rendered("--set", "certificates.source=certManager,webhooks.create=false"), false},
		"self-signed, own webhooks":  {rendered("--set", "webhooks.create=false"), true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var want []string
			if c.want {
				want = []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
			}
			if got := guardNames(c.rendered(t)); !slices.Equal(got, want) {
				t.Errorf("it has %q, want %q", got, want)
			}
		})
	}
	elsewhere := helm(t, "--namespace", "security").find(t, "ValidatingAdmissionPolicy", "gatehouse-registration")
	raw, err := elsewhere.MarshalJSON()
	must(t, err)
	if !strings.Contains(string(raw), `system:serviceaccount:security:gatehouse`) {
		t.Errorf("in another namespace, the guard is for another ServiceAccount: %s", raw)
	}
	if refused := templated(t, `webhooks.guard.enabled="yes"`); !strings.Contains(refused, "webhooks.guard.enabled") && !strings.Contains(refused, "/webhooks/guard/enabled") {
		t.Errorf("a value that is none is refused with %q", refused)
	}
}

// without is a variant without the objects of some kinds.
func (v *variant) without(kinds ...string) *variant {
	return &variant{name: v.name, objects: slices.DeleteFunc(slices.Clone(v.objects), func(o *unstructured.Unstructured) bool {
		return slices.Contains(kinds, o.GetKind())
	})}
}

// TestGuardOfRegistration: with the guard Gatehouse's ServiceAccount changes caBundle and nothing else, and others are not
// held to that.
func TestGuardOfRegistration(t *testing.T) {
	t.Parallel()
	v := registered(t)
	s := newSite(t, cluster.Options{})
	// An upgrade of an install that has no guard yet.
	s.install(t, v.without("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"))
	const serviceAccount = "system:serviceaccount:gatehouse-system:gatehouse"
	config := rest.CopyConfig(s.Config())
	config.Impersonate.UserName = serviceAccount
	account, err := dynamic.NewForConfig(config)
	must(t, err)
	// Not by kubectl, which gets what it patches: the account may not.
	patch := func(by dynamic.Interface, kind, text string, dryRun ...string) error {
		resource := admissionregistrationv1.SchemeGroupVersion.WithResource(kind + "s")
		_, err := by.Resource(resource).Patch(t.Context(), name, types.JSONPatchType, []byte(text), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	const (
		gatehouse = "--as=" + serviceAccount
		failure   = `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`
		bundle    = `[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`
	)
	ca, err := os.ReadFile(s.CAFile())
	must(t, err)
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		if err := patch(account, kind, failure, metav1.DryRunAll); err != nil {
			t.Errorf("%s: RBAC alone refuses what it cannot tell from caBundle: %v", kind, err)
		}
	}
	s.install(t, v)
	// The guard holds also where somebody has granted more than the install does.
	s.kubectl(t, []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"too-much"},"rules":[{`+
		`"apiGroups":["admissionregistration.k8s.io"],"resources":["mutatingwebhookconfigurations","validatingwebhookconfigurations"],"verbs":["*"]}]}`),
		"apply", "--server-side", "-f", "-")
	s.kubectl(t, nil, "create", "clusterrolebinding", "too-much", "--clusterrole=too-much", "--serviceaccount=gatehouse-system:gatehouse")
	kinds := map[string]struct{ kind, webhook string }{
		"mutatingwebhookconfiguration":   {"MutatingWebhookConfiguration", "asked.mutate.gatehouse.dev"},
		"validatingwebhookconfiguration": {"ValidatingWebhookConfiguration", "fail.validate.gatehouse.dev"},
	}
	for kind := range kinds {
		// The API server learns of a policy a moment after it was stored.
		support.Eventually(t, "the guard", func() error {
			err := patch(account, kind, failure, metav1.DryRunAll)
			if err == nil {
				return fmt.Errorf("what Gatehouse does to the %s is allowed", kind)
			}
			if !strings.Contains(err.Error(), "Gatehouse may change clientConfig.caBundle, rules and selectors of its webhooks and nothing else") {
				return err
			}
			return nil
		})
		for what, text := range map[string]string{
			"first caBundle":   fmt.Sprintf(bundle, encoded(ca)),
			"another caBundle": fmt.Sprintf(bundle, encoded(append(ca, ca...))),
			"no caBundle":      `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`,
		} {
			if strings.HasPrefix(what, "no ") {
				must(t, patch(account, kind, fmt.Sprintf(bundle, encoded(ca))))
			}
			if err := patch(account, kind, text); err != nil {
				t.Errorf("%s: %s: %v", kind, what, err)
			}
		}
		// As Gatehouse does it: server-side apply of the field alone.
		applied := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"webhooks":[{"name":%q,"clientConfig":{"caBundle":%q}}]}`,
			kinds[kind].kind, name, kinds[kind].webhook, encoded(ca))
		said, err := s.tryKubectl(t.Context(), []byte(applied), "apply", "--server-side", "--field-manager=gatehouse-ca-bundle", "--force-conflicts", "--validate=false", gatehouse, "-f", "-")
		if err != nil {
			t.Errorf("%s: server-side apply: %v: %s", kind, err, said)
		}
		for what, text := range map[string]string{
			"failure policy":    failure,
			"path":              `[{"op":"replace","path":"/webhooks/0/clientConfig/service/path","value":"/other"}]`,
			"URL with caBundle": fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig","value":{"url":"https://example.org","caBundle":%q}}]`, encoded(ca)),
			"rules":             `[{"op":"add","path":"/webhooks/0/rules/-","value":{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}}]`,
			"selector":          `[{"op":"add","path":"/webhooks/0/namespaceSelector","value":{}}]`,
			"condition":         `[{"op":"add","path":"/webhooks/0/matchConditions/-","value":{"name":"never","expression":"false"}}]`,
			"none":              `[{"op":"remove","path":"/webhooks"}]`,
			"one more": `[{"op":"add","path":"/webhooks/-","value":{"name":"more.example.org","sideEffects":"None","admissionReviewVersions":["v1"],` +
				`"clientConfig":{"url":"https://example.org"}}}]`,
			"order":      `[{"op":"move","from":"/webhooks/0","path":"/webhooks/1"}]`,
			"annotation": `[{"op":"add","path":"/metadata/annotations","value":{"cert-manager.io/inject-ca-from":"other/other"}}]`,
			"label":      `[{"op":"add","path":"/metadata/labels","value":{"other":"other"}}]`,
			"finalizer":  `[{"op":"add","path":"/metadata/finalizers","value":["example.org/stay"]}]`,
			// Which the garbage collector would act on.
			"owner": `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}]`,
		} {
			err := patch(account, kind, text, metav1.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "'gatehouse-registration' denied request: Gatehouse may") {
				t.Errorf("%s: %s: got %v, want a refusal by the guard", kind, what, err)
			}
		}
		// By other ways than a patch.
		object := func(metadata, webhook string) []byte {
			return fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{%s},"webhooks":[{"name":%q,%s}]}`,
				kinds[kind].kind, metadata, kinds[kind].webhook, webhook)
		}
		whole := `"sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://example.org"}`
		for what, c := range map[string]struct {
			input []byte
			args  []string
			want  string
		}{
			"server-side apply": {
				object(`"name":"gatehouse"`, `"failurePolicy":"Ignore"`),
				[]string{"apply", "--server-side", "--force-conflicts", "--validate=false", "--field-manager=thief", "-f", "-"},
				"nothing else",
			},
			"server-side apply of a label": {
				object(`"name":"gatehouse","labels":{"a":"b"}`, `"clientConfig":{}`),
				[]string{"apply", "--server-side", "--force-conflicts", "--validate=false", "--field-manager=thief", "-f", "-"},
				"no labels",
			},
			"replace":           {object(`"name":"gatehouse"`, whole), []string{"replace", "-f", "-"}, "'gatehouse-registration' denied request: Gatehouse may"},
			"create":            {object(`"name":"other"`, whole), []string{"create", "-f", "-"}, "neither create nor delete"},
			"create by apply":   {object(`"name":"other"`, whole), []string{"apply", "--server-side", "-f", "-"}, "neither create nor delete"},
			"delete":            {nil, []string{"delete", kind, name}, "neither create nor delete"},
			"delete collection": {nil, []string{"delete", kind, "--all"}, "neither create nor delete"},
		} {
			said, err := s.tryKubectl(t.Context(), c.input, append(c.args, gatehouse, "--dry-run=server")...)
			if err == nil || !strings.Contains(said, c.want) {
				t.Errorf("%s: %s: got %v, %q, want a refusal with %q", kind, what, err, said, c.want)
			}
		}
		if err := patch(s.dynamic, kind, failure, metav1.DryRunAll); err != nil {
			t.Errorf("%s: an administrator is refused: %v", kind, err)
		}
	}
	// Nor does it change the guard.
	for _, kind := range []string{"validatingadmissionpolicy", "validatingadmissionpolicybinding"} {
		for _, args := range [][]string{
			{"delete", kind, "gatehouse-registration"},
			{"patch", kind, "gatehouse-registration", "--type=json", `--patch=[{"op":"remove","path":"/spec"}]`},
		} {
			said, err := s.tryKubectl(t.Context(), nil, append(args, gatehouse, "--dry-run=server")...)
			if err == nil || !strings.Contains(said, "forbidden") {
				t.Errorf("%s %s: got %v, %q", args[0], kind, err, said)
			}
		}
	}
	// The registrations go first, and the guard is not in the way of those who remove them.
	s.uninstall(t, s.Kubeconfig(), 2, "--yes")
	s.kubectl(t, v.withoutHooks(t), "delete", "--ignore-not-found", "--wait=false", "-f", "-")
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		said, err := s.tryKubectl(t.Context(), nil, "get", kind, "gatehouse-registration")
		if err == nil || !strings.Contains(said, "not found") {
			t.Errorf("after the install was removed: %v, %s", err, said)
		}
	}
}

// encoded is how caBundle stands in JSON.
func encoded(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }
