package cabundle

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// kind is a kind of webhook configuration. The two kinds differ in their types
// alone.
type kind struct {
	// name is the kind, resource its plural as in a Role, and short what begins a
	// Registration.
	name, resource, short string
	calls
}

// calls are the requests to an API server about a kind.
type calls interface {
	get(ctx context.Context, client certs.Client, name string) (runtime.Object, error)
	list(ctx context.Context, client certs.Client, options metav1.ListOptions) (runtime.Object, error)
	watch(ctx context.Context, client certs.Client, options metav1.ListOptions) (watch.Interface, error)
	// apply writes the caBundles of entries by server-side apply. The caBundles that
	// were applied before, and are missing now, are removed.
	apply(ctx context.Context, client certs.Client, name, resourceVersion string, entries []entry) error
}

// kinds are all kinds, in the order in which they are shown.
func kinds() []kind {
	return []kind{
		{"MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutating", mutating{}},
		{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validating", validating{}},
	}
}

// convert returns what matters of a webhook configuration, nil if it is none of
// this kind.
func (k kind) convert(o runtime.Object) *object {
	var converted *object
	switch found := o.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		converted = newObject(k, &found.ObjectMeta)
		for i := range found.Webhooks {
			converted.entries = append(converted.entries, newEntry(found.Webhooks[i].Name, &found.Webhooks[i].ClientConfig))
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		converted = newObject(k, &found.ObjectMeta)
		for i := range found.Webhooks {
			converted.entries = append(converted.entries, newEntry(found.Webhooks[i].Name, &found.Webhooks[i].ClientConfig))
		}
	}
	return converted
}

// find returns the configuration of a name in a list, nil if it is missing, and the
// resource version of the list.
func (k kind) find(list runtime.Object, name string) (found *object, resourceVersion string, err error) {
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if o := k.convert(item); o != nil && o.name == name {
			found = o
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	resourceVersion, err = meta.NewAccessor().ResourceVersion(list)
	return found, resourceVersion, err
}

// applyOptions lets a Publisher take over a caBundle from other managers.
func applyOptions() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
}

type mutating struct{}

func (mutating) get(ctx context.Context, client certs.Client, name string) (runtime.Object, error) {
	return client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
}

func (mutating) list(ctx context.Context, client certs.Client, options metav1.ListOptions) (runtime.Object, error) {
	return client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, options)
}

func (mutating) watch(ctx context.Context, client certs.Client, options metav1.ListOptions) (watch.Interface, error) {
	return client.AdmissionregistrationV1().MutatingWebhookConfigurations().Watch(ctx, options)
}

func (mutating) apply(ctx context.Context, client certs.Client, name, resourceVersion string, entries []entry) error {
	patch := apply.MutatingWebhookConfiguration(name).WithResourceVersion(resourceVersion)
	for _, e := range entries {
		patch.WithWebhooks(apply.MutatingWebhook().WithName(e.name).WithClientConfig(apply.WebhookClientConfig().WithCABundle([]byte(e.raw)...)))
	}
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Apply(ctx, patch, applyOptions())
	return err
}

type validating struct{}

func (validating) get(ctx context.Context, client certs.Client, name string) (runtime.Object, error) {
	return client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
}

func (validating) list(ctx context.Context, client certs.Client, options metav1.ListOptions) (runtime.Object, error) {
	return client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, options)
}

func (validating) watch(ctx context.Context, client certs.Client, options metav1.ListOptions) (watch.Interface, error) {
	return client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Watch(ctx, options)
}

func (validating) apply(ctx context.Context, client certs.Client, name, resourceVersion string, entries []entry) error {
	patch := apply.ValidatingWebhookConfiguration(name).WithResourceVersion(resourceVersion)
	for _, e := range entries {
		patch.WithWebhooks(apply.ValidatingWebhook().WithName(e.name).WithClientConfig(apply.WebhookClientConfig().WithCABundle([]byte(e.raw)...)))
	}
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Apply(ctx, patch, applyOptions())
	return err
}
