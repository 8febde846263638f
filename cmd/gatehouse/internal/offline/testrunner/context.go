package testrunner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// Context are the objects of a test. It is immutable.
type Context struct {
	namespaces map[string]*corev1.Namespace
	objects    map[schema.GroupVersionKind][]*unstructured.Unstructured
	// scopes has for each CustomResourceDefinition whether it is namespaced.
	scopes map[schema.GroupKind]bool
}

// readContext reads the objects of the test.
func (d *document) readContext() {
	if len(d.test.Context) == 0 {
		return
	}
	d.context = &Context{
		namespaces: map[string]*corev1.Namespace{},
		objects:    map[schema.GroupVersionKind][]*unstructured.Unstructured{},
		scopes:     map[schema.GroupKind]bool{},
	}
	for i := range d.test.Context {
		d.contextObject(strict.Element("context", i), d.test.Context[i].Raw)
	}
}

func (d *document) contextObject(field string, raw []byte) {
	var tree any
	value, err := rawjson.Parse(raw)
	if err == nil {
		tree, err = value.Decode()
	}
	fields, isObject := tree.(map[string]any)
	if err != nil || !isObject {
		d.report(field, "is not a Kubernetes object", "it has apiVersion, kind and metadata.name")
		return
	}
	if found := d.checker.Compare(reflect.TypeFor[metav1.PartialObjectMetadata](), map[string]any{
		"apiVersion": fields["apiVersion"], "kind": fields["kind"], "metadata": fields["metadata"],
	}, field, strict.Options{}); len(found) > 0 {
		for _, f := range found {
			d.report(f.Field, f.Message, f.Hint)
		}
		return
	}
	object := &unstructured.Unstructured{Object: fields}
	gvk := object.GroupVersionKind()
	switch {
	case gvk.Kind == "" || gvk.Version == "" || object.GetName() == "":
		d.report(field, "is not a Kubernetes object", "it has apiVersion, kind and metadata.name")
		return
	case gvk.Group == v1alpha1.GroupVersion.Group, gvk.Group == admissionregistrationv1.GroupName:
		d.report(field+".kind", fmt.Sprintf("a %s is nothing that policies look up", strict.Printable(gvk.Kind)), "put it into the --config directory")
		return
	case slices.ContainsFunc(d.context.objects[gvk], func(o *unstructured.Unstructured) bool { return same(o, object) }):
		d.report(field, fmt.Sprintf("the %s %q is given twice", strict.Printable(gvk.Kind), strict.Cut(object.GetName(), mostShown)), "remove one of the two")
		return
	}
	if gvk == corev1.SchemeGroupVersion.WithKind("Namespace") {
		found := d.checker.Compare(reflect.TypeFor[corev1.Namespace](), fields, field, strict.Options{})
		for _, f := range found {
			d.report(f.Field, f.Message, f.Hint)
		}
		n := new(corev1.Namespace)
		if err := json.Unmarshal(raw, n); err != nil {
			if len(found) == 0 {
				d.report(field, err.Error(), "")
			}
			return
		}
		metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name) // as the API server does
		object.SetLabels(n.Labels)
		d.context.namespaces[n.Name] = n
	}
	if kind, namespaced, ok := config.CustomScope(object); ok {
		d.context.scopes[kind] = namespaced
	}
	d.context.objects[gvk] = append(d.context.objects[gvk], object)
}

// same reports whether two objects of a kind are one.
func same(a, b *unstructured.Unstructured) bool {
	return a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace()
}

// Over returns the objects of a configuration with those of the context laid over them.
func (c *Context) Over(objects policy.Objects, configMaps sidecar.ConfigMaps) *Objects {
	return &Objects{Objects: objects, configMaps: configMaps, context: c}
}

// Objects are those of a test and those of a configuration. They are safe for concurrent use if the latter are.
type Objects struct {
	policy.Objects
	configMaps sidecar.ConfigMaps
	context    *Context
}

// Namespace returns the namespace of that name.
func (o *Objects) Namespace(name string) (*corev1.Namespace, bool) {
	if n, ok := o.context.namespaces[name]; ok {
		return n, true
	}
	return o.Objects.Namespace(name)
}

// Namespaced reports whether objects of a kind are namespaced. Of custom resources the test decides: by their
// CustomResourceDefinition, or else by their objects.
func (o *Objects) Namespaced(gvk schema.GroupVersionKind) (bool, error) {
	if namespaced, defined := o.context.scopes[gvk.GroupKind()]; defined {
		return namespaced, nil
	}
	own := strings.Contains(gvk.Group, ".") && !strings.HasSuffix(gvk.Group, ".k8s.io")
	if own && slices.ContainsFunc(o.context.objects[gvk], func(u *unstructured.Unstructured) bool { return u.GetNamespace() == "" }) {
		return false, nil
	}
	return o.Objects.Namespaced(gvk)
}

// find returns an object of the test, or nil.
func (o *Objects) find(gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	for _, u := range o.context.objects[gvk] {
		if u.GetNamespace() == namespace && u.GetName() == name {
			return u
		}
	}
	return nil
}

// Get returns the object of that kind, namespace and name, or nil.
func (o *Objects) Get(gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	if u := o.find(gvk, namespace, name); u != nil {
		return u, nil
	}
	return o.Objects.Get(gvk, namespace, name)
}

// List returns the objects of that kind in the namespace that the selector matches, sorted by name.
func (o *Objects) List(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	below, err := o.Objects.List(gvk, namespace, selector)
	if err != nil {
		return nil, err
	}
	var list []*unstructured.Unstructured
	for _, u := range o.context.objects[gvk] {
		if u.GetNamespace() == namespace && (selector == nil || selector.Matches(labels.Set(u.GetLabels()))) {
			list = append(list, u)
		}
	}
	for _, u := range below {
		if o.find(gvk, u.GetNamespace(), u.GetName()) == nil {
			list = append(list, u)
		}
	}
	slices.SortFunc(list, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return list, nil
}

// ConfigMapData returns the data of a ConfigMap.
func (o *Objects) ConfigMapData(namespace, name string) (map[string]string, bool) {
	if u := o.find(corev1.SchemeGroupVersion.WithKind("ConfigMap"), namespace, name); u != nil {
		data, _, err := unstructured.NestedStringMap(u.Object, "data")
		return data, err == nil
	}
	if o.configMaps == nil {
		return nil, false
	}
	return o.configMaps.ConfigMapData(namespace, name)
}
