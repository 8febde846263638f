package typecheck_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// place is a type of the API server's own schema, and the one that was made of
// the Go type.
type place[R any] struct {
	ref  R
	t    *typecheck.Type
	path string
}

func at[R any](ref R, t *typecheck.Type, path string) place[R] { return place[R]{ref, t, path} }

func queue[T any](of ...T) []T { return of }

// TestFieldsOfKubernetes compares the fields of every kind of Kubernetes with
// those of the schema that server-side apply uses, which is made of the API
// server's OpenAPI document.
func TestFieldsOfKubernetes(t *testing.T) {
	t.Parallel()
	schemas, converter := typecheck.New(nil), applyconfigurations.NewTypeConverter(scheme.Scheme)
	compared, fields := 0, 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		object, err := scheme.Scheme.New(gvk)
		if err != nil || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		object.GetObjectKind().SetGroupVersionKind(gvk)
		typed, err := converter.ObjectToTyped(object)
		kind, known := schemas.Kind(gvk)
		if err != nil || !known {
			continue // A list, say, or options.
		}
		compared++
		seen := map[string]bool{}
		rest := queue(at(typed.TypeRef(), kind.Type, kind.String()))
		for len(rest) > 0 {
			next := rest[0]
			rest = rest[1:]
			atom, _ := typed.Schema().Resolve(next.ref)
			switch {
			case atom.Map != nil && len(atom.Fields) > 0 && len(next.t.Fields) > 0:
				if seen[next.t.Name] {
					continue
				}
				seen[next.t.Name] = true
				names := make([]string, len(atom.Fields))
				for i := range atom.Fields {
					f := &atom.Fields[i]
					names[i] = f.Name
					if ours, found := next.t.Fields[f.Name]; found {
						rest = append(rest, at(f.Type, ours.Type, next.path+"."+f.Name))
					}
				}
				slices.Sort(names)
				fields += len(names)
				if !slices.Equal(names, next.t.FieldNames()) {
					t.Errorf("%s: got %v, want %v", next.path, next.t.FieldNames(), names)
				}
			case atom.List != nil && next.t.Elem != nil && !next.t.Map:
				rest = append(rest, at(atom.List.ElementType, next.t.Elem, next.path+"[]"))
			case atom.Map != nil && next.t.Elem != nil && next.t.Map:
				rest = append(rest, at(atom.Map.ElementType, next.t.Elem, next.path+"{}"))
			case len(next.t.Fields) > 0 || next.t.Elem != nil:
				t.Errorf("%s: is %+v in the schema", next.path, atom)
			}
		}
	}
	if compared < 100 || fields < 3000 {
		t.Errorf("compared only %d kinds with %d fields", compared, fields)
	}
}

// TestOptional expects what is optional by the text that an API server writes:
// what is not in the text of an empty object.
func TestOptional(t *testing.T) {
	t.Parallel()
	schemas := typecheck.New(nil)
	pod, _ := schemas.Kind(corev1.SchemeGroupVersion.WithKind("Pod"))
	spec := pod.Type.Fields["spec"].Type
	container := spec.Fields["containers"].Type.Elem
	for _, c := range []struct {
		of    *typecheck.Type
		empty any
	}{{pod.Type, &corev1.Pod{}}, {spec, &corev1.PodSpec{}}, {container, &corev1.Container{}}} {
		written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.empty)
		if err != nil {
			t.Fatal(err)
		}
		for name, field := range c.of.Fields {
			if _, found := written[name]; found == field.Optional {
				t.Errorf("%s.%s: optional is %v, and it is written: %v", c.of.Name, name, field.Optional, found)
			}
		}
	}
}
