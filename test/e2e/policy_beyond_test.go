package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support"
)

// beyondNamespace is where policies do what upstream's do not.
const beyondNamespace = "beyond"

// noted waits until the audit log has an annotation.
func (w *world) noted(t *testing.T, verb, name, key string, fits func(value string) bool) {
	t.Helper()
	support.Eventually(t, "the audit log", func() error {
		annotations, err := w.auditedAs(verb, beyondNamespace, name)
		if err == nil && !fits(annotations[key]) {
			err = fmt.Errorf("the annotations are %q", annotations)
		}
		return err
	})
}

func is(want string) func(string) bool { return func(value string) bool { return value == want } }

// admittedOrNot is "" for a request that was admitted, or failed for a reason that is not ours, and otherwise what is
// behind the name of the webhook.
func admittedOrNot(err error) string {
	if err == nil {
		return ""
	}
	_, text, _ := strings.Cut(err.Error(), byWebhook)
	return text
}

// Policies of our own do on the real API server what upstream's do not.
func TestBeyondUpstream(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	w.newNamespace(t, beyondNamespace, nil)
	must(t, w.apply(t.Context(), rolloutDefinition))
	b := &beyond{client: w.Client()}
	b.prepare(t)
	b.policyServer = w.servePolicies(t, "beyond", beyondDocuments(), "", beyondNamespace)
	support.Eventually(t, "the registration", func() error {
		return refusal(b.createConfigMap(configMap("x", map[string]string{"beyond": "quota"}, "a=1", "b=2"), dryRun), 422, "at most 1")
	})

	for name, test := range map[string]func(*testing.T){
		"templates": b.templates, "causes": b.causes, "existing": b.existing, "who may update": b.guarded, "deleting": b.deleting,
		"exceptions": b.exceptions, "expiry": b.expiry, "ephemeral containers": b.ephemeral, "connections": b.connections,
		"deletions": b.deletions, "subresources": b.subresources, "warnings": b.warnings, "long refusals": b.refusals,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// beyond is what the parts of TestBeyondUpstream share.
type beyond struct {
	*policyServer
	client kubernetes.Interface
}

// prepare creates what was there before the policies.
func (b *beyond) prepare(t *testing.T) {
	t.Helper()
	for _, c := range []*corev1.ConfigMap{
		configMap("owned", map[string]string{"beyond": "owners", "tier": "1"}, "owner=eve", "a=1"),
		configMap("owned-always", map[string]string{"beyond": "owners-always"}, "owner=eve"),
		configMap("held", map[string]string{"beyond": "owners", "tier": "1"}, "owner=eve"),
		configMap("held-always", map[string]string{"beyond": "owners-always"}, "owner=eve"),
		configMap("guarded", map[string]string{"beyond": "guarded"}, "a=1"),
		configMap("frozen", map[string]string{"beyond": "frozen"}, "a=1"),
	} {
		if strings.HasPrefix(c.Name, "held") {
			c.Finalizers = []string{"beyond.example.com/hold"}
		}
		must(t, b.createConfigMap(c, metav1.CreateOptions{}))
	}
	_, err := b.client.CoreV1().Pods(beyondNamespace).Create(t.Context(), pod("plain", labelled("beyond", "images")), metav1.CreateOptions{})
	must(t, err)
	for _, name := range []string{"scaled", "bad-before"} {
		d := b.deployment(name, "none")
		if name == "bad-before" {
			d.Spec.Template.Labels["beyond"], d.Spec.Template.Spec.Containers[0].Image = "images", "other.example/app:1"
		}
		_, err := b.client.AppsV1().Deployments(beyondNamespace).Create(t.Context(), d, metav1.CreateOptions{})
		must(t, err)
	}
}

func (b *beyond) createConfigMap(c *corev1.ConfigMap, options metav1.CreateOptions) error {
	_, err := b.client.CoreV1().ConfigMaps(beyondNamespace).Create(context.Background(), c, options)
	return err
}
