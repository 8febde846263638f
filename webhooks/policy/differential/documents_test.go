package differential_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/txtar"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/support/dispatcher"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// objects are what policies look up.
type objects []*unstructured.Unstructured

// known returns the namespaces, params and definitions of all tests.
var known = sync.OnceValue(func() objects {
	raw, err := os.ReadFile("testdata/context.yaml")
	check(err)
	var out objects
	for text := range strings.SplitSeq(strings.TrimPrefix(string(raw), "---\n"), "\n---\n") {
		object := new(unstructured.Unstructured)
		check(yaml.UnmarshalStrict([]byte(text), &object.Object))
		out = append(out, object)
	}
	return out
})

// emptySet gives its compiler to every other Set: to make the environment of expressions
// takes longer than to compile a policy.
var emptySet = sync.OnceValue(func() *policy.Set {
	set, err := policy.Compile(policy.Spec{})
	check(err)
	return set
})

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (o objects) Namespace(name string) (*corev1.Namespace, bool) {
	object, _ := o.Get(corev1.SchemeGroupVersion.WithKind("Namespace"), "", name)
	if object == nil {
		return nil, false
	}
	namespace := new(corev1.Namespace)
	check(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, namespace))
	return namespace, true
}

// All implements dispatcher.Store.
func (o objects) All() []*unstructured.Unstructured { return o }

// Namespaced takes kinds that begin with Cluster for cluster-scoped.
func (o objects) Namespaced(gvk schema.GroupVersionKind) (bool, error) {
	if gvk.Kind == "Unserved" {
		return false, fmt.Errorf("failed to find resource referenced by paramKind: '%v': %w", gvk, policy.ErrNotServed)
	}
	return !strings.HasPrefix(gvk.Kind, "Cluster"), nil
}

func (o objects) Get(gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	i := slices.IndexFunc(o, func(object *unstructured.Unstructured) bool {
		return object.GroupVersionKind() == gvk && object.GetNamespace() == namespace && object.GetName() == name
	})
	if i < 0 {
		return nil, nil //nolint:nilnil // there is none, as the interface says
	}
	return o[i], nil
}

func (o objects) List(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	out := slices.DeleteFunc(slices.Clone(o), func(object *unstructured.Unstructured) bool {
		return object.GroupVersionKind() != gvk || object.GetNamespace() != namespace || !selector.Matches(labels.Set(object.GetLabels()))
	})
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// specOf reads policies and bindings, separated by lines of ---.
func specOf(t testing.TB, documents string) policy.Spec {
	t.Helper()
	spec := policy.Spec{Objects: known(), Authorizer: randomAuthorizer{}, Previous: emptySet()}
	for i, document := range strings.Split(documents, "\n---\n") {
		source := fmt.Sprintf("test.yaml#%d", i+1)
		if strings.Contains(document, "kind: ValidatingAdmissionPolicyBinding\n") {
			b := policy.Binding{Source: source}
			must(t, yaml.UnmarshalStrict([]byte(document), &b.ValidatingAdmissionPolicyBinding))
			spec.Bindings = append(spec.Bindings, b)
		} else {
			p := policy.Policy{Source: source}
			must(t, yaml.UnmarshalStrict([]byte(document), &p.ValidatingAdmissionPolicy))
			spec.Policies = append(spec.Policies, p)
		}
	}
	return spec
}

// compile compiles policies and bindings here and as upstream does.
func compile(t testing.TB, documents string) (*policy.Set, *dispatcher.Dispatcher) {
	t.Helper()
	spec := specOf(t, documents)
	set, err := policy.Compile(spec)
	must(t, err)
	return set, newUpstream(t, spec)
}

// expressionsOf returns the expressions of a section of testdata/expressions.txtar.
func expressionsOf(t testing.TB, section string) []string {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/expressions.txtar")
	must(t, err)
	i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == section })
	out := strings.Split(strings.TrimSpace(string(archive.Files[i].Data)), "\n")
	return slices.DeleteFunc(out, func(line string) bool { return strings.HasPrefix(line, "#") })
}

// asJSON returns a YAML document as JSON.
func asJSON(t testing.TB, document string) []byte {
	t.Helper()
	if raw := []byte(document); json.Valid(raw) {
		return raw // large objects are written as JSON: to read them as YAML takes long
	}
	raw, err := yaml.YAMLToJSON([]byte(document))
	must(t, err)
	return raw
}

// review returns a request to create the object of a YAML document.
func review(t testing.TB, object string, options ...func(*admission.Request)) admission.Request {
	t.Helper()
	raw := asJSON(t, object)
	var meta metav1.PartialObjectMetadata
	must(t, json.Unmarshal(raw, &meta))
	gvk := meta.GroupVersionKind()
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID:       "7c0f8d9e-5d53-4d3e-9a54-0d6a6c1c8e12",
		Kind:      metav1.GroupVersionKind(gvk),
		Resource:  metav1.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: strings.ToLower(gvk.Kind) + "s"},
		Name:      meta.Name,
		Namespace: meta.Namespace,
		Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{
			Username: "alice", UID: "1", Groups: []string{"devs", "system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{"example.com/team": {"checkout"}, "example.com/none": {}},
		},
		Object: runtime.RawExtension{Raw: raw},
	}}
	if gvk.Kind == "Namespace" {
		req.Namespace = meta.Name
	}
	for _, option := range options {
		option(&req)
	}
	req.RequestKind, req.RequestResource = new(req.Kind), new(req.Resource)
	return req
}

// serialized returns the request as the API server would send it: its objects
// written from typed ones, with the fields that only then appear.
func serialized(t testing.TB, req admission.Request) admission.Request {
	t.Helper()
	for _, object := range []*runtime.RawExtension{&req.Object, &req.OldObject} {
		if len(object.Raw) > 0 {
			object.Raw = []byte(toJSON(t, dispatcher.Typed(t, object.Raw)))
		}
	}
	return req
}
