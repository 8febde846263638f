package cluster

import (
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// configuration is a configuration in the making.
type configuration struct {
	policy   policy.Spec
	mutation mutation.Spec
	sidecar  sidecar.Spec
}

func paramKind(apiVersion, kind string) *admissionregistrationv1.ParamKind {
	if kind == "" {
		return nil
	}
	return &admissionregistrationv1.ParamKind{APIVersion: apiVersion, Kind: kind}
}

// upstream adds a policy and bindings to it, each with a param of that namespace
// and name, or with a selector if the name is "".
func (c *configuration) upstream(apiVersion, kind string, refs ...[2]string) {
	var p policy.Policy
	p.Name = fmt.Sprint("upstream", len(c.policy.Policies))
	p.Spec.ParamKind = paramKind(apiVersion, kind)
	c.policy.Policies = append(c.policy.Policies, p)
	for _, ref := range refs {
		var b policy.Binding
		b.Spec = bindingSpec(p.Name, ref)
		c.policy.Bindings = append(c.policy.Bindings, b)
	}
}

// own does the same with an AdmissionPolicy.
func (c *configuration) own(apiVersion, kind string, refs ...[2]string) {
	var p policy.AdmissionPolicy
	p.Name = fmt.Sprint("own", len(c.policy.AdmissionPolicies))
	p.Spec.ParamKind = paramKind(apiVersion, kind)
	c.policy.AdmissionPolicies = append(c.policy.AdmissionPolicies, p)
	for _, ref := range refs {
		var b policy.AdmissionPolicyBinding
		b.Spec = bindingSpec(p.Name, ref)
		c.policy.AdmissionPolicyBindings = append(c.policy.AdmissionPolicyBindings, b)
	}
}

func bindingSpec(policyName string, ref [2]string) admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec {
	out := admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policyName, ParamRef: &admissionregistrationv1.ParamRef{Namespace: ref[0], Name: ref[1]},
	}
	if ref[1] == "" {
		out.ParamRef.Selector = &metav1.LabelSelector{}
	}
	return out
}

func (c *configuration) presets(refs ...[2]string) {
	var p sidecar.Profile
	for _, ref := range refs {
		p.Spec.Presets = append(p.Spec.Presets, v1alpha1.SidecarPreset{ConfigMap: v1alpha1.ObjectReference{Namespace: ref[0], Name: ref[1]}})
	}
	c.sidecar.Profiles = append(c.sidecar.Profiles, p)
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		make       func(*configuration)
		namespaces bool
		want       []Target
	}{
		{"nothing", func(*configuration) {}, false, nil},
		{"policy without params", func(c *configuration) { c.upstream("", "", [2]string{"one", "x"}) }, true, nil},
		{"profile", func(c *configuration) { c.presets() }, true, nil},
		{"policy without a binding", func(c *configuration) { c.upstream("v1", "ConfigMap") }, true, nil},
		{"binding without its policy", func(c *configuration) {
			c.policy.Bindings = []policy.Binding{{ValidatingAdmissionPolicyBinding: admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				Spec: bindingSpec("gone", [2]string{"one", "x"}),
			}}}
		}, false, nil},
		{"one object", func(c *configuration) { c.upstream("v1", "ConfigMap", [2]string{"one", "x"}) }, true, []Target{{configMaps, "one", "x"}}},
		{"object in the namespace of the request", func(c *configuration) { c.own("v1", "ConfigMap", [2]string{"", "x"}) }, true, []Target{{configMaps, "", "x"}}},
		{"selector", func(c *configuration) { c.own("v1", "ConfigMap", [2]string{"one", ""}) }, true, []Target{{configMaps, "one", ""}}},
		{"namespace among all", func(c *configuration) {
			c.upstream("v1", "ConfigMap", [2]string{"one", ""}, [2]string{"two", "x"}, [2]string{"", ""})
		}, true, []Target{{configMaps, "", ""}}},
		{"object among those of its namespace", func(c *configuration) {
			c.upstream("v1", "ConfigMap", [2]string{"one", "x"}, [2]string{"one", ""}, [2]string{"two", "x"})
		}, true, []Target{{configMaps, "one", ""}, {configMaps, "two", "x"}}},
		{"object among those of its name", func(c *configuration) {
			c.upstream("v1", "ConfigMap", [2]string{"one", "x"}, [2]string{"", "x"}, [2]string{"one", "y"})
		}, true, []Target{{configMaps, "", "x"}, {configMaps, "one", "y"}}},
		{"preset and param", func(c *configuration) {
			c.presets([2]string{"mesh", "preset"}, [2]string{"mesh", "other"})
			c.upstream("v1", "ConfigMap", [2]string{"mesh", "preset"})
		}, true, []Target{{configMaps, "mesh", "other"}, {configMaps, "mesh", "preset"}}},
		{"kinds apart", func(c *configuration) {
			c.own("example.com/v1", "Limit", [2]string{"", "x"})
			c.upstream("v1", "ConfigMap", [2]string{"", ""})
		}, true, []Target{{configMaps, "", ""}, {limits, "", "x"}}},
		{"policies of the same name apart", func(c *configuration) {
			c.upstream("v1", "ConfigMap", [2]string{"one", "x"})
			c.own("example.com/v1", "Limit", [2]string{"", "y"})
			c.policy.Policies[0].Name, c.policy.Bindings[0].Spec.PolicyName = "same", "same"
			c.policy.AdmissionPolicies[0].Name, c.policy.AdmissionPolicyBindings[0].Spec.PolicyName = "same", "same"
		}, true, []Target{{configMaps, "one", "x"}, {limits, "", "y"}}},
		{"policies that mutate", func(c *configuration) {
			c.mutation.Policies, c.mutation.Bindings = make([]mutation.Policy, 1), make([]mutation.Binding, 1)
			c.mutation.Policies[0].Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Limit"}
			c.mutation.Bindings[0].Spec.ParamRef = &admissionregistrationv1.ParamRef{Namespace: "one"}
		}, true, []Target{{limits, "one", ""}}},
		{"policies that mutate custom resources", func(c *configuration) {
			c.mutation.Policies = []mutation.Policy{mutating("example.com", "gears", "gears/status", "wheels"), mutating("apps", "*"), mutating("", "pods")}
		}, true, []Target{{definitionKind, "", "gears.example.com"}, {definitionKind, "", "wheels.example.com"}}},
		{"policies that mutate all resources of a group", func(c *configuration) {
			c.mutation.Policies = []mutation.Policy{mutating("example.com", "gears"), mutating("example.org", "*")}
		}, true, []Target{{definitionKind, "", ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var c configuration
			test.make(&c)
			got := FindWatchTargets(&c.policy, &c.mutation, &c.sidecar)
			if got.Namespaces != test.namespaces || !slices.Equal(got.Targets, test.want) {
				t.Errorf("got %+v, want %v, %v", got, test.namespaces, test.want)
			}
		})
	}
}
