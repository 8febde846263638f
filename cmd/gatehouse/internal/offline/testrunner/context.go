package testrunner

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Context are the objects of a test. It is immutable.
type Context struct {
	objects []*unstructured.Unstructured
}

// Over returns a configuration with the objects of the context laid over its own.
func (c *Context) Over(of *config.Config) *config.Config {
	return of.WithContext(c.objects)
}

// readContext reads the objects of the test.
func (d *document) readContext() {
	if len(d.test.Context) == 0 {
		return
	}
	d.context = &Context{}
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
	metadata := map[string]any{"apiVersion": fields["apiVersion"], "kind": fields["kind"], "metadata": fields["metadata"]}
	if !d.compare(reflect.TypeFor[metav1.PartialObjectMetadata](), metadata, field) {
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
	case slices.ContainsFunc(d.context.objects, func(o *unstructured.Unstructured) bool { return config.IsSame(o, object) }):
		d.report(field, fmt.Sprintf("the %s %q is given twice", strict.Printable(gvk.Kind), strict.Cut(object.GetName(), mostShown)), "remove one of the two")
		return
	}
	if gvk == corev1.SchemeGroupVersion.WithKind("Namespace") {
		fits := d.compare(reflect.TypeFor[corev1.Namespace](), fields, field)
		n := new(corev1.Namespace)
		if err := json.Unmarshal(raw, n); err != nil {
			if fits {
				d.report(field, err.Error(), "")
			}
			return
		}
		metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name) // as the API server does
		object.SetLabels(n.Labels)
	}
	d.context.objects = append(d.context.objects, object)
}
