package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// resource is how the API server calls a kind.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// source is where objects of one kind come from.
type source struct {
	kind      schema.GroupVersionKind
	client    dynamic.Interface
	discovery *discovery.DiscoveryClient
}

// namespaceKind is the kind of namespaces.
var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace") //nolint:gochecknoglobals // a constant

// find asks for the resource of the kind. An *unservedError says that there is none. It asks for the one group and version, and
// not for everything that the API server has: so a broken group does not affect policies of other groups.
func (s *source) find(ctx context.Context) (*resource, error) {
	if s.kind == namespaceKind {
		return &resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces")}, nil
	}
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

// objects are those in a namespace, all if it is "".
func (s *source) objects(r *resource, namespace string) dynamic.ResourceInterface {
	return s.client.Resource(r.GroupVersionResource).Namespace(namespace)
}

func (s *source) get(ctx context.Context, r *resource, namespace, name string) (runtime.Object, error) {
	return s.objects(r, namespace).Get(ctx, name, metav1.GetOptions{})
}

// kindLabel names a kind: "ConfigMap.v1", "Limit.v1.example.com".
func kindLabel(kind schema.GroupVersionKind) string {
	text := kind.Kind + "." + kind.Version
	if kind.Group != "" {
		text += "." + kind.Group
	}
	return text
}
