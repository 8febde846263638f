package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Served is what an API server serves. It is immutable.
type Served struct {
	// resources are those whose objects can be created and listed, by group and name.
	resources []resource
	// known are the names of all others, too.
	known sets.Set[schema.GroupVersionResource]
	// failed are the groups and versions that cannot be discovered.
	failed map[schema.GroupVersion]error
}

// resource is a resource in all of its versions.
type resource struct {
	schema.GroupResource

	kind       string
	namespaced bool
	// versions are in the order of preference of the API server.
	versions []string
}

// Discover asks an API server what it serves. API groups that cannot be discovered are left out, and
// named by Targets if policies match them.
func Discover(ctx context.Context, access *rest.Config) (*Served, error) {
	client, err := discovery.NewDiscoveryClientForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	groups, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
	if err != nil && !partial {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	out := &Served{known: sets.New[schema.GroupVersionResource]()}
	if partial {
		out.failed = failed.Groups
	}
	out.add(groups, lists)
	return out, nil
}

// add adds the resources of lists, in the order in which the groups have their versions.
func (s *Served) add(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) {
	at := map[schema.GroupResource]int{}
	for _, list := range inOrder(groups, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			s.known.Insert(version.WithResource(r.Name))
			// Without create there is no request that a policy could match: of pods of metrics.k8s.io, for example.
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "create") {
				continue
			}
			name := schema.GroupResource{Group: version.Group, Resource: r.Name}
			n, known := at[name]
			if !known {
				n, at[name] = len(s.resources), len(s.resources)
				s.resources = append(s.resources, resource{GroupResource: name, kind: r.Kind, namespaced: r.Namespaced})
			}
			s.resources[n].versions = append(s.resources[n].versions, version.Version)
		}
	}
	slices.SortFunc(s.resources, func(a, b resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
}

// inOrder returns the lists with the preferred version of each group first.
func inOrder(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) []*metav1.APIResourceList {
	rank := map[string]int{}
	for _, group := range groups {
		for i, version := range group.Versions {
			rank[version.GroupVersion] = i + 1
		}
		rank[group.PreferredVersion.GroupVersion] = 0
	}
	lists = slices.Clone(lists)
	slices.SortStableFunc(lists, func(a, b *metav1.APIResourceList) int { return cmp.Compare(rank[a.GroupVersion], rank[b.GroupVersion]) })
	return lists
}
