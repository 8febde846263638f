// Package webhookconfig reads and writes webhook configurations of both kinds in one way: as ValidatingWebhookConfigurations,
// whose fields the other kind has too.
package webhookconfig

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Kind is a kind of webhook configuration.
type Kind string

// The kinds.
const (
	Mutating   Kind = "MutatingWebhookConfiguration"
	Validating Kind = "ValidatingWebhookConfiguration"
)

// Kinds returns all kinds, in the order in which they are shown.
func Kinds() []Kind { return []Kind{Mutating, Validating} }

// Resource returns the plural as in a Role.
func (k Kind) Resource() string { return strings.ToLower(string(k)) + "s" }

// Get reads a configuration, with the right to get it. The client is that of the API group and version.
func (k Kind) Get(ctx context.Context, client rest.Interface, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return c, k.read(ctx, client.Get().Resource(k.Resource()).Name(name), c)
}

// Find reads a configuration, nil if it does not exist, with the right to list it.
func (k Kind) Find(ctx context.Context, client rest.Interface, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	err := k.read(ctx, client.Get().Resource(k.Resource()).Param("fieldSelector", metav1.ObjectNameField+"="+name), &list)
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i], err
		}
	}
	return nil, err
}

// read decodes what a request reads. The decoder of the client would not decode one kind as the other.
func (k Kind) read(ctx context.Context, request *rest.Request, into runtime.Object) error {
	result := request.SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	text, _ := result.Raw() // its error is that of the result
	err := json.Unmarshal(text, into)
	if is := into.GetObjectKind().GroupVersionKind().Kind; err == nil && !strings.HasPrefix(is, string(k)) {
		err = fmt.Errorf("the answer is of the kind %.100q, and not %s", is, k)
	}
	return err
}

// Apply applies a patch to a configuration, and takes the fields over from other managers.
func (k Kind) Apply(ctx context.Context, client rest.Interface, name, manager string, patch []byte) error {
	return client.Patch(types.ApplyPatchType).Resource(k.Resource()).Name(name).
		Param("fieldManager", manager).Param("force", "true").Body(patch).Do(ctx).Error()
}

// Managers returns the field managers of a field of a webhook.
func Managers(all []metav1.ManagedFieldsEntry, webhook string, field ...any) []metav1.ManagedFieldsEntry {
	path := fieldpath.MakePathOrDie(append([]any{"webhooks", fieldpath.KeyByFields("name", webhook)}, field...)...)
	return slices.DeleteFunc(slices.Clone(all), func(f metav1.ManagedFieldsEntry) bool {
		var set fieldpath.Set
		return f.FieldsV1 == nil || f.Subresource != "" || set.FromJSON(bytes.NewReader(f.FieldsV1.GetRawBytes())) != nil || !set.Has(path)
	})
}
