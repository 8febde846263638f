package webhookconfig_test

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"github.com/gatehouse-dev/gatehouse/certs/webhookconfig"
	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

// TestKinds reads and writes a configuration of each kind, of which there is no other, and answers of other kinds.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, kind := range webhookconfig.Kinds() {
		resource := fakeapi.Resource{GroupVersionResource: admissionregistrationv1.SchemeGroupVersion.WithResource(kind.Resource()), Kind: string(kind)}
		server := fakeapi.New(resource)
		client, err := admissionregistrationv1client.NewForConfig(server.Config("test"))
		if err != nil {
			t.Fatal(err)
		}
		rest := client.RESTClient()
		server.Put(map[string]any{
			"apiVersion": admissionregistrationv1.SchemeGroupVersion.String(), "kind": string(kind), "metadata": map[string]any{"name": "a", "resourceVersion": "1"},
			"webhooks": []any{map[string]any{
				"name": "w.example", "reinvocationPolicy": "IfNeeded", "clientConfig": map[string]any{"caBundle": "YQ=="}, "rules": []any{map[string]any{"resources": []any{"pods"}}},
			}},
		})
		for how, read := range map[string]func(name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error){
			"get": func(name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
				return kind.Get(t.Context(), rest, name)
			},
			"find": func(name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
				return kind.Find(t.Context(), rest, name)
			},
		} {
			got, err := read("a")
			if err != nil || got.Name != "a" || got.UID == "" || len(got.Webhooks) != 1 || string(got.Webhooks[0].ClientConfig.CABundle) != "a" || got.Webhooks[0].Rules[0].Resources[0] != "pods" {
				t.Errorf("%s %s: %+v, %v", how, kind, got, err)
			}
			if got, err := read("b"); how == "get" && !apierrors.IsNotFound(err) || how == "find" && (got != nil || err != nil) {
				t.Errorf("%s %s that does not exist: %+v, %v", how, kind, got, err)
			}
			server.Update(func() {
				server.Intercept = func(*fakeapi.Request) (any, error) { return map[string]any{"kind": "Status", "apiVersion": "v1"}, nil }
			})
			if _, err := read("a"); err == nil || !strings.Contains(err.Error(), `of the kind "Status"`) {
				t.Errorf("%s %s, answered with a Status: %v", how, kind, err)
			}
			server.Update(func() { server.Intercept = nil })
		}
		patch := `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "` + string(kind) + `", "metadata": {"name": "a", "annotations": {"b": "c"}}}`
		if err := kind.Apply(t.Context(), rest, "a", "me", []byte(patch)); err != nil || server.Get(resource, "", "a").GetAnnotations()["b"] != "c" {
			t.Errorf("apply %s: %v, %v", kind, server.Get(resource, "", "a"), err)
		}
	}
}

func FuzzManagers(f *testing.F) {
	f.Add(`{"f:webhooks":{"k:{\"name\":\"one\"}":{".":{},"f:clientConfig":{"f:caBundle":{}}}}}`, "one")
	f.Add(`{"f:webhooks":{"k:1":{},"k:{}":{},"v:x":[]}}`, "")
	f.Add(`{"f:webhooks":null}`, "one")
	f.Fuzz(func(t *testing.T, fields, webhook string) {
		all := []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(fields)}, {FieldsV1: metav1.NewFieldsV1(fields), Subresource: "status"}, {}}
		found := webhookconfig.Managers(all, webhook, "clientConfig", "caBundle")
		if len(found) > 1 || len(found) == 1 && !strings.Contains(fields, "aBundle") && !strings.Contains(fields, `\u`) {
			t.Errorf("%q is said to have a caBundle", fields)
		}
	})
}
