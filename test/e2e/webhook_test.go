package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// addContainers registers another mutating webhook: it puts a container of its own name in front of the others of the
// pods that the selector selects, if they have none yet, in one of the two lists of containers.
func (w *world) addContainers(t *testing.T, name, namespace, list string, pods metav1.LabelSelector) {
	t.Helper()
	w.addWebhook(t, name, namespace, pods, func(body []byte) []any {
		var review admissionv1.AdmissionReview
		var p corev1.Pod
		if json.Unmarshal(body, &review) != nil || json.Unmarshal(review.Request.Object.Raw, &p) != nil {
			return nil
		}
		own := p.Spec.InitContainers
		if list == "containers" {
			own = p.Spec.Containers
		}
		if slices.ContainsFunc(own, func(c corev1.Container) bool { return c.Name == name }) {
			return nil
		}
		container := corev1.Container{Name: name, Image: "registry.example/other:1"}
		if len(own) == 0 {
			return []any{map[string]any{"op": "add", "path": "/spec/" + list, "value": []corev1.Container{container}}}
		}
		return []any{map[string]any{"op": "add", "path": "/spec/" + list + "/0", "value": container}}
	})
}

// addWebhook registers another mutating webhook, which answers with the operations of a JSON patch, or none.
func (w *world) addWebhook(t *testing.T, name, namespace string, pods metav1.LabelSelector, answer func(body []byte) []any) {
	t.Helper()
	client := w.serveWebhook(t, name, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		review := admissionv1.AdmissionReview{}
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		if operations := answer(body); len(operations) > 0 {
			review.Response.Patch, _ = json.Marshal(operations) // a container can be written
			review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
		_ = json.NewEncoder(rw).Encode(review)
	}))
	configurations := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := configurations.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name + ".example.com", ClientConfig: client, AdmissionReviewVersions: []string{"v1"},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			// The API server learns by a watch that the webhook is gone.
			FailurePolicy:      new(admissionregistrationv1.Ignore),
			ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
			NamespaceSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ObjectSelector:     &pods,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		err := configurations.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
}

// serveWebhook serves a webhook for a test, and returns what a registration says of it.
func (w *world) serveWebhook(t *testing.T, name string, handler http.Handler) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	cert, key, err := w.authority.Serve(name+"."+system+".svc", cluster.ListenAddress())
	must(t, err)
	certificate, err := tls.X509KeyPair(cert, key)
	must(t, err)
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close() // it listens elsewhere
	server.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(cluster.ListenAddress(), "0"))
	must(t, err)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	address, ok := server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("no TCP address")
	}
	client, err := w.WebhookClientConfig(t.Context(), system, name, address.Port, "/", w.authority.CertPEM())
	must(t, err)
	return client
}
