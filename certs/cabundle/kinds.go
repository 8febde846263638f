package cabundle

import (
	"context"
	"encoding/json"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// kind is a kind of webhook configuration.
type kind string

const (
	mutating   kind = "MutatingWebhookConfiguration"
	validating kind = "ValidatingWebhookConfiguration"
)

// kinds returns all kinds, in the order in which they are shown.
func kinds() []kind { return []kind{mutating, validating} }

// prefix returns what begins a Registration of the kind.
func (k kind) prefix() string {
	if k == mutating {
		return "mutating"
	}
	return "validating"
}

// resource returns the plural as in a Role.
func (k kind) resource() string { return strings.ToLower(string(k)) + "s" }

// calls are the requests to an API server about a kind.
type calls struct {
	get   func(ctx context.Context, name string) (runtime.Object, error)
	list  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	apply func(ctx context.Context, name string, patch []byte) error
}

func (k kind) calls(client certs.Client) calls {
	if k == mutating {
		return callsOf(client.AdmissionregistrationV1().MutatingWebhookConfigurations())
	}
	return callsOf(client.AdmissionregistrationV1().ValidatingWebhookConfigurations())
}

// typedClient is a client of one kind, with its type and that of its lists.
type typedClient[O, L runtime.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (O, error)
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string) (O, error)
}

func callsOf[O, L runtime.Object](client typedClient[O, L]) calls {
	return calls{
		get: func(ctx context.Context, name string) (runtime.Object, error) {
			return client.Get(ctx, name, metav1.GetOptions{})
		},
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		watch: client.Watch,
		apply: func(ctx context.Context, name string, patch []byte) error {
			// Forced, to take over a caBundle from other managers.
			_, err := client.Patch(ctx, name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager, Force: new(true)})
			return err
		},
	}
}

// patch returns the server-side apply patch that writes the caBundles of entries. The API
// server removes caBundles that were applied before and are missing now.
func (k kind) patch(name, resourceVersion string, entries []entry) ([]byte, error) {
	// The kinds have all of these fields in common.
	patch := apply.ValidatingWebhookConfiguration(name).WithKind(string(k)).WithResourceVersion(resourceVersion)
	for _, e := range entries {
		patch.WithWebhooks(apply.ValidatingWebhook().WithName(e.name).WithClientConfig(apply.WebhookClientConfig().WithCABundle([]byte(e.raw)...)))
	}
	return json.Marshal(patch)
}

// convert returns the used part of a webhook configuration, nil if it is none of
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

// find returns the configuration of a name in a list, nil if it is missing.
func (k kind) find(list runtime.Object, name string) (found *object, err error) {
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if o := k.convert(item); o != nil && o.name == name {
			found = o
		}
		return nil
	})
	return found, err
}
