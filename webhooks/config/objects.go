package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	kindversions "github.com/gatehouse-dev/gatehouse/webhooks/kinds/versions"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// objects are the context objects of a directory: what policies and templates
// may look up. They never change, and are safe for concurrent use. What they
// return is shared by all callers and must not be changed.
type objects struct {
	namespaces map[string]*corev1.Namespace
	byKind     map[schema.GroupVersionKind]map[placed]*unstructured.Unstructured
	sorted     map[schema.GroupVersionKind]map[string][]*unstructured.Unstructured
	// scopes is whether the kinds of the CustomResourceDefinitions are in namespaces.
	scopes map[schema.GroupKind]bool
}

// placed is the place of an object among those of its kind.
type placed struct{ namespace, name string }

func newObjects(context []*unstructured.Unstructured) *objects {
	o := &objects{
		namespaces: map[string]*corev1.Namespace{},
		byKind:     map[schema.GroupVersionKind]map[placed]*unstructured.Unstructured{},
		sorted:     map[schema.GroupVersionKind]map[string][]*unstructured.Unstructured{},
		scopes:     map[schema.GroupKind]bool{},
	}
	for _, u := range context {
		gvk := u.GroupVersionKind()
		if gvk == corev1.SchemeGroupVersion.WithKind("Namespace") {
			n := new(corev1.Namespace)
			if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n) == nil { // it was decoded strictly
				o.namespaces[n.Name] = n
			}
		}
		if o.byKind[gvk] == nil {
			o.byKind[gvk] = map[placed]*unstructured.Unstructured{}
			o.sorted[gvk] = map[string][]*unstructured.Unstructured{}
		}
		o.byKind[gvk][placed{u.GetNamespace(), u.GetName()}] = u
		o.sorted[gvk][u.GetNamespace()] = append(o.sorted[gvk][u.GetNamespace()], u)
		if kind, namespaced, ok := CustomScope(u); ok {
			o.scopes[kind] = namespaced
		}
	}
	for _, byNamespace := range o.sorted {
		for _, list := range byNamespace {
			slices.SortFunc(list, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
		}
	}
	return o
}

// WithContext returns this configuration with more objects that policies and templates may look up, which take the place of those of
// their kind, namespace and name.
func (c *Config) WithContext(context []*unstructured.Unstructured) *Config {
	out := *c
	out.Context = slices.DeleteFunc(slices.Clone(c.Context), func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(context, func(other *unstructured.Unstructured) bool { return IsSame(o, other) })
	})
	out.Context = append(out.Context, context...)
	out.provide(newObjects(out.Context))
	return &out
}

// provide has policies and templates look up these objects.
func (c *Config) provide(o *objects) {
	c.Policy.Objects, c.Sidecar.Namespaces, c.Sidecar.ConfigMaps = o, o, o
	definitions, _ := o.List(definitionKind(), "", nil) // there is never an error
	c.Mutation.Schemas = mutation.NewCustomKinds(definitions)
}

// definitionKind returns the kind of CustomResourceDefinitions.
func definitionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
}

// IsSame reports whether two objects have one kind, namespace and name.
func IsSame(a, b *unstructured.Unstructured) bool {
	return a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace() && a.GroupVersionKind() == b.GroupVersionKind()
}

// Namespace is the namespace of that name.
func (o *objects) Namespace(name string) (*corev1.Namespace, bool) {
	n, ok := o.namespaces[name]
	return n, ok
}

// ConfigMapData is the data of a ConfigMap.
func (o *objects) ConfigMapData(namespace, name string) (map[string]string, bool) {
	u := o.byKind[corev1.SchemeGroupVersion.WithKind("ConfigMap")][placed{namespace, name}]
	if u == nil {
		return nil, false
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	return data, err == nil
}

// Get is the object of exactly that kind and version, or nil. The namespace is
// empty for kinds that are not in namespaces. There is never an error.
func (o *objects) Get(gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	return o.byKind[gvk][placed{namespace, name}], nil
}

// List are the objects of exactly that kind and version in the namespace that
// the selector matches, sorted by name. A nil selector matches all. There is
// never an error.
func (o *objects) List(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	for _, u := range o.sorted[gvk][namespace] {
		if selector == nil || selector.Matches(labels.Set(u.GetLabels())) {
			list = append(list, u)
		}
	}
	return list, nil
}

// Namespaced reports whether objects of a kind are in namespaces. Kinds of
// Kubernetes are known; of others, the CustomResourceDefinition says it if it is in
// the directory, or else its objects show it. Without any, namespaces are assumed.
// The error says that Kubernetes does not serve a kind in its version.
func (o *objects) Namespaced(gvk schema.GroupVersionKind) (bool, error) {
	if len(o.byKind[gvk]) == 0 {
		if serves, known := kindversions.Serves(gvk); known && !serves {
			return false, fmt.Errorf("failed to find resource referenced by paramKind: '%v': %w", gvk, policy.ErrNotServed)
		}
	}
	if !strings.Contains(gvk.Group, ".") {
		return !builtin.IsClusterScoped(gvk.GroupKind()), nil
	}
	if builtin.IsClusterScoped(gvk.GroupKind()) {
		return false, nil
	}
	if namespaced, defined := o.scopes[gvk.GroupKind()]; defined {
		return namespaced, nil
	}
	return len(o.sorted[gvk][""]) == 0, nil
}

// CustomScope returns the kind that a CustomResourceDefinition defines, and whether
// its objects are in namespaces. It returns false for any other object.
func CustomScope(u *unstructured.Unstructured) (kind schema.GroupKind, namespaced, ok bool) {
	if u.GroupVersionKind() != definitionKind() {
		return schema.GroupKind{}, false, false
	}
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, path...)
		return s
	}
	kind = schema.GroupKind{Group: text("spec", "group"), Kind: text("spec", "names", "kind")}
	scope := text("spec", "scope")
	return kind, scope == "Namespaced", !kind.Empty() && (scope == "Namespaced" || scope == "Cluster")
}
