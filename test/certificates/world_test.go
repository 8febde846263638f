// Package certificates shows the certificates of Gatehouse to a real API server, which calls a webhook all the time while
// a CA is rotated. No call may fail.
//
// All tests share one control plane, each with a namespace, a Service, a registration and a Secret of its own. None is
// parallel to another: they share two processors with an API server that is kept busy.
package certificates

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

const (
	// lag is several times what an API server that has nothing to wait for needs to notice a change.
	lag = 2 * time.Second
	// enough is how many calls a test of a rotation makes at least.
	enough = 4_000
)

var shared cluster.Shared

func TestMain(m *testing.M) { os.Exit(cluster.RunInNamespace(m, shared.Stop)) }

// hook is one validating webhook as the API server knows it: a Service, and a registration without a bundle.
type hook struct {
	*cluster.Cluster
	// name is that of the namespace, and of the registration, which is about its ConfigMaps.
	name string
}

const (
	// service is the name of a hook's Service.
	service = "webhook"
	// secret is the name of a hook's Secret.
	secret = "ca"
)

func newHook(t *testing.T) *hook {
	t.Helper()
	if !cluster.Namespaced() {
		t.Skip("network namespaces are not allowed here, as RunInNamespace said: without one there is no Service, and an API server " +
			"that calls a loopback URL makes one connection for everything")
	}
	c := shared.Get(t)
	h := &hook{Cluster: c, name: c.NewNamespace(t, nil)}
	must(t, h.ServiceFor(t.Context(), h.name, service))
	h.register(t)
	return h
}

// host is the name by which the API server calls.
func (h *hook) host() string { return service + "." + h.name + ".svc" }

func (h *hook) register(t *testing.T) {
	t.Helper()
	configurations := h.configurations()
	_, err := configurations.Create(t.Context(), h.registration(), metav1.CreateOptions{FieldManager: "installer"})
	must(t, err)
	t.Cleanup(func() {
		err := configurations.Delete(context.WithoutCancel(t.Context()), h.name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
}

// registration is what an administrator installs: all but the bundle.
func (h *hook) registration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: h.name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.gatehouse.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: h.name, Name: service, Path: new("/validate")},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
				},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": h.name}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(10)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

func (h *hook) configurations() typedv1.ValidatingWebhookConfigurationInterface {
	return h.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
}

// bundle is what the registration trusts.
func (h *hook) bundle(ctx context.Context) ([]byte, error) {
	found, err := h.configurations().Get(ctx, h.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.Webhooks[0].ClientConfig.CABundle, nil
}

// endpoints makes the Service call servers at these ports.
func (h *hook) endpoints(t *testing.T, ports ...int) {
	t.Helper()
	must(t, h.ServiceFor(t.Context(), h.name, service, ports...))
}

var errNotYet = errors.New("not yet")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
