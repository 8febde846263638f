package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	schemas "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/schema"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// maxNamespaces bounds the JSON of the namespaces that are kept, in bytes. The Snapshot's lookups know the others.
const maxNamespaces = 32 << 20

// prepare makes the decider, with the namespaces of the cluster as far as they can be read.
func (a *audit) prepare(ctx context.Context) {
	lookups := a.Snapshot.Lookups()
	known := a.readNamespaces(ctx)
	lookups.Namespaces = namespaces{known, lookups.Namespaces}
	objects := lookups.Objects
	if objects == nil {
		objects = a.Snapshot.Policy.Lookups().Objects // which know nothing
	}
	lookups.Objects = clusterObjects{objects, namespaces{known, objects}}
	snapshot := a.Snapshot.With(lookups)
	kinds := make(map[schema.GroupVersionKind]request.Resource, len(a.targets))
	for _, t := range a.targets {
		kinds[t.GroupVersion().WithKind(t.Kind)] = request.Resource{Name: t.Resource, ClusterScoped: !t.Namespaced}
	}
	workloads, err := workload.New(workload.FromAPI(a.Config.Workloads()))
	if err != nil {
		workloads, _ = workload.New(nil) // as a Snapshot does not compile with them
	}
	resources := schemas.Resources(nil).With(kinds)
	// Objects are as they are stored. Only what policies make of them is compared with definitions.
	made := resources.WithSchemas(schemas.New(a.definitions(objects)))
	a.decider = &decider{Decider: admit.Decider{Snapshot: snapshot, Resources: made, Entries: a.Entries}, resources: resources, workloads: workloads}
}

// definitions returns the CustomResourceDefinitions of the kinds that mutating policies may change, as far as they are known.
func (a *audit) definitions(objects policy.Objects) (list []*unstructured.Unstructured) {
	definition := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	policies := newMatchers(a.Config).policies
	for _, t := range a.targets {
		of := resource{GroupResource: t.GroupResource(), namespaced: t.Namespaced, versions: []string{t.Version}}
		mutates := func(m matcher) bool { return m.kind == admit.MutationKind && m.matches(&of) }
		if builtin.Scheme().IsGroupRegistered(t.Group) || !slices.ContainsFunc(policies, mutates) {
			continue
		}
		// Without the definition policies are not evaluated, or what they make is not checked.
		if found, err := objects.Get(definition, "", t.GroupResource().String()); err == nil && found != nil {
			list = append(list, found)
		}
	}
	return list
}

// readNamespaces reads all namespaces at once, or those that are audited one by one. What cannot be read, or is too
// much to keep, is left to the lookups of the Snapshot.
func (a *audit) readNamespaces(ctx context.Context) map[string]*corev1.Namespace {
	if a.KnowsNamespaces && len(a.Namespaces) == 0 {
		return nil
	}
	client, err := a.clients(corev1.SchemeGroupVersion)
	if err != nil {
		return nil // as every list then says
	}
	known, size := map[string]*corev1.Namespace{}, 0
	add := func(text []byte) {
		if size += len(text); size > maxNamespaces {
			return
		}
		n := new(corev1.Namespace)
		if json.Unmarshal(text, n) == nil {
			n.ManagedFields = nil
			known[n.Name] = n
		}
	}
	if len(a.Namespaces) > 0 {
		for _, name := range a.Namespaces {
			text, err := client.Get().Resource("namespaces").Name(name).SetHeader("Accept", "application/json").Do(ctx).Raw()
			if err == nil {
				add(text)
			} else if apierrors.IsNotFound(err) {
				a.out.Unknown = append(a.out.Unknown, fmt.Sprintf("namespace %q", name))
			}
		}
		return known
	}
	list := paging.List{Client: client, Resource: "namespaces", Limit: maxPage, Retries: &a.retries}
	_ = list.Each(ctx, func(page paging.Page) error { // what is missing is left to the lookups
		for _, item := range page.Items {
			add(item)
		}
		return nil
	})
	return known
}

// namespaces are those that were read at the start, and then those that others know.
type namespaces struct {
	known  map[string]*corev1.Namespace
	others sidecar.Namespaces
}

// Namespace returns the namespace of this name, and whether it is known.
func (n namespaces) Namespace(name string) (*corev1.Namespace, bool) {
	if found, ok := n.known[name]; ok {
		return found, true
	}
	if n.others == nil || name == "" {
		return nil, false
	}
	return n.others.Namespace(name)
}

// clusterObjects are the objects that policies look up, with the namespaces of the cluster.
type clusterObjects struct {
	policy.Objects
	namespaces namespaces
}

// Namespace returns the namespace of this name, and whether it is known.
func (o clusterObjects) Namespace(name string) (*corev1.Namespace, bool) {
	return o.namespaces.Namespace(name)
}
