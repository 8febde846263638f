package request

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestKindsOfKubernetes compares every kind with what the typed client says of
// it: the name of its method is the resource, and it takes a namespace or not.
func TestKindsOfKubernetes(t *testing.T) {
	t.Parallel()
	resources := NewResources(nil)
	compared := 0
	for group := range reflect.TypeFor[kubernetes.Interface]().Methods() {
		for getter := range group.Type.Out(0).Methods() {
			if getter.Type.NumOut() == 0 || getter.Type.Out(0).Kind() != reflect.Interface {
				continue
			}
			create, ok := getter.Type.Out(0).MethodByName("Create")
			if !ok {
				continue
			}
			object, ok := reflect.TypeAssert[runtime.Object](reflect.New(create.Type.In(1).Elem()))
			if !ok {
				t.Fatalf("%s.%s creates a %s", group.Name, getter.Name, create.Type.In(1))
			}
			kinds, _, err := scheme.Scheme.ObjectKinds(object)
			if err != nil {
				t.Fatal(err)
			}
			want := Resource{Name: strings.ToLower(getter.Name), ClusterScoped: getter.Type.NumIn() == 0}
			for _, kind := range kinds {
				if got := resources.Of(kind); got != want {
					t.Errorf("%s: got %+v, want %+v", kind, got, want)
				}
				compared++
			}
		}
	}
	if compared < 80 {
		t.Errorf("%d kinds were compared", compared)
	}
}

func TestResourceOf(t *testing.T) {
	t.Parallel()
	crd := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	}
	versions := []any{map[string]any{"name": "v1"}, map[string]any{"name": "v2"}}
	resources := NewResources([]*unstructured.Unstructured{
		crd(map[string]any{"group": "example.org", "scope": "Namespaced", "versions": versions, "names": map[string]any{"kind": "Ox", "plural": "oxen"}}),
		crd(map[string]any{"group": "example.org", "scope": "Cluster", "versions": versions, "names": map[string]any{"kind": "World", "plural": "worlds"}}),
		// What is no CustomResourceDefinition makes nothing known and no panic.
		crd(nil),
		crd(map[string]any{"group": "example.org", "names": "Broken", "versions": "v1"}),
		crd(map[string]any{"group": "example.org", "versions": []any{1, nil}, "names": map[string]any{"kind": "None", "plural": "nothing"}}),
	})
	for name, c := range map[string]struct {
		kind schema.GroupVersionKind
		want Resource
	}{
		"namespaced custom resource":      {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Ox"}, Resource{Name: "oxen"}},
		"its other version":               {schema.GroupVersionKind{Group: "example.org", Version: "v2", Kind: "Ox"}, Resource{Name: "oxen"}},
		"a version that it has not":       {schema.GroupVersionKind{Group: "example.org", Version: "v3", Kind: "Ox"}, Resource{Name: "oxes", Guessed: true}},
		"cluster-scoped custom resource":  {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "World"}, Resource{Name: "worlds", ClusterScoped: true}},
		"broken definition":               {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "None"}, Resource{Name: "nones", Guessed: true}},
		"definition of custom resources":  {schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, Resource{Name: "customresourcedefinitions", ClusterScoped: true}},
		"unknown with a y behind a vowel": {schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}, Resource{Name: "gateways", Guessed: true}},
		"unknown with a y":                {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Proxy"}, Resource{Name: "proxies", Guessed: true}},
		"unknown with an h":               {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Mesh"}, Resource{Name: "meshes", Guessed: true}},
		"a list is no object":             {schema.GroupVersionKind{Version: "v1", Kind: "PodList"}, Resource{Name: "podlists", Guessed: true}},
		"without a kind":                  {schema.GroupVersionKind{}, Resource{Guessed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := resources.Of(c.kind); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
