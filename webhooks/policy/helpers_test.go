package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

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

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// objects is a context in memory.
type objects []*unstructured.Unstructured

func (o objects) Namespace(name string) (*corev1.Namespace, bool) {
	object, _ := o.Get(corev1.SchemeGroupVersion.WithKind("Namespace"), "", name)
	if object == nil {
		return nil, false
	}
	namespace := new(corev1.Namespace)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, namespace); err != nil {
		panic(err)
	}
	return namespace, true
}

// Namespaced takes kinds of which an object has no namespace for cluster-scoped,
// and those that begin with Cluster.
func (o objects) Namespaced(gvk schema.GroupVersionKind) (bool, error) {
	if gvk.Kind == "Unserved" {
		return false, fmt.Errorf("failed to find resource referenced by paramKind: '%v': %w", gvk, policy.ErrNotServed)
	}
	return !strings.HasPrefix(gvk.Kind, "Cluster") && !slices.ContainsFunc(o, func(object *unstructured.Unstructured) bool {
		return object.GroupVersionKind() == gvk && object.GetNamespace() == ""
	}), nil
}

func (o objects) Get(gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	for _, object := range o {
		if object.GroupVersionKind() == gvk && object.GetNamespace() == namespace && object.GetName() == name {
			return object, nil
		}
	}
	return nil, nil //nolint:nilnil // there is none, as the interface says
}

func (o objects) List(gvk schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, object := range o {
		if object.GroupVersionKind() == gvk && object.GetNamespace() == namespace && selector.Matches(labels.Set(object.GetLabels())) {
			out = append(out, object)
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// specOf reads documents, separated by lines of ---, and names each source
// "test.yaml#<number>".
func specOf(t testing.TB, documents string) policy.Spec {
	t.Helper()
	var spec policy.Spec
	var context objects
	for i, document := range strings.Split(documents, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
			t.Fatalf("document %d: %v\n%s", i+1, err, document)
		}
		source := fmt.Sprintf("test.yaml#%d", i+1)
		var into any
		switch meta.Kind {
		case "ValidatingAdmissionPolicy":
			spec.Policies = append(spec.Policies, policy.Policy{Source: source})
			into = &spec.Policies[len(spec.Policies)-1].ValidatingAdmissionPolicy
		case "ValidatingAdmissionPolicyBinding":
			spec.Bindings = append(spec.Bindings, policy.Binding{Source: source})
			into = &spec.Bindings[len(spec.Bindings)-1].ValidatingAdmissionPolicyBinding
		case "AdmissionPolicy":
			spec.AdmissionPolicies = append(spec.AdmissionPolicies, policy.AdmissionPolicy{Source: source})
			into = &spec.AdmissionPolicies[len(spec.AdmissionPolicies)-1].AdmissionPolicy
		case "AdmissionPolicyBinding":
			spec.AdmissionPolicyBindings = append(spec.AdmissionPolicyBindings, policy.AdmissionPolicyBinding{Source: source})
			into = &spec.AdmissionPolicyBindings[len(spec.AdmissionPolicyBindings)-1].AdmissionPolicyBinding
		case "PolicyException":
			spec.Exceptions = append(spec.Exceptions, policy.Exception{Source: source})
			into = &spec.Exceptions[len(spec.Exceptions)-1].PolicyException
		case "PolicyConfiguration":
			spec.Configuration = &policy.Configuration{Source: source}
			into = &spec.Configuration.PolicyConfiguration
		default:
			object := new(unstructured.Unstructured)
			context = append(context, object)
			into = &object.Object
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Fatalf("document %d: %v\n%s", i+1, err, document)
		}
	}
	spec.Objects, spec.Previous = context, emptySet()
	return spec
}

// emptySet gives its compiler to every other Set: to make the environment of expressions
// takes longer than to compile a policy.
var emptySet = sync.OnceValue(func() *policy.Set {
	set, err := policy.Compile(policy.Spec{})
	if err != nil {
		panic(err)
	}
	return set
})

func compile(t testing.TB, documents string) *policy.Set {
	t.Helper()
	set, err := policy.Compile(specOf(t, documents))
	if err != nil {
		t.Fatalf("Compile: %v", err)
	}
	return set
}

// diagnosticsOf compiles documents that have something wrong with them.
func diagnosticsOf(t testing.TB, documents string) diagnostic.List {
	t.Helper()
	set, err := policy.Compile(specOf(t, documents))
	if err == nil {
		return set.Warnings()
	}
	var list diagnostic.List
	if !errors.As(err, &list) {
		t.Fatalf("Compile gave %T: %v", err, err)
	}
	return list
}

func lines(list diagnostic.List) []string {
	out := make([]string, len(list))
	for i, f := range list {
		out[i] = string(f.Severity) + ": " + f.String()
	}
	return out
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
			Extra: map[string]authenticationv1.ExtraValue{"example.com/team": {"checkout"}},
		},
		Object: runtime.RawExtension{Raw: raw},
	}}
	if gvk.Kind == "Namespace" {
		req.Namespace = meta.Name
	}
	for _, option := range options {
		option(&req)
	}
	if req.RequestKind == nil {
		req.RequestKind = new(req.Kind)
	}
	if req.RequestResource == nil {
		req.RequestResource = new(req.Resource)
	}
	return req
}

// deleting makes the request a deletion of its object.
func deleting(req *admission.Request) {
	req.Operation = admissionv1.Delete
	req.OldObject, req.Object = req.Object, runtime.RawExtension{}
}

// updating makes the request an update of another object to this one.
func updating(t testing.TB, old string) func(*admission.Request) {
	t.Helper()
	raw := asJSON(t, old)
	return func(req *admission.Request) {
		req.Operation = admissionv1.Update
		req.OldObject.Raw = raw
	}
}

func decide(t testing.TB, set *policy.Set, req admission.Request) admission.Response {
	t.Helper()
	response := set.Decide(context.Background(), policy.Input{Request: req}).Response()
	// Whoever has checked the text gets the same answer.
	if trimmed(req.Object.Raw) && trimmed(req.OldObject.Raw) {
		if got := set.Decide(context.Background(), policy.Input{Request: req, Checked: true}).Response(); !reflect.DeepEqual(got, response) {
			t.Errorf("ReviewObserved = %+v, Review = %+v", got, response)
		}
		// The answer with an index of the AdmissionReview is the same.
		index, req := indexed(t, req)
		if got := set.Decide(context.Background(), policy.Input{Request: req, Checked: true, Index: index}).Response(); !reflect.DeepEqual(got, response) {
			t.Errorf("with an index ReviewObserved = %+v, Review = %+v", got, response)
		}
	}
	return response
}

// indexed returns the index of an AdmissionReview with the objects of the request, and the request with those. It is empty if
// Outline leaves it so.
func indexed(t testing.TB, req admission.Request) (*rawjson.Index, admission.Request) {
	t.Helper()
	text := `{"request":{`
	for i, object := range [...]*runtime.RawExtension{&req.Object, &req.OldObject} {
		if len(object.Raw) > 0 {
			text += [...]string{`"object":`, `,"oldObject":`}[i] + string(object.Raw)
		}
	}
	text = strings.Replace(text, "{,", "{", 1) + "}}"
	var index rawjson.Index
	members, _, err := rawjson.Outline(make([]rawjson.Member, 0, 4), []byte(text), 2, &index)
	must(t, err)
	for _, m := range members {
		switch {
		case m.Depth == 2 && m.Name.Is("object"):
			req.Object.Raw = m.Value
		case m.Depth == 2 && m.Name.Is("oldObject"):
			req.OldObject.Raw = m.Value
		}
	}
	return &index, req
}

// trimmed reports whether the text is an object as the codec hands it on.
func trimmed(raw []byte) bool {
	value, err := rawjson.Parse(raw)
	return len(raw) == 0 || err == nil && len(value) == len(raw) && value.Kind() == rawjson.Object
}

// verdict returns a response in short: "allowed", "denied", "cannot decide".
func verdict(response admission.Response) string {
	switch {
	case response.Allowed:
		return "allowed"
	case response.Result != nil && response.Result.Code >= 500:
		return "cannot decide"
	default:
		return "denied"
	}
}

func message(response admission.Response) string {
	if response.Result == nil {
		return ""
	}
	return response.Result.Message
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	must(t, err)
	return string(raw)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}
