package webhooks_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// mutating returns a policy p about a resource, and its binding.
func mutating(resource, expression string, change ...func(*mutation.Policy)) mutation.Spec {
	var p mutation.Policy
	p.Name, p.Spec.ReinvocationPolicy = "p", admissionregistrationv1.NeverReinvocationPolicy
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource}},
		},
	}}}
	p.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
	}}
	for _, c := range change {
		c(&p)
	}
	var b mutation.Binding
	b.Name, b.Spec.PolicyName = "p-binding", "p"
	return mutation.Spec{Policies: []mutation.Policy{p}, Bindings: []mutation.Binding{b}}
}

// TestMutate holds that policies change every kind, that injection sees what they made of a pod, and that the one patch of both makes
// the result of the object of the request.
func TestMutate(t *testing.T) {
	t.Parallel()
	labels := func(value string) string { return `Object{metadata: Object.metadata{labels: {"p": ` + value + `}}}` }
	ignores := func(p *mutation.Policy) { p.Spec.FailurePolicy = new(admissionregistrationv1.Ignore) }
	const pod, deployment = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"app"}],"unknown":1}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"template":{"metadata":{}}}}`
	of := func(group, kind, resource, object string) func(*admission.Request) {
		return func(r *admission.Request) {
			r.Kind, r.Resource = metav1.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
			r.Object.Raw = []byte(object)
		}
	}
	deployments := of("apps", "Deployment", "deployments", deployment)
	for _, tc := range []struct {
		name   string
		spec   mutation.Spec
		change func(*admission.Request)
		// labels are those of the result, and refused is the message instead.
		labels  map[string]string
		refused string
		audit   map[string]string
		seen    []string
	}{
		{
			name: "a pod", spec: mutating("pods", labels(`"x"`)),
			labels: map[string]string{"a": "b", "p": "x"},
			audit:  map[string]string{"mutated-by": "p/p-binding", "profiles": "labels=applied"}, seen: []string{"p Evaluated"},
		},
		{name: "other pods", spec: mutating("configmaps", labels(`"x"`)), audit: map[string]string{"profiles": "labels=object-not-selected"}},
		{
			name: "a Deployment", spec: mutating("deployments", labels(`"x"`)), change: deployments,
			labels: map[string]string{"p": "x"}, audit: map[string]string{"mutated-by": "p/p-binding"}, seen: []string{"p Evaluated"},
		},
		{name: "a pod template", spec: mutating("pods", labels(`"x"`)), change: deployments},
		{
			name: "an update of a pod", spec: mutating("*", labels(`"x"`)), change: func(r *admission.Request) { r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(pod) },
			labels: map[string]string{"p": "x"}, audit: map[string]string{"mutated-by": "p/p-binding"}, seen: []string{"p Evaluated"},
		},
		{name: "a deletion", spec: mutating("*", labels(`"x"`)), change: func(r *admission.Request) { r.Operation, r.Object.Raw = admissionv1.Delete, nil }},
		{
			name: "a policy that fails", spec: mutating("pods", labels(`object.spec.nodeName`)),
			refused: "policy 'p' with binding 'p-binding' denied request", audit: map[string]string{"denied-by": "p/p-binding"}, seen: []string{"p Failed"},
		},
		{
			name: "a policy that fails and is ignored", spec: mutating("pods", labels(`object.spec.nodeName`), ignores),
			audit: map[string]string{"mutation-ignored": "p/p-binding", "profiles": "labels=object-not-selected"}, seen: []string{"p Ignored"},
		},
		{
			name: "an unknown field", spec: mutating("pods", "", ignores, func(p *mutation.Policy) {
				p.Spec.Mutations[0] = admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{
					Expression: `[JSONPatch{op: "add", path: "/spec/nonsense", value: 1}]`,
				}}
			}),
			refused: `unknown field "spec.nonsense"`,
		},
		{name: "a kind without a schema", spec: mutating("*", labels(`"x"`), ignores), change: of("example.com", "Gear", "gears", `{"apiVersion":"example.com/v1","kind":"Gear"}`), refused: "Resource kind"},
		{name: "no object", spec: mutating("pods", labels(`"x"`)), change: func(r *admission.Request) { r.Object.Raw = []byte(`[]`) }, refused: "object: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var profile sidecar.Profile
			profile.Name, profile.Spec.Injection = "labels", v1alpha1.OptOut
			profile.Spec.Match.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "p", Operator: metav1.LabelSelectorOpExists}}}
			profile.Spec.Template.Metadata.Labels = map[string]string{"a": "b"}
			snapshot, err := webhooks.Compile(webhooks.Spec{Sidecar: sidecar.Spec{Profiles: []sidecar.Profile{profile}}, Mutation: tc.spec})
			if err != nil {
				t.Fatal(err)
			}
			r := podRequest(pod)
			if tc.change != nil {
				tc.change(&r)
			}
			var seen []string
			got := webhooks.Endpoints()[2].Admission(t.Context(), snapshot, webhooks.Input{Request: r, Observers: webhooks.Observers{
				Policies: func(all []policy.Observation) {
					for _, o := range all {
						seen = append(seen, o.Policy+" "+string(o.Outcome))
					}
				},
			}})
			if !slices.Equal(seen, tc.seen) || !maps.Equal(got.AuditAnnotations, tc.audit) {
				t.Errorf("observed %q, want %q; annotations %v, want %v", seen, tc.seen, got.AuditAnnotations, tc.audit)
			}
			if tc.refused != "" {
				if shown := got.Result.Code < 500; got.Allowed || shown == (tc.name == "no object") || len(got.Patches) > 0 || !strings.Contains(got.Result.Message, tc.refused) {
					t.Errorf("got %+v, want %q", got, tc.refused)
				}
				return
			}
			if !got.Allowed {
				t.Fatalf("refused: %+v", got.Result)
			}
			if r.Object.Raw == nil {
				return
			}
			if found := patchedLabels(t, r.Object.Raw, got); !maps.Equal(found, tc.labels) {
				t.Errorf("labels %v, want %v; patches %v", found, tc.labels, got.Patches)
			}
			if r.Kind.Kind == "Pod" && strings.Contains(string(r.Object.Raw), "unknown") && !strings.Contains(string(patchedObject(t, r.Object.Raw, got)), `"unknown":1`) {
				t.Error("what the type does not know is lost")
			}
		})
	}
}

// TestMutateInTime holds that a review that takes too long is an error, for the failurePolicy of the webhook.
func TestMutateInTime(t *testing.T) {
	t.Parallel()
	snapshot, err := webhooks.Compile(webhooks.Spec{Mutation: mutating("pods", `Object{metadata: Object.metadata{labels: {"p": "x"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := webhooks.Endpoints()[2].Admission(ctx, snapshot, webhooks.Input{Request: podRequest(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[]}}`)})
	if got.Allowed || got.Result.Code != 500 || len(got.Patches) > 0 {
		t.Errorf("got %+v", got)
	}
}

func patchedObject(t *testing.T, object []byte, response admission.Response) []byte {
	t.Helper()
	operations, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Patches) == 0 {
		return object
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	out, err := patch.Apply(object)
	if err != nil {
		t.Fatalf("%v: %s", err, operations)
	}
	return out
}

func patchedLabels(t *testing.T, object []byte, response admission.Response) map[string]string {
	t.Helper()
	var out metav1.PartialObjectMetadata
	if err := json.Unmarshal(patchedObject(t, object, response), &out); err != nil {
		t.Fatal(err)
	}
	return out.Labels
}
