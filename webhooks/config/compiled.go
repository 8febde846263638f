package config

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// CompiledFrom returns the kind and name of what gatehouse compile has made an object from, and false for an object that it has not made.
func CompiledFrom(object metav1.Object) (source string, is bool) {
	source = object.GetAnnotations()[v1alpha1.CompiledFromAnnotation]
	return source, source != "" && object.GetLabels()[v1alpha1.ManagedByLabel] == v1alpha1.CompileManager
}

// LeaveCompiled removes, and returns, the API server's own policies and bindings that were compiled from an object of this configuration:
// each violation would have two messages. It is called before the configuration is shared.
func (c *Config) LeaveCompiled() (left []Object) {
	sources := map[string]bool{}
	for o := range c.Objects(sidecarProfile, upstreamPolicy, admissionPolicy) {
		if _, is := CompiledFrom(o); !is {
			sources[o.Kind+"/"+o.GetName()] = true
		}
	}
	isTwice := func(kind, source string, object metav1.Object) bool {
		from, is := CompiledFrom(object)
		if is = is && sources[from]; is {
			left = append(left, Object{object, kind, source})
		}
		return is
	}
	c.Policy.Policies = slices.DeleteFunc(slices.Clone(c.Policy.Policies), func(p policy.Policy) bool {
		return isTwice(upstreamPolicy, p.Source, &p.ValidatingAdmissionPolicy)
	})
	c.Policy.Bindings = slices.DeleteFunc(slices.Clone(c.Policy.Bindings), func(b policy.Binding) bool {
		return isTwice(upstreamBinding, b.Source, &b.ValidatingAdmissionPolicyBinding)
	})
	c.Mutation.Policies = slices.DeleteFunc(slices.Clone(c.Mutation.Policies), func(p mutation.Policy) bool {
		return isTwice(mutatingPolicy, p.Source, &p.MutatingAdmissionPolicy)
	})
	c.Mutation.Bindings = slices.DeleteFunc(slices.Clone(c.Mutation.Bindings), func(b mutation.Binding) bool {
		return isTwice(mutatingBinding, b.Source, &b.MutatingAdmissionPolicyBinding)
	})
	return left
}

// compiledTwice returns the warnings about compiled documents beside their sources, which are left out.
func (c *Config) compiledTwice() (found diagnostic.List) {
	for _, o := range c.LeaveCompiled() {
		from, _ := CompiledFrom(o)
		found = append(found, diagnostic.Diagnostic{
			Severity: diagnostic.Warning, Source: o.Source, Object: o.Kind + "/" + o.GetName(),
			Message: "is ignored: gatehouse compile has made it from " + strict.Printable(from) + ", which is in the configuration too",
			Hint:    "keep compiled documents in another directory, for the API server",
		})
	}
	return found
}
