package main

import (
	"encoding/json"
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// oneNamespace is the one namespace of the benchmark.
type oneNamespace struct{ namespace *corev1.Namespace }

func (o oneNamespace) Namespace(name string) (*corev1.Namespace, bool) {
	return o.namespace, name == o.namespace.Name
}

func (oneNamespace) Namespaced(schema.GroupVersionKind) (bool, error) { return true, nil }

func (oneNamespace) Get(schema.GroupVersionKind, string, string) (*unstructured.Unstructured, error) {
	return nil, errors.New("there are no params here")
}

func (oneNamespace) List(schema.GroupVersionKind, string, labels.Selector) ([]*unstructured.Unstructured, error) {
	return nil, errors.New("there are no params here")
}

// compiled is the set of the documents.
func compiled(t testing.TB, documents []string) *policy.Set {
	t.Helper()
	spec, err := policySpec(documents)
	if err != nil {
		t.Fatal(err)
	}
	namespace := new(corev1.Namespace)
	if err := yaml.UnmarshalStrict([]byte(namespaceDocument), namespace); err != nil {
		t.Fatal(err)
	}
	spec.Objects = oneNamespace{namespace}
	set, err := policy.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// requestOf is the request in the review of a pod.
func requestOf(t testing.TB, pod *corev1.Pod, err error) admission.Request {
	t.Helper()
	body, err := reviewOf(pod, err)
	if err != nil {
		t.Fatal(err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body.text, &review); err != nil {
		t.Fatal(err)
	}
	return admission.Request{AdmissionRequest: *review.Request}
}

// Policies that are to be compiled can be, and no two expressions of different
// ones are alike: an evaluator that knows them again must have no advantage.
func TestCompilations(t *testing.T) {
	for _, c := range compilations(nil) {
		t.Run(c.name, func(t *testing.T) {
			documents := c.documents()
			spec, err := policySpec(documents)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]string{}
			for _, p := range spec.Policies {
				texts := map[string]bool{}
				for _, v := range p.Spec.Variables {
					texts[v.Expression] = true
				}
				for _, v := range p.Spec.Validations {
					texts[v.Expression] = true
					if v.MessageExpression != "" {
						texts[v.MessageExpression] = true
					}
				}
				for text := range texts {
					if seen[text] != "" {
						t.Errorf("%s and %s both have %s", seen[text], p.Name, text)
					}
					seen[text] = p.Name
				}
			}
			if len(spec.Policies) != 1000 || len(spec.Bindings) != 1000 {
				t.Errorf("%d policies, %d bindings", len(spec.Policies), len(spec.Bindings))
			}
			few := compilation{c.name, func() []string { return documents[len(documents)-20:] }}
			r, err := few.measure(1)
			if err != nil || r.Policies != 20 || r.All <= 0 || r.Change <= 0 || r.Retained <= 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// Those ways cost little. By which they differ is told apart here; make bench
// measures them together.
func BenchmarkTenOf1000(b *testing.B) {
	realistic, err := realisticPod(5_000)
	request := requestOf(b, realistic, err)
	ten := ruledPolicies(10)
	others := mostlyOtherPolicies(4*990 + 10)[10:]
	way := func(number int) []string {
		documents := ten
		for i := range others {
			if (i+10)%4 == number {
				documents = append(documents, others[i])
			}
		}
		return documents
	}
	for _, bench := range []struct {
		name      string
		documents []string
	}{
		{"none", ten},
		{"by resource", way(0)},
		{"by name of namespace", way(1)},
		{"by label of namespace", way(2)},
		{"by label of object", way(3)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			set := compiled(b, bench.documents)
			b.ReportAllocs()
			for b.Loop() {
				if response := set.Review(b.Context(), request); !response.Allowed {
					b.Fatal(response.Result.Message)
				}
			}
		})
	}
}
