package typecheck

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
)

// MostKinds bounds the kinds that a policy is checked against, as in the API
// server.
const MostKinds = 10

// goneGroup is an API group that no supported version of Kubernetes serves.
const goneGroup = "extensions"

// Kind is a kind whose schema is known.
type Kind struct {
	schema.GroupVersionKind
	Type *Type
}

// String returns the kind as diagnostics name it: "apps/v1 Deployment".
func (k Kind) String() string {
	return k.GroupVersion().String() + " " + k.Kind
}

// Schemas are the kinds whose schemas are known. They are not safe for
// concurrent use: schemas are made when they are asked for.
type Schemas struct {
	goTypes *goTypes
	// builtIn has the Go type of each kind of Kubernetes.
	builtIn map[schema.GroupVersionKind]reflect.Type
	custom  map[schema.GroupVersionKind]*Type
	kinds   map[schema.GroupVersionResource]schema.GroupVersionKind
	// groups has the versions of each group that is known whole.
	groups map[string][]string
}

// New returns the schemas of Kubernetes' own kinds, and of those that the given
// CustomResourceDefinitions define.
func New(crds []*unstructured.Unstructured) *Schemas {
	s := &Schemas{
		goTypes: &goTypes{structures: map[string]*Type{}, made: map[reflect.Type]*Type{}},
		builtIn: map[schema.GroupVersionKind]reflect.Type{},
		custom:  map[schema.GroupVersionKind]*Type{},
		kinds:   map[schema.GroupVersionResource]schema.GroupVersionKind{},
		groups:  map[string][]string{},
	}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || gvk.Group == goneGroup || strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") {
			continue
		}
		s.builtIn[gvk] = t
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		s.kinds[plural] = gvk
		s.known(gvk)
	}
	for _, crd := range crds {
		s.customResources(crd)
	}
	for _, versions := range s.groups {
		slices.Sort(versions)
	}
	return s
}

func (s *Schemas) known(gvk schema.GroupVersionKind) {
	if !slices.Contains(s.groups[gvk.Group], gvk.Version) {
		s.groups[gvk.Group] = append(s.groups[gvk.Group], gvk.Version)
	}
}

func (s *Schemas) add(gvk schema.GroupVersionKind, plural string, t *Type) {
	s.custom[gvk] = t
	s.kinds[gvk.GroupVersion().WithResource(plural)] = gvk
	s.known(gvk)
}

// Versions returns the versions of an API group, sorted; none if it is not known.
func (s *Schemas) Versions(group string) []string { return s.groups[group] }

// Groups returns the groups that have a resource, sorted.
func (s *Schemas) Groups(name string) []string {
	return s.names(func(gvr schema.GroupVersionResource) (string, bool) { return gvr.Group, gvr.Resource == name })
}

// Resources returns the resources of a group in any version, sorted.
func (s *Schemas) Resources(group string) []string {
	return s.names(func(gvr schema.GroupVersionResource) (string, bool) { return gvr.Resource, gvr.Group == group })
}

// names returns the names of resources for which of returns true, sorted.
func (s *Schemas) names(of func(schema.GroupVersionResource) (name string, is bool)) []string {
	found := sets.New[string]()
	for gvr := range s.kinds {
		if name, is := of(gvr); is {
			found.Insert(name)
		}
	}
	return sets.List(found)
}

// Kind returns a kind by its name, and false if its schema is not known.
func (s *Schemas) Kind(gvk schema.GroupVersionKind) (Kind, bool) {
	if t := s.custom[gvk]; t != nil {
		return Kind{gvk, t}, t.Name != ""
	}
	if t := s.builtIn[gvk]; t != nil {
		return Kind{gvk, s.goTypes.of(t)}, true
	}
	return Kind{}, false
}

// Match returns the kinds of the objects that rules are about, sorted, MostKinds at
// most. All is false if there may be others: for a wildcard, say.
func (s *Schemas) Match(rules []admissionregistrationv1.NamedRuleWithOperations) (kinds []Kind, all bool) {
	all = true
	for i := range rules {
		rule := &rules[i].Rule
		for _, group := range rule.APIGroups {
			for _, version := range rule.APIVersions {
				for _, resource := range rule.Resources {
					gvk, found := s.object(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
					kind, known := s.Kind(gvk)
					switch {
					case known && !slices.ContainsFunc(kinds, func(k Kind) bool { return k.GroupVersionKind == gvk }):
						kinds = append(kinds, kind)
					case !known && (found || !s.refutes(group, resource)):
						all = false
					}
				}
			}
		}
	}
	slices.SortFunc(kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	if len(kinds) > MostKinds {
		return kinds[:MostKinds], false
	}
	return kinds, all
}

// refutes reports whether a group is known to have no such resource.
func (s *Schemas) refutes(group, resource string) bool {
	name, _, _ := strings.Cut(resource, "/")
	return len(s.groups[group]) > 0 && name != "*" && !slices.Contains(s.Groups(name), group)
}

// object returns the kind of the object in requests for a resource or subresource.
func (s *Schemas) object(gvr schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	name, subresource, _ := strings.Cut(gvr.Resource, "/")
	gvk, found := s.kinds[gvr.GroupVersion().WithResource(name)]
	if !found {
		return schema.GroupVersionKind{}, false
	}
	if own, ok := request.SubresourceKind(gvr.GroupVersion().WithResource(name), subresource); ok {
		return own, true
	}
	switch subresource {
	case "", "status", "ephemeralcontainers", "resize", "approval", "finalize":
		return gvk, true
	default:
		return schema.GroupVersionKind{}, true
	}
}
