// Package schema checks objects in manifests against the schemas of their kinds,
// without a cluster: Kubernetes' own kinds against their Go types and the rules for
// names, ports, labels and annotations that need no other object; custom resources
// against their CustomResourceDefinitions, with the API server's own validation.
package schema

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/rules"
)

// ErrUnknown is the error about a kind without a schema: no definition of it was given.
var ErrUnknown = errors.New("there is no schema of the kind")

// Schemas are the schemas of kinds. They are safe for concurrent use.
type Schemas struct {
	builtIn map[schema.GroupVersionKind]reflect.Type
	// custom compiles a schema when it is first needed: a directory may have the definitions
	// of many operators.
	custom map[schema.GroupVersionKind]func() (*customResource, error)
	types  strict.Checker
}

// New returns the schemas of Kubernetes' own kinds and of those that the
// CustomResourceDefinitions define.
func New(definitions []*unstructured.Unstructured) *Schemas {
	s := &Schemas{
		builtIn: map[schema.GroupVersionKind]reflect.Type{
			apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"): reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](),
		},
		custom: map[schema.GroupVersionKind]func() (*customResource, error){},
	}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal && !strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") {
			s.builtIn[gvk] = t
		}
	}
	for _, definition := range definitions {
		request.Versions(definition.Object, func(gvk schema.GroupVersionKind, _ string, version map[string]any) {
			s.custom[gvk] = sync.OnceValues(func() (*customResource, error) { return compile(version) })
		})
	}
	return s
}

// Check returns what an API server rejects of an object on its own, in the order of the
// fields: unknown fields, and values of a wrong type or form. Old is the object that it updates, nil for none. The diagnostics have Field,
// Message and Hint. Undecodable reports that a value has another type than its field. The error is why the object was not checked: ErrUnknown, or what is
// wrong with the definition of its kind.
func (s *Schemas) Check(ctx context.Context, gvk schema.GroupVersionKind, object, old map[string]any) (found diagnostic.List, undecodable bool, err error) {
	if compiled := s.custom[gvk]; compiled != nil {
		custom, err := compiled()
		if err != nil {
			return nil, false, err
		}
		metadata := reflect.TypeFor[metav1.PartialObjectMetadata]()
		found = s.types.Compare(metadata, metadataOf(object), "", strict.Options{SecretAt: IsSecret})
		values, wrongType := custom.check(ctx, object, old)
		return finish(gvk, object, old, append(found, values...)), wrongType || hasWrongType(found), nil
	}
	if t := s.builtIn[gvk]; t != nil {
		found = s.types.Compare(t, object, "", strict.Options{SecretAt: IsSecret})
		if undecodable = hasWrongType(found); !undecodable && t == reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]() {
			errs, err := checkDefinition(ctx, object)
			if err != nil {
				return nil, false, err
			}
			found = append(found, diagnosticsOf(errs)...)
		}
		return finish(gvk, object, old, found), undecodable, nil
	}
	return nil, false, ErrUnknown
}

// Prepare does to a custom resource what the API server does when it decodes one, before admission: fill in defaults, remove unknown
// fields and nulls, decode metadata. In a request that may not write the status, it is then that of old, which is nil at the creation. It
// leaves objects of other kinds, and what is malformed, as they are.
func (s *Schemas) Prepare(gvk schema.GroupVersionKind, object, old map[string]any, keepsStatus bool) error {
	compiled := s.custom[gvk]
	if compiled == nil {
		return nil
	}
	custom, err := compiled()
	if err != nil {
		return err
	}
	custom.prepare(object)
	if !keepsStatus {
		custom.resetStatus(object, old)
	}
	if meta, found, err := objectmeta.GetObjectMeta(object, false); err == nil && found {
		return objectmeta.SetObjectMeta(object, meta)
	}
	return nil
}

// Resources returns the resources of Kubernetes and of CustomResourceDefinitions, whose objects requests have as the API server
// decodes them.
func Resources(definitions []*unstructured.Unstructured) *request.Resources {
	return request.NewResources(definitions).WithSchemas(New(definitions))
}

// hasWrongType reports whether there is more than unknown fields, which a decoder can leave out.
func hasWrongType(found diagnostic.List) bool {
	return slices.ContainsFunc(found, func(d diagnostic.Diagnostic) bool { return d.Message != strict.UnknownField })
}

// metadataOf returns the part of an object that is of the same type in every kind.
func metadataOf(object map[string]any) map[string]any {
	out := maps.Clone(object)
	maps.DeleteFunc(out, func(key string, _ any) bool { return key != "apiVersion" && key != "kind" && key != "metadata" })
	return out
}

// finish adds what the rules for values find, in places where nothing was found yet. An update may keep what is wrong in old.
func finish(gvk schema.GroupVersionKind, object, old map[string]any, found diagnostic.List) diagnostic.List {
	object = runtime.DeepCopyJSON(object)
	for _, d := range found {
		remove(object, strict.Steps(d.Field))
	}
	kept := rules.Validate(gvk, old)
	for _, d := range append(rules.Validate(gvk, object), checkMetadata(object)...) {
		if !slices.Contains(kept, d) && !slices.ContainsFunc(found, func(f diagnostic.Diagnostic) bool { return strings.HasPrefix(d.Field, f.Field) }) {
			d.Message = diagnostic.WithoutPattern(d.Message)
			found = append(found, d)
		}
	}
	found.Sort()
	return found
}

// remove removes the member at a path, or the list that an element is in, so that the rest can be decoded.
func remove(object map[string]any, steps []string) {
	last, name, _ := find(object, steps)
	delete(last, name)
}

// find returns the value at a path, as far as it exists, and the last object on the way to it, with the name of the member there.
func find(object map[string]any, steps []string) (last map[string]any, name string, at any) {
	at = object
	for _, step := range steps {
		switch value := at.(type) {
		case map[string]any:
			last, name, at = value, step, value[step]
		case []any:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(value) {
				at = value[i]
			}
		}
	}
	return last, name, at
}
