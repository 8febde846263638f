package webhooks_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// admissionEndpoints returns the admission endpoints, and a Snapshot with a profile and a
// policy that apply to each pod.
func admissionEndpoints(t *testing.T) ([]webhooks.Endpoint, *webhooks.Snapshot) {
	t.Helper()
	var profile sidecar.Profile
	profile.Name, profile.Spec.Injection = "labels", v1alpha1.OptOut
	profile.Spec.Template.Metadata.Labels = map[string]string{"a": "b"}
	var always policy.AdmissionPolicy
	always.Name = "always"
	always.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	always.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods"}},
		},
	}}}
	always.Spec.Validations = []v1alpha1.Validation{{Validation: admissionregistrationv1.Validation{Expression: "true"}}}
	snapshot, err := webhooks.Compile(webhooks.Spec{Sidecar: sidecar.Spec{Profiles: []sidecar.Profile{profile}}, Policy: policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{always}}})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(webhooks.Endpoints(), func(e webhooks.Endpoint) bool { return e.Admission == nil }), snapshot
}

func podRequest(object string) admission.Request {
	return sidecar.ForPod("shop", []byte(object)).Request
}

// TestAdmissionChecksJSON: a server that is not ours passes on any bytes.
func TestAdmissionChecksJSON(t *testing.T) {
	t.Parallel()
	endpoints, snapshot := admissionEndpoints(t)
	const pod = `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"app"}]}}`
	for _, tc := range []struct {
		name                 string
		object, old, options string
		// want is a part of the message, "" for a yes.
		want string
	}{
		{name: "a pod", object: pod},
		{name: "with space around it", object: " \n" + pod + "\t", old: " null ", options: " {}\r\n"},
		{name: "no JSON", object: pod[1:], want: "object: "},
		{name: "a member twice", object: strings.Replace(pod, `"name":"app"`, `"name":"app","name":"b"`, 1), want: "object: "},
		{name: "a member twice in the old object", object: pod, old: `{"a":1,"a":2}`, want: "oldObject: "},
		{name: "a member twice in the options", object: pod, options: `{"a":1,"a":2}`, want: "options: "},
		{name: "too deep", object: strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000), want: "object: "},
		{name: "too large", object: `{"a":"` + strings.Repeat("a", webhooks.MaxObjectBytes) + `"}`, want: "object: 33554440 bytes, more than 33554432"},
		{name: "no UTF-8", object: "{\"a\":\"\xff\"}", want: "object: "},
	} {
		for _, e := range endpoints {
			t.Run(tc.name+"/"+e.Name, func(t *testing.T) {
				t.Parallel()
				r := podRequest(tc.object)
				r.OldObject.Raw, r.Options.Raw = []byte(tc.old), []byte(tc.options)
				got := e.Admission(t.Context(), snapshot, webhooks.Input{Request: r})
				switch {
				case tc.want == "" && !got.Allowed:
					t.Errorf("refused: %+v", got.Result)
				case tc.want != "" && (got.Allowed || got.Result.Code != 500 || !strings.Contains(got.Result.Message, tc.want)):
					t.Errorf("got %+v, want %q", got.Result, tc.want)
				}
			})
		}
	}
}

// TestObservers: the observers count every request but dry runs, which leave no trace.
func TestObservers(t *testing.T) {
	t.Parallel()
	endpoints, snapshot := admissionEndpoints(t)
	for name, dry := range map[string]*bool{"unset": nil, "no dry run": new(bool), "a dry run": new(true)} {
		var got []string
		for _, e := range endpoints {
			r := podRequest(`{"spec":{"containers":[{"name":"app"}]}}`)
			r.DryRun = dry
			answer := e.Admission(t.Context(), snapshot, webhooks.Input{Request: r, Observers: webhooks.Observers{
				Profiles: func(all []sidecar.Verdict) { got = append(got, all[0].Profile+" "+string(all[0].Reason)) },
				Policies: func(all []policy.Observation) { got = append(got, all[0].Policy+" "+string(all[0].Outcome)) },
			}})
			if !answer.Allowed || e.Path == webhooks.MutatePath && len(answer.Patches) == 0 {
				t.Errorf("%s: %s answers %+v", name, e.Name, answer)
			}
		}
		want := []string{"labels applied", "always Passed"}
		if dry != nil && *dry {
			want = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: observed %q, want %q", name, got, want)
		}
	}
}

// TestOtherRequests: the mutating endpoint allows what creates no pod.
func TestOtherRequests(t *testing.T) {
	t.Parallel()
	endpoints, snapshot := admissionEndpoints(t)
	for _, change := range []func(*admission.Request){
		func(r *admission.Request) { r.Operation = admissionv1.Update },
		func(r *admission.Request) { r.SubResource = "ephemeralcontainers" },
		func(r *admission.Request) {
			r.Kind, r.Resource = metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		},
	} {
		r := podRequest(`{"spec":{}}`)
		change(&r)
		if got := endpoints[0].Admission(t.Context(), snapshot, webhooks.Input{Request: r}); !got.Allowed || len(got.Patches)+len(got.AuditAnnotations) > 0 {
			t.Errorf("got %+v", got)
		}
	}
}
