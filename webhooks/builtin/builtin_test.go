package builtin_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/webhooks/builtin"
)

// TestTypeOf holds that every kind that Kubernetes' clients know is known, and
// others are not.
func TestTypeOf(t *testing.T) {
	t.Parallel()
	kinds := 0
	for kind := range clientgoscheme.Scheme.AllKnownTypes() {
		if kind.Group == "" && kind.Version == "v1" && kind.Kind == "Status" || kind.Version == "__internal" {
			continue
		}
		if kinds++; builtin.TypeOf(kind) == nil {
			t.Errorf("%s has no type", kind)
		}
	}
	if kinds < 300 {
		t.Errorf("only %d kinds", kinds)
	}
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: true,
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}:             true,
		{Group: "autoscaling", Version: "v1", Kind: "Scale"}:                             true,
		{Group: "example.com", Version: "v1", Kind: "Pod"}:                               false,
		{Version: "v2", Kind: "Pod"}:                                                     false,
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}:           false,
	} {
		if got := builtin.TypeOf(kind) != nil; got != want {
			t.Errorf("%s: known %t, want %t", kind, got, want)
		}
	}
}
