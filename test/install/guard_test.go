package install

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/cluster"
	"github.com/gatehouse-dev/gatehouse/test/installers"
)

// guarded renders the install with the guard of its registration, once by kustomize and once by Helm.
func guarded(t *testing.T) (kustomize, helm *variant) {
	t.Helper()
	program, err := installers.Binary(installers.Kustomize)
	must(t, err)
	// kustomize takes relative paths only.
	overlay := filepath.Join(t.TempDir(), "guarded")
	must(t, os.Mkdir(overlay, 0o700))
	below := func(name string) string {
		path, err := filepath.Rel(overlay, filepath.Join(root(t), "manifests/kustomize", name))
		must(t, err)
		return path
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources":  []string{below("base")},
		"components": []string{below("self-signed"), below("components/guard-registration"), below("components/labels")},
	})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), raw, 0o600))
	kustomize = newVariant(t, "kustomize guarded", run(t, program, "build", overlay))

	program, err = installers.Binary(installers.Helm)
	must(t, err)
	directory := filepath.Join(root(t), chart)
	helm = newVariant(t, "helm guarded", run(t, program, "template", name, directory, "--namespace", system, "--include-crds",
		"--values", filepath.Join(directory, "ci", "self-signed-values.yaml"), "--set", "webhooks.guard.enabled=true"))
	return kustomize, helm
}

// TestSameGuard: the value of the chart and the component of kustomize are the same policy.
func TestSameGuard(t *testing.T) {
	t.Parallel()
	kustomize, helm := guarded(t)
	kustomize.find(t, "ValidatingAdmissionPolicy", "gatehouse-registration")
	kustomize.find(t, "ValidatingAdmissionPolicyBinding", "gatehouse-registration")
	if difference := compare(alike(kustomize), alike(helm)); difference != "" {
		t.Error(difference)
	}
}

// TestGuardOfRegistration: with the guard Gatehouse's ServiceAccount changes caBundle and nothing else, and others are not
// held to that.
func TestGuardOfRegistration(t *testing.T) {
	t.Parallel()
	v, _ := guarded(t)
	s := newSite(t, cluster.Options{})
	s.install(t, v)
	patch := func(kind, text string, more ...string) error {
		args := append([]string{"patch", kind, name, "--type=json", "--patch=" + text}, more...)
		said, err := s.tryKubectl(t.Context(), nil, args...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	}
	const (
		gatehouse = "--as=system:serviceaccount:gatehouse-system:gatehouse"
		failure   = `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`
		bundle    = `[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`
	)
	ca, err := os.ReadFile(s.CAFile())
	must(t, err)
	kinds := map[string]struct{ kind, webhook string }{
		"mutatingwebhookconfiguration":   {"MutatingWebhookConfiguration", "asked.mutate.gatehouse.dev"},
		"validatingwebhookconfiguration": {"ValidatingWebhookConfiguration", "fail.validate.gatehouse.dev"},
	}
	for kind := range kinds {
		// The API server learns of a policy a moment after it was stored.
		poll(t, func() error {
			err := patch(kind, failure, gatehouse, "--dry-run=server")
			if err == nil {
				return fmt.Errorf("what Gatehouse does to the %s is allowed", kind)
			}
			if !strings.Contains(err.Error(), "Gatehouse may change clientConfig.caBundle of webhooks and nothing else") {
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
				must(t, patch(kind, fmt.Sprintf(bundle, encoded(ca)), gatehouse))
			}
			if err := patch(kind, text, gatehouse); err != nil {
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
			"service":           `[{"op":"replace","path":"/webhooks/0/clientConfig/service/name","value":"other"}]`,
			"path":              `[{"op":"replace","path":"/webhooks/0/clientConfig/service/path","value":"/other"}]`,
			"URL":               `[{"op":"replace","path":"/webhooks/0/clientConfig","value":{"url":"https://example.org"}}]`,
			"URL with caBundle": fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig","value":{"url":"https://example.org","caBundle":%q}}]`, encoded(ca)),
			"rules":             `[{"op":"add","path":"/webhooks/0/rules/-","value":{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}}]`,
			"no rules":          `[{"op":"remove","path":"/webhooks/0/rules"}]`,
			"selector":          `[{"op":"add","path":"/webhooks/0/namespaceSelector","value":{}}]`,
			"condition":         `[{"op":"add","path":"/webhooks/0/matchConditions/-","value":{"name":"never","expression":"false"}}]`,
			"no conditions":     `[{"op":"remove","path":"/webhooks/0/matchConditions"}]`,
			"timeout":           `[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":30}]`,
			"name":              `[{"op":"replace","path":"/webhooks/0/name","value":"other.gatehouse.dev"}]`,
			"one less":          `[{"op":"remove","path":"/webhooks/0"}]`,
			"none":              `[{"op":"remove","path":"/webhooks"}]`,
			"one more": `[{"op":"add","path":"/webhooks/-","value":{"name":"more.example.org","sideEffects":"None","admissionReviewVersions":["v1"],` +
				`"clientConfig":{"url":"https://example.org"}}}]`,
			"order":      `[{"op":"move","from":"/webhooks/0","path":"/webhooks/1"}]`,
			"annotation": `[{"op":"add","path":"/metadata/annotations","value":{"cert-manager.io/inject-ca-from":"other/other"}}]`,
			"label":      `[{"op":"add","path":"/metadata/labels/other","value":"other"}]`,
			"finalizer":  `[{"op":"add","path":"/metadata/finalizers","value":["example.org/stay"]}]`,
		} {
			err := patch(kind, text, gatehouse, "--dry-run=server")
			if err == nil || !strings.Contains(err.Error(), "'gatehouse-registration' denied request: Gatehouse may") {
				t.Errorf("%s: %s: got %v, want a refusal by the guard", kind, what, err)
			}
		}
		if err := patch(kind, failure, "--dry-run=server"); err != nil {
			t.Errorf("%s: an administrator is refused: %v", kind, err)
		}
	}
}

// encoded is how caBundle stands in JSON.
func encoded(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }
