package cabundle

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// validating is the kind ValidatingWebhookConfiguration.
type validating struct{}

func (validating) name() string     { return "ValidatingWebhookConfiguration" }
func (validating) resource() string { return "validatingwebhookconfigurations" }
func (validating) short() string    { return "validating" }

func (k validating) get(ctx context.Context, client certs.Client, name string) (*object, error) {
	found, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return k.convert(found), nil
}

func (k validating) list(ctx context.Context, client certs.Client, options metav1.ListOptions) ([]*object, string, error) {
	found, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, options)
	if err != nil {
		return nil, "", err
	}
	var objects []*object
	for i := range found.Items {
		objects = append(objects, k.convert(&found.Items[i]))
	}
	return objects, found.ResourceVersion, nil
}

func (validating) watch(ctx context.Context, client certs.Client, options metav1.ListOptions) (watch.Interface, error) {
	return client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Watch(ctx, options)
}

func (k validating) convert(o runtime.Object) *object {
	found, ok := o.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	if !ok {
		return nil
	}
	converted := newObject(k, &found.ObjectMeta)
	for i := range found.Webhooks {
		w := &found.Webhooks[i]
		converted.entries = append(converted.entries, newEntry(w.Name, &w.ClientConfig))
	}
	return converted
}

func (validating) apply(ctx context.Context, client certs.Client, name, resourceVersion string, entries []entry) error {
	patch := apply.ValidatingWebhookConfiguration(name).WithResourceVersion(resourceVersion)
	for _, e := range entries {
		patch.WithWebhooks(apply.ValidatingWebhook().WithName(e.name).WithClientConfig(apply.WebhookClientConfig().WithCABundle([]byte(e.raw)...)))
	}
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Apply(ctx, patch, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	return err
}
