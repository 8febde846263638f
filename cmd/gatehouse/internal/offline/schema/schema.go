// Package schema checks objects in manifests against the schemas of their kinds,
// without a cluster: Kubernetes' own kinds against their Go types and the rules for
// names, ports, labels and annotations that need no other object; custom resources
// against their CustomResourceDefinitions, with the API server's own validation.
package schema

import (
	"context"
	"maps"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/strict"
)

// Schemas are the schemas of kinds. They are safe for concurrent use.
type Schemas struct {
	builtIn map[schema.GroupVersionKind]reflect.Type
	custom  map[schema.GroupVersionKind]*customResource
	types   strict.Checker
}

// New returns the schemas of Kubernetes' own kinds and of those that the
// CustomResourceDefinitions define. A definition that cannot be used is a warning:
// its kinds have no schema.
func New(definitions []*unstructured.Unstructured) (*Schemas, diagnostic.List) {
	s := &Schemas{
		builtIn: map[schema.GroupVersionKind]reflect.Type{
			apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"): reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](),
		},
		custom: map[schema.GroupVersionKind]*customResource{},
	}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal && !strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") {
			s.builtIn[gvk] = t
		}
	}
	var warnings diagnostic.List
	for _, definition := range definitions {
		if err := s.define(definition); err != nil {
			warnings = append(warnings, diagnostic.Diagnostic{
				Severity: diagnostic.Warning, Object: definition.GetKind() + "/" + definition.GetName(),
				Message: "its kinds are not checked against a schema: " + err.Error(),
			})
		}
	}
	return s, warnings
}

// Check returns what an API server rejects of an object on its own, in the order of the
// fields: unknown fields, and values of a wrong type or form. The diagnostics have Field,
// Message and Hint. Known is false if no schema of the kind is known.
func (s *Schemas) Check(ctx context.Context, gvk schema.GroupVersionKind, object map[string]any) (found diagnostic.List, known bool) {
	if custom := s.custom[gvk]; custom != nil {
		metadata := reflect.TypeFor[metav1.PartialObjectMetadata]()
		found = s.types.Compare(metadata, metadataOf(object), "", strict.Options{})
		found = append(found, custom.check(ctx, object)...)
		return s.finish(gvk, metadata, object, found), true
	}
	if t := s.builtIn[gvk]; t != nil {
		return s.finish(gvk, t, object, s.types.Compare(t, object, "", strict.Options{})), true
	}
	return nil, false
}

// metadataOf returns the part of an object that is of the same type in every kind.
func metadataOf(object map[string]any) map[string]any {
	out := maps.Clone(object)
	maps.DeleteFunc(out, func(key string, _ any) bool { return key != "apiVersion" && key != "kind" && key != "metadata" })
	return out
}

// finish adds what the rules for fields find, in places where nothing was found yet.
func (s *Schemas) finish(gvk schema.GroupVersionKind, t reflect.Type, object map[string]any, found diagnostic.List) diagnostic.List {
	taken := map[string]bool{}
	for _, d := range found {
		taken[d.Field] = true
	}
	for _, d := range s.checkFields(gvk, t, object) {
		if !taken[d.Field] {
			found = append(found, d)
		}
	}
	found.Sort()
	return found
}
