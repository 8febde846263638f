package sidecar_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestReasonsAreTold: every reason has words of its own, and one name.
func TestReasonsAreTold(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, r := range sidecar.Reasons() {
		text := r.Text()
		if text == "" || text == string(r) || seen[text] || seen[string(r)] {
			t.Errorf("reason %q is told as %q", r, text)
		}
		seen[text], seen[string(r)] = true, true
	}
}

// TestElements: a pod with more elements than are looked at is refused, and not left to
// the webhook that fails open, by which it would do without what all others get.
func TestElements(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("a", "{}", "OptOut"))
	for n, code := range map[int]int32{workload.MaxElements: 0, workload.MaxElements + 1: 422} {
		volumes := strings.TrimSuffix(strings.Repeat(`{"name":"v","emptyDir":{}},`, n), ",")
		got := set.Decide(t.Context(), sidecar.Input{Request: request("shop", `{"spec":{"containers":[{"name":"app","image":"x"}],"volumes":[`+volumes+`]}}`)}).Response()
		if got.Allowed != (code == 0) || code != 0 && got.Result.Code != code {
			t.Errorf("%d volumes: allowed %t, %+v", n, got.Allowed, got.Result)
		}
	}
}

func TestIsNewPod(t *testing.T) {
	t.Parallel()
	pod := admissionv1.AdmissionRequest{
		Operation: admissionv1.Create,
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object:    runtime.RawExtension{Raw: []byte("{}")},
	}
	for name, c := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		want   bool
	}{
		"a pod":            {func(*admissionv1.AdmissionRequest) {}, true},
		"an update":        {func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }, false},
		"a subresource":    {func(r *admissionv1.AdmissionRequest) { r.SubResource = "binding" }, false},
		"another kind":     {func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "Binding" }, false},
		"another resource": {func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "metrics.k8s.io" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := admission.Request{AdmissionRequest: pod}
			c.change(&req.AdmissionRequest)
			if got := sidecar.IsNewPod(&req); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
