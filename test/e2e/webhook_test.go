package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/cluster"
)

// addContainers registers another mutating webhook: it puts an init container of its own name in front of the others
// of the pods that the selector selects, if they have none yet.
func (w *world) addContainers(t *testing.T, name, namespace string, pods metav1.LabelSelector) {
	t.Helper()
	cert, key, err := w.authority.Serve(name+"."+system+".svc", cluster.ListenAddress())
	must(t, err)
	certificate, err := tls.X509KeyPair(cert, key)
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		review := admissionv1.AdmissionReview{}
		err := json.NewDecoder(r.Body).Decode(&review)
		var p corev1.Pod
		if err == nil {
			err = json.Unmarshal(review.Request.Object.Raw, &p)
		}
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		if !slices.Contains(names(&p), name) {
			container := corev1.Container{Name: name, Image: "registry.example/other:1"}
			operation := map[string]any{"op": "add", "path": "/spec/initContainers/0", "value": container}
			if len(p.Spec.InitContainers) == 0 {
				operation["path"], operation["value"] = "/spec/initContainers", []corev1.Container{container}
			}
			review.Response.Patch, _ = json.Marshal([]any{operation}) // a container can be written
			review.Response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		}
		_ = json.NewEncoder(rw).Encode(review)
	}))
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
	configurations := w.Client().AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err = configurations.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: name + ".example.com", ClientConfig: client, AdmissionReviewVersions: []string{"v1"},
			SideEffects:        new(admissionregistrationv1.SideEffectClassNone),
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
