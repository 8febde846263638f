package request

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
)

// Resource is the resource of a kind.
type Resource struct {
	// Name is the plural, as in "pods".
	Name string
	// ClusterScoped reports whether objects are not namespaced.
	ClusterScoped bool
	// Guessed reports whether the kind is unknown: Name is its usual plural, and its objects are assumed to be namespaced. Policies
	// that name another plural do not match then.
	Guessed bool
}

// Resources are the resources of Kubernetes and of CustomResourceDefinitions. They are immutable.
type Resources struct {
	kinds map[schema.GroupVersionKind]Resource
	// preferred has the preferred version of each kind.
	preferred map[schema.GroupKind]schema.GroupVersionKind
	schemas   Schemas
}

// Schemas are those of kinds, as package schema has them.
type Schemas interface {
	// Prepare does to a custom resource what the API server does when it decodes one.
	Prepare(kind schema.GroupVersionKind, object, old map[string]any, keepsStatus bool) error
	// Check returns what the API server rejects of an object on its own.
	Check(ctx context.Context, kind schema.GroupVersionKind, object, old map[string]any) (found diagnostic.List, undecodable bool, err error)
}

// WithSchemas returns the resources with schemas, by which custom resources are prepared and objects checked.
func (r *Resources) WithSchemas(schemas Schemas) *Resources {
	out := *r
	out.schemas = schemas
	return &out
}

// Prepare does to an object what the API server does when it decodes one of a custom kind, and to its status what it does before
// policies are evaluated. Old is the object that it updates, nil for none; keepsStatus is for a stored object, or one of a subresource. An
// object of a kind whose schema is not known, or is invalid, stays as it is.
func (r *Resources) Prepare(object, old map[string]any, keepsStatus bool) {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if r.schemas != nil {
		_ = r.schemas.Prepare(schema.FromAPIVersionAndKind(version, kind), object, old, keepsStatus) // a check by the schema reports it
	}
}

// NewResources returns the resources of Kubernetes and of these CustomResourceDefinitions, which take precedence. Invalid ones are skipped:
// their kinds are unknown.
func NewResources(crds []*unstructured.Unstructured) *Resources {
	r := &Resources{
		kinds:     make(map[schema.GroupVersionKind]Resource),
		preferred: make(map[schema.GroupKind]schema.GroupVersionKind),
	}
	object := reflect.TypeFor[metav1.Object]()
	for gvk, of := range scheme.Scheme.AllKnownTypes() {
		// Lists, options and watch events are no objects.
		if gvk.Version != runtime.APIVersionInternal && reflect.PointerTo(of).Implements(object) {
			r.know(gvk, Resource{Name: plural(gvk.Kind), ClusterScoped: builtin.IsClusterScoped(gvk.GroupKind())})
		}
	}
	for _, gvk := range addedKinds() {
		r.know(gvk, Resource{Name: plural(gvk.Kind), ClusterScoped: builtin.IsClusterScoped(gvk.GroupKind())})
	}
	for _, crd := range crds {
		scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
		Versions(crd.Object, func(gvk schema.GroupVersionKind, plural string, _ map[string]any) {
			r.know(gvk, Resource{Name: plural, ClusterScoped: scope == "Cluster"})
		})
	}
	return r
}

// With returns the resources with more kinds, which take precedence.
func (r *Resources) With(kinds map[schema.GroupVersionKind]Resource) *Resources {
	out := &Resources{kinds: maps.Clone(r.kinds), preferred: maps.Clone(r.preferred), schemas: r.schemas}
	for kind, as := range kinds {
		out.know(kind, as)
	}
	return out
}

// addedKinds returns the kinds of Kubernetes that are not in the scheme of its client.
func addedKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	}
}

// Versions calls f with each version of the kind that a CustomResourceDefinition defines, and its plural. Invalid parts are skipped.
func Versions(crd map[string]any, f func(kind schema.GroupVersionKind, plural string, version map[string]any)) {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(crd, path...)
		return s
	}
	group, kind, name := text("spec", "group"), text("spec", "names", "kind"), text("spec", "names", "plural")
	if group == "" || kind == "" || name == "" {
		return
	}
	listed, _, _ := unstructured.NestedFieldNoCopy(crd, "spec", "versions")
	versions, _ := listed.([]any)
	for _, version := range versions {
		of, _ := version.(map[string]any)
		if v, _, _ := unstructured.NestedString(of, "name"); v != "" {
			f(schema.GroupVersionKind{Group: group, Version: v, Kind: kind}, name, of)
		}
	}
}

func (r *Resources) know(kind schema.GroupVersionKind, as Resource) {
	r.kinds[kind] = as
	if last, known := r.preferred[kind.GroupKind()]; !known || isPreferred(kind, last) {
		r.preferred[kind.GroupKind()] = kind
	}
}

// Of returns the resource of a kind.
func (r *Resources) Of(gvk schema.GroupVersionKind) Resource {
	if known, ok := r.kinds[gvk]; ok {
		return known
	}
	return Resource{Name: plural(gvk.Kind), Guessed: true}
}

// Groups returns the groups that have a resource of a plural, sorted.
func (r *Resources) Groups(resource string) []string {
	var groups []string
	for kind, of := range r.kinds {
		if of.Name == resource {
			groups = append(groups, kind.Group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// plural returns the usual plural of a kind, which is that of all kinds of Kubernetes.
func plural(kind string) string {
	name := strings.ToLower(kind)
	ends := func(ends ...string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) })
	}
	switch {
	case name == "", name == "endpoints":
		return name
	case ends("s", "x", "z", "ch", "sh"):
		return name + "es"
	case ends("y") && !ends("ay", "ey", "oy", "uy"):
		return strings.TrimSuffix(name, "y") + "ies"
	default:
		return name + "s"
	}
}
