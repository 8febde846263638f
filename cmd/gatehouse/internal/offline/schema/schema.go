// Package schema checks objects in manifests against the schemas of their kinds,
// without a cluster: Kubernetes' own kinds against their Go types and the rules for
// names, ports, labels and annotations that need no other object; custom resources
// against their CustomResourceDefinitions, with the API server's own validation.
package schema

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
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

// Check returns what an API server would reject of an object on its own, in the order
// of the fields: unknown fields, values of a wrong type or form, and a kind that the
// object's API version does not have. The diagnostics have Field, Message and Hint.
//
// Known is false if nothing is known about the kind, because no definition of it was
// given.
func (s *Schemas) Check(ctx context.Context, object map[string]any) (found diagnostic.List, known bool) {
	apiVersion, _, _ := unstructured.NestedString(object, "apiVersion")
	kind, _, _ := unstructured.NestedString(object, "kind")
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return diagnostic.List{{Severity: diagnostic.Error, Field: "apiVersion", Message: err.Error()}}, true
	}
	gvk := gv.WithKind(kind)
	if custom := s.custom[gvk]; custom != nil {
		found = s.types.Compare(reflect.TypeFor[metav1.PartialObjectMetadata](), metadataOf(object), "", strict.Options{})
		found = append(found, custom.check(ctx, object)...)
		return s.finish(gvk, reflect.TypeFor[metav1.PartialObjectMetadata](), object, found), true
	}
	if t := s.builtIn[gvk]; t != nil {
		found = s.types.Compare(t, object, "", strict.Options{})
		return s.finish(gvk, t, object, found), true
	}
	return s.unknownKind(gvk)
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

// unknownKind returns what is wrong with a kind without a schema, if anything is.
func (s *Schemas) unknownKind(gvk schema.GroupVersionKind) (found diagnostic.List, known bool) {
	var kinds, versions []string
	for _, other := range slices.Concat(slices.Collect(maps.Keys(s.builtIn)), slices.Collect(maps.Keys(s.custom))) {
		if other.Group != gvk.Group {
			continue
		}
		known = true
		if other.Version == gvk.Version {
			kinds = append(kinds, other.Kind)
		}
		if other.Kind == gvk.Kind {
			versions = append(versions, other.GroupVersion().String())
		}
	}
	if !known {
		return nil, false
	}
	d := diagnostic.Diagnostic{Severity: diagnostic.Error, Field: "kind", Message: fmt.Sprintf("%s has no kind %q", gvk.GroupVersion(), gvk.Kind)}
	switch near := nearest(gvk.Kind, kinds); {
	case near != "":
		d.Hint = fmt.Sprintf("did you mean %q?", near)
	case len(versions) > 0:
		slices.Sort(versions)
		d.Hint = "it is in " + strings.Join(versions, ", ")
	}
	return diagnostic.List{d}, true
}

// nearest returns the candidate that differs from a name by letter case or by at most
// a third of its letters, and "" if there is none.
func nearest(name string, candidates []string) string {
	best, least := "", len(name)/3+1
	slices.Sort(candidates)
	for _, candidate := range candidates {
		if distance := editDistance(strings.ToLower(name), strings.ToLower(candidate)); distance < least {
			best, least = candidate, distance
		}
	}
	return best
}

// editDistance returns the number of letters to insert, delete or replace that make a
// of b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, row[j+1]+1, cost)
		}
	}
	return row[len(b)]
}
