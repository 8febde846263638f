package offline

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

// isConvertible reports whether objects of a kind are for convert, which names those that have no translation.
func isConvertible(group, kind string) bool {
	return strings.HasSuffix(group, "kyverno.io") && (strings.HasSuffix(kind, "Policy") || kind == "PolicyException") ||
		group == "templates.gatekeeper.sh" && kind == "ConstraintTemplate" || group == "constraints.gatekeeper.sh"
}

// readCluster returns the policies, exceptions, templates and constraints of a cluster, each as a file with its resource and name, and its
// kinds. Kinds that the cluster does not have are none.
func readCluster(
	ctx context.Context, access *rest.Config, workloads *manifest.Workloads,
) (objects []*manifest.Object, kinds map[schema.GroupVersionKind]request.Resource, err error) {
	found, err := discovery.NewDiscoveryClientForConfig(access)
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, nil, err
	}
	_, lists, err := found.ServerGroupsAndResourcesWithContext(ctx)
	if failed, partial := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); partial {
		err = nil
		for version, why := range failed.Groups {
			if isConvertible(version.Group, "Policy") || isConvertible(version.Group, "ConstraintTemplate") {
				err = why
			}
		}
	}
	if err != nil {
		return nil, nil, cmp.Or(apierr.Unreached(err), apierr.Explain("read the kinds of the cluster", err))
	}
	kinds = map[schema.GroupVersionKind]request.Resource{}
	var read []schema.GroupResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			of := version.WithResource(r.Name)
			if !strings.Contains(r.Name, "/") {
				kinds[version.WithKind(r.Kind)] = request.Resource{Name: r.Name, ClusterScoped: !r.Namespaced}
			}
			if !isConvertible(version.Group, r.Kind) || !slices.Contains(r.Verbs, "list") || slices.Contains(read, of.GroupResource()) {
				continue
			}
			read = append(read, of.GroupResource()) // other versions have the same objects
			all, err := readResource(ctx, client, of, workloads)
			if err != nil {
				return nil, nil, cmp.Or(apierr.Unreached(err), apierr.Explain("list "+of.GroupResource().String(), err))
			}
			objects = append(objects, all...)
		}
	}
	return objects, kinds, nil
}

// readResource returns the objects of a resource.
func readResource(ctx context.Context, client dynamic.Interface, of schema.GroupVersionResource, workloads *manifest.Workloads) ([]*manifest.Object, error) {
	var objects []*manifest.Object
	err := paging.Objects(ctx, client.Resource(of).List, metav1.ListOptions{}, func(o *unstructured.Unstructured) error {
		o.SetManagedFields(nil)
		unstructured.RemoveNestedField(o.Object, "status")
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		objects = append(objects, manifest.Read(path.Join(of.Resource, o.GetNamespace(), o.GetName()), text, workloads).Objects...)
		return nil
	})
	return objects, err
}
