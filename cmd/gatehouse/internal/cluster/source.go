package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// resource is how the API server calls a kind.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// source is where objects of one kind come from.
type source interface {
	// find asks for the kind's resource. An *unservedError says that there is
	// none.
	find(ctx context.Context) (*resource, error)
	// example is an object of the type that list and watch give.
	example() runtime.Object
	list(ctx context.Context, r *resource, namespace string, o metav1.ListOptions) (runtime.Object, error)
	watch(ctx context.Context, r *resource, namespace string, o metav1.ListOptions) (watch.Interface, error)
	get(ctx context.Context, r *resource, namespace, name string) (runtime.Object, error)
}

// namespaceSource are the namespaces, in their own type: what expressions see of
// them is upstream's, and half the memory.
type namespaceSource struct {
	client corev1client.NamespaceInterface
}

func (namespaceSource) find(context.Context) (*resource, error) {
	return &resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces")}, nil
}

func (namespaceSource) example() runtime.Object { return &corev1.Namespace{} }

func (s namespaceSource) list(ctx context.Context, _ *resource, _ string, o metav1.ListOptions) (runtime.Object, error) {
	return s.client.List(ctx, o)
}

func (s namespaceSource) watch(ctx context.Context, _ *resource, _ string, o metav1.ListOptions) (watch.Interface, error) {
	return s.client.Watch(ctx, o)
}

func (s namespaceSource) get(ctx context.Context, _ *resource, _, name string) (runtime.Object, error) {
	return s.client.Get(ctx, name, metav1.GetOptions{})
}

// paramSource are objects of any other kind, as policies see them.
type paramSource struct {
	kind      schema.GroupVersionKind
	client    dynamic.Interface
	discovery *discovery.DiscoveryClient
}

// find asks for the one group and version, and not for everything that the API
// server has: so a broken group does not affect policies of other groups.
func (s *paramSource) find(ctx context.Context) (*resource, error) {
	gv := s.kind.GroupVersion()
	// These become parts of a path, and no document has been checked yet.
	if len(validation.IsDNS1035Label(gv.Version)) > 0 || gv.Group != "" && len(validation.IsDNS1123Subdomain(gv.Group)) > 0 {
		return nil, &unservedError{s.kind, "group or version is not a valid name"}
	}
	list, err := s.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	switch {
	case apierrors.IsNotFound(err):
		return nil, &unservedError{s.kind, fmt.Sprintf("the cluster does not serve %s", gv)}
	case err != nil:
		return nil, err
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == s.kind.Kind && !slices.Contains([]byte(r.Name), '/')
	})
	if i < 0 {
		return nil, &unservedError{s.kind, fmt.Sprintf("the cluster serves %s without that kind", gv)}
	}
	found := list.APIResources[i]
	for _, verb := range []string{"list", "watch"} {
		if !slices.Contains(found.Verbs, verb) {
			return nil, &unservedError{s.kind, fmt.Sprintf("%s does not know the verb %s", found.Name, verb)}
		}
	}
	return &resource{GroupVersionResource: gv.WithResource(found.Name), namespaced: found.Namespaced}, nil
}

func (*paramSource) example() runtime.Object { return &unstructured.Unstructured{} }

func (s *paramSource) list(ctx context.Context, r *resource, namespace string, o metav1.ListOptions) (runtime.Object, error) {
	return s.client.Resource(r.GroupVersionResource).Namespace(namespace).List(ctx, o)
}

func (s *paramSource) watch(ctx context.Context, r *resource, namespace string, o metav1.ListOptions) (watch.Interface, error) {
	return s.client.Resource(r.GroupVersionResource).Namespace(namespace).Watch(ctx, o)
}

func (s *paramSource) get(ctx context.Context, r *resource, namespace, name string) (runtime.Object, error) {
	return s.client.Resource(r.GroupVersionResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// kindLabel names a kind: "ConfigMap.v1", "Limit.v1.example.com".
func kindLabel(kind schema.GroupVersionKind) string {
	text := kind.Kind + "." + kind.Version
	if kind.Group != "" {
		text += "." + kind.Group
	}
	return text
}
