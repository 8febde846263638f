package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A policy about what the webhook configurations do not send, and a profile without the webhook that sends pods, are
// silent: everybody is told, by conditions and Events, until it is sent.
func TestWhatIsNotSentIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.applyDefinitions(t.Context()))
	w.createShop(t)
	c := newResourceInstall(t, w, resourceOptions{}).start(t)
	services := strings.ReplaceAll(policyNamed("services", "object.metadata.name != 'red'", ""), "resources: [pods]", "resources: [services]")
	must(t, w.apply(t.Context(), policyNamed("pods", "object.metadata.name != 'red'", "")+profileNamed("logs")))
	w.refuses(t, "red", "no pods")
	w.hasConditions(t, "admissionpolicy", "", "pods", inUse, healthy)
	w.hasConditions(t, "sidecarprofile", "", "logs", inUse, healthy)
	must(t, w.apply(t.Context(), services))
	const unsent = "services:CREATE: not sent to Gatehouse (hint: serve --manage-registration, or gatehouse manifests --config with this policy)"
	w.hasConditions(t, "admissionpolicy", "", "services", inUse, "Degraded=True/NotSent", unsent)
	w.event(t, metav1.NamespaceDefault, "AdmissionPolicy", "services", "NotSent", unsent)

	config := t.TempDir()
	must(t, os.WriteFile(filepath.Join(config, "services.yaml"), []byte(services), 0o600))
	printed := c.manifests(t, "--config", config)
	must(t, w.apply(t.Context(), printed))
	w.hasConditions(t, "admissionpolicy", "", "services", inUse, healthy)

	mutating := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	must(t, mutating.Delete(t.Context(), c.name, metav1.DeleteOptions{}))
	const unasked = "no webhook sends new pods to Gatehouse, so no pod gets sidecars (hint: apply the output of gatehouse manifests again)"
	w.hasConditions(t, "sidecarprofile", "", "logs", inUse, "Degraded=True/NotSent", unasked)
	w.hasConditions(t, "admissionpolicy", "", "pods", inUse, healthy)
	must(t, w.apply(t.Context(), profileNamed("metrics")))
	must(t, w.apply(t.Context(), printed))
	w.hasConditions(t, "sidecarprofile", "", "logs", inUse, healthy)
	w.hasConditions(t, "sidecarprofile", "", "metrics", inUse, healthy)
	w.sidecarImages(t, "x", "x")
}
