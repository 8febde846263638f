package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
)

// TestElements holds that a pod with more elements than are looked at is denied,
// whatever list has them, so that a webhook that fails open does not let it pass, and
// that one with as many as allowed is not. If only the object from before the update has
// more, it is neither.
func TestElements(t *testing.T) {
	t.Parallel()
	set := compile(t, own(`validations: [{expression: "object.kind != 'x'"}]`))
	list := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"name":"a","image":"registry.example/some/image"},`, n), ",") + "]"
	}
	for _, name := range []string{"containers", "initContainers", "ephemeralContainers", "volumes"} {
		for _, n := range []int{workload.MaxElements, workload.MaxElements + 1} {
			spec := fmt.Sprintf(`{%q: %s}`, name, list(n))
			pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"shop"},"spec":` + spec + `}`
			deployment := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"p","namespace":"shop"},"spec":{"template":{"spec":` + spec + `}}}`
			for _, tc := range []struct {
				name, object string
				options      []func(*admission.Request)
				want         string
			}{
				{"created", pod, nil, "denied"},
				{"updated", pod, []func(*admission.Request){updating(t, plainPod)}, "denied"},
				{"updated to something small", plainPod, []func(*admission.Request){updating(t, pod)}, "cannot decide"},
				{"in a template", deployment, nil, "denied"},
				{"in the template of before", strings.Replace(deployment, spec, "{}", 1), []func(*admission.Request){updating(t, deployment)}, "cannot decide"},
			} {
				want := tc.want
				if n <= workload.MaxElements {
					want = "allowed"
				}
				response := decide(t, set, review(t, tc.object, tc.options...))
				if got := verdict(response); got != want {
					t.Errorf("%d %s %s: %s, want %s", n, name, tc.name, got, want)
				} else if got != "allowed" && !strings.Contains(message(response), fmt.Sprintf("spec.%s has %d elements: at most %d are allowed", name, n, workload.MaxElements)) {
					t.Errorf("it says %s", message(response))
				}
			}
		}
	}
}

// TestElementsOfAmbiguousPod holds that a pod with too many elements is denied whatever else is wrong with it: "cannot decide" is
// allowed by a webhook that fails open.
func TestElementsOfAmbiguousPod(t *testing.T) {
	t.Parallel()
	set := compile(t, own(`validations: [{expression: "object.kind != 'x'"}]`))
	containers := strings.TrimSuffix(strings.Repeat(`{"name":"a","image":"registry.example/some/image"},`, workload.MaxElements+1), ",")
	for name, member := range map[string]string{"a member twice": `"x":1,"x":2`, "a number out of range": `"x":1e999`} {
		response := decide(t, set, review(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"shop"},"spec":{`+member+`,"containers":[`+containers+`]}}`))
		if got := verdict(response); got != "denied" {
			t.Errorf("%s: %s (%s)", name, got, message(response))
		}
	}
}
