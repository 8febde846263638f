package registration

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const recorded = "record.validate.gatehouse.dev Ignore"

// TestRecordOnlyIsSentOnce: requests that no policy needs are sent for the recording, and no request is sent twice.
func TestRecordOnlyIsSentOnce(t *testing.T) {
	t.Parallel()
	const closed, open = "fail.validate.gatehouse.dev Fail", "ignore.validate.gatehouse.dev Ignore"
	object := map[string]any{"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": "x", "uid": "00000000-0000-4000-8000-000000000000"}}
	servers := map[string]*apiServer{}
	for _, kubernetes := range versions() {
		servers[kubernetes.String()] = newAPIServer(t, kubernetes, options(withURL, func(o *Options) {
			o.Spec = &webhooks.Spec{Policy: policy.Spec{
				Policies: spec().Policy.Policies, Bindings: spec().Policy.Bindings,
				AdmissionPolicies: []policy.AdmissionPolicy{ours("hosts", specWith("Ignore", named("networking.k8s.io", "v1", "ingresses", create)))},
			}}
			o.ExcludeNamespaces = []string{"calico-system"}
			o.RecordOnly, o.RecordShare = rulesOf("*.*:*,pods/exec"), 1
		}))
	}
	for name, c := range map[string]struct {
		request request
		want    []string
	}{
		"a kind without a policy":               {request{admission.Create, "", "v1", "configmaps", "default", object, nil}, []string{recorded}},
		"its deletion":                          {request{admission.Delete, "", "v1", "configmaps", "default", nil, object}, []string{recorded}},
		"a custom resource":                     {request{admission.Update, "example.com", "v1", "things", "default", object, nil}, []string{recorded}},
		"what a policy matches":                 {request{admission.Create, "apps", "v1", "deployments", "default", object, nil}, []string{closed}},
		"… and one that fails open":             {request{admission.Create, "networking.k8s.io", "v1", "ingresses", "default", object, nil}, []string{open}},
		"another operation on what one matches": {request{admission.Update, "networking.k8s.io", "v1", "ingresses", "default", object, nil}, []string{recorded}},
		"a cluster role":                        {request{admission.Create, "rbac.authorization.k8s.io", "v1", "clusterroles", "", object, nil}, []string{recorded}},
		"a connection, which has no UID":        {request{admission.Connect, "", "v1", "pods/exec", "default", map[string]any{"command": "sh"}, nil}, []string{recorded}},
		"a secret":                              {request{admission.Create, "", "v1", "secrets", "default", object, nil}, nil},
		"a status":                              {request{admission.Update, "", "v1", "pods/status", "default", object, nil}, nil},
		"an event":                              {request{admission.Create, "", "v1", "events", "default", object, nil}, nil},
		"a lease":                               {request{admission.Update, "coordination.k8s.io", "v1", "leases", "default", object, nil}, nil},
		"a node":                                {request{admission.Create, "", "v1", "nodes", "", object, nil}, nil},
		"a policy":                              {request{admission.Create, v1alpha1.GroupVersion.Group, "v1alpha1", "admissionpolicies", "", object, nil}, nil},
		"in kube-system":                        {request{admission.Create, "", "v1", "configmaps", "kube-system", object, nil}, nil},
		"in the namespace of Gatehouse":         {request{admission.Create, "", "v1", "configmaps", "gatehouse-system", object, nil}, nil},
		"in an excluded namespace":              {request{admission.Create, "", "v1", "configmaps", "calico-system", object, nil}, nil},
	} {
		for kubernetes, s := range servers {
			t.Run(name+" "+kubernetes, func(t *testing.T) {
				t.Parallel()
				if got := s.calls(t, c.request); !slices.Equal(got, c.want) {
					t.Errorf("called are %q, want %q", got, c.want)
				}
			})
		}
	}
}

// TestRecordOnlySecretsByName: Secrets are sent if they are named.
func TestRecordOnlySecretsByName(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, environment.DefaultCompatibilityVersion(), options(withURL, func(o *Options) {
		o.Spec, o.RecordOnly, o.RecordShare = &webhooks.Spec{}, rulesOf("*.*,secrets"), 1
	}))
	object := map[string]any{"metadata": map[string]any{"name": "x"}}
	if got := s.calls(t, request{admission.Create, "", "v1", "secrets", "default", object, nil}); !slices.Equal(got, []string{recorded}) {
		t.Errorf("called are %q", got)
	}
}

// TestRecordOnlyShare: of 256 objects with evenly distributed UIDs the share is sent, each for every operation.
func TestRecordOnlyShare(t *testing.T) {
	t.Parallel()
	for share, want := range map[float64]int{1: 256, 0.5: 128, 0.1: 26, 0.000001: 1} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t, environment.DefaultCompatibilityVersion(), options(withURL, func(o *Options) {
				o.Spec, o.RecordOnly, o.RecordShare = &webhooks.Spec{}, rulesOf("configmaps:*"), share
			}))
			sent := 0
			for i := range 256 {
				object := map[string]any{"metadata": map[string]any{"name": "x", "uid": fmt.Sprintf("%02x00f3a1-95b6-4c0e-9d5b-0c2f4a8e7d11", i)}}
				created := len(s.calls(t, request{admission.Create, "", "v1", "configmaps", "default", object, nil}))
				updated := len(s.calls(t, request{admission.Update, "", "v1", "configmaps", "default", object, nil}))
				deleted := len(s.calls(t, request{admission.Delete, "", "v1", "configmaps", "default", nil, object}))
				if created != updated || created != deleted {
					t.Errorf("object %d: sent for %d creations, %d updates and %d deletions", i, created, updated, deleted)
				}
				sent += created
			}
			// The smallest share of UIDs begins with 0000, and 0000f3a1 is among them.
			if sent != want {
				t.Errorf("%d of 256 objects are sent, want %d", sent, want)
			}
		})
	}
}

// TestRecordOnlySendsNothingForPolicies: a policy cannot rely on requests that are only recorded.
func TestRecordOnlySendsNothingForPolicies(t *testing.T) {
	t.Parallel()
	configs, _ := configurationsOf(t, func(o *Options) {
		withResources(o)
		o.RecordOnly, o.RecordShare = rulesOf("services"), 1
	})
	about := own(specWith("Ignore", named("", "v1", "services", create)))
	if got := NotSent(&v1alpha1.AdmissionPolicy{Spec: about}, nil, configs); len(got) != 1 {
		t.Errorf("remarks are %q, want one that services are not sent", got)
	}
}
