package main

import (
	"encoding/json"
	"errors"
	"strings"
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

// The policies say of the pods what their scenarios are about: yes to realistic
// ones, every rule to one, one rule to another. What other policies there are
// makes no difference.
func TestPoliciesDecide(t *testing.T) {
	all := ruleMessages()
	for _, tt := range []struct {
		name      string
		documents []string
		pod       func() (*corev1.Pod, error)
		messages  []string // of the refusal; none is yes
		count     int      // of violations
	}{
		{"realistic, 1 policy", []string{middlePolicy("containers", "")}, pod(5_000), nil, 0},
		{"realistic, 10 policies", ruledPolicies(10), pod(5_000), nil, 0},
		{"realistic, 100 policies", ruledPolicies(100), pod(5_000), nil, 0},
		{"realistic, 200 policies", mostlyOtherPolicies(200), pod(5_000), nil, 0},
		{"realistic, 10 rules", []string{tenRulesDocument()}, pod(5_000), nil, 0},
		{"large, 10 policies", ruledPolicies(10), pod(60_000), nil, 0},
		{"denied, 10 policies", ruledPolicies(10), deniedPod, all, 10},
		{"denied, 200 policies", mostlyOtherPolicies(200), deniedPod, all, 10},
		{"denied, 10 rules", []string{tenRulesDocument()}, deniedPod, []string{"the pod breaks rule no-host-pid", "rule fixed-tags is broken by one of checkout"}, 10},
		{"excepted, 10 policies", ruledPolicies(10), exceptedPod, []string{"the pod breaks rule " + exceptedRule}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod, err := tt.pod()
			response := compiled(t, tt.documents).Review(t.Context(), requestOf(t, pod, err))
			if response.Allowed != (tt.count == 0) {
				t.Fatalf("allowed is %v: %+v", response.Allowed, response.Result)
			}
			if response.Allowed {
				return
			}
			for _, message := range tt.messages {
				if !strings.Contains(response.Result.Message, message) {
					t.Errorf("no %q in %q", message, response.Result.Message)
				}
			}
			if n := len(response.Result.Details.Causes); n != tt.count {
				t.Errorf("%d violations, want %d: %s", n, tt.count, response.Result.Message)
			}
		})
	}
}

func pod(size int) func() (*corev1.Pod, error) {
	return func() (*corev1.Pod, error) { return realisticPod(size) }
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

// The other policies of mostlyOtherPolicies differ from a pod in four ways.
func TestMostlyOtherPolicies(t *testing.T) {
	spec, err := policySpec(mostlyOtherPolicies(210))
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]int{}
	for _, p := range spec.Policies[10:] {
		match := p.Spec.MatchConstraints
		switch {
		case match.ResourceRules[0].Resources[0] != "pods":
			ways["resource"]++
		case match.ObjectSelector != nil:
			ways["object"]++
		case match.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "":
			ways["name of the namespace"]++
		case match.NamespaceSelector.MatchLabels["team"] != "":
			ways["label of the namespace"]++
		}
	}
	for way, n := range ways {
		if n != 50 {
			t.Errorf("%d by %s", n, way)
		}
	}
	if len(ways) != 4 {
		t.Errorf("ways %v", ways)
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
