package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// compiler compiles policies. Making the declarations that expressions are compiled
// with takes longer than compiling most policies, so they are kept.
type compiler struct {
	mu sync.Mutex
	// version is the PolicyConfiguration's version of CEL that base is of. Base has
	// no policies, and is nil until there was one.
	version string
	base    *policy.Set
}

// diagnosePolicy compiles a policy with the bindings that name it.
func (c *compiler) diagnosePolicy(current *config.Config, p *v1alpha1.AdmissionPolicy, stop func() error) diagnostic.List {
	spec := policy.Spec{AdmissionPolicies: []policy.AdmissionPolicy{{Source: config.ClusterSource, AdmissionPolicy: *p}}}
	for _, b := range current.Policy.AdmissionPolicyBindings {
		if b.Spec.PolicyName == p.Name {
			spec.AdmissionPolicyBindings = append(spec.AdmissionPolicyBindings, b)
		}
	}
	own, _ := partition(c.compile(current, &spec, stop), admissionPolicy+"/"+p.Name)
	return own
}

// diagnoseBinding compiles a binding with its policy, if there is one.
func (c *compiler) diagnoseBinding(current *config.Config, b *v1alpha1.AdmissionPolicyBinding, stop func() error) diagnostic.List {
	spec := policy.Spec{AdmissionPolicyBindings: []policy.AdmissionPolicyBinding{{Source: config.ClusterSource, AdmissionPolicyBinding: *b}}}
	spec.Policies, spec.AdmissionPolicies = selectPolicies(current, func(_, name string) bool { return name == b.Spec.PolicyName })
	own, _ := partition(c.compile(current, &spec, stop), admissionPolicyBinding+"/"+b.Name)
	if len(spec.AdmissionPolicies) == 0 {
		var names []string
		for i := range current.Policy.AdmissionPolicies {
			names = append(names, current.Policy.AdmissionPolicies[i].Name)
		}
		addHint(own, "spec.policyName", b.Spec.PolicyName, names)
	}
	return own
}

// diagnoseException compiles an exception with those of its policies that exist.
func (c *compiler) diagnoseException(current *config.Config, x *v1alpha1.PolicyException, stop func() error) diagnostic.List {
	spec := policy.Spec{Exceptions: []policy.Exception{{Source: config.ClusterSource, PolicyException: *x}}}
	spec.Policies, spec.AdmissionPolicies = selectPolicies(current, func(kind, name string) bool {
		return slices.ContainsFunc(x.Spec.Policies, func(p v1alpha1.ExceptedPolicy) bool { return p.Name == name && (p.Kind == "" || p.Kind == kind) })
	})
	own, _ := partition(c.compile(current, &spec, stop), policyException+"/"+x.Namespace+"/"+x.Name)
	for i, p := range x.Spec.Policies {
		var names []string
		_, _ = selectPolicies(current, func(_, name string) bool {
			names = append(names, name)
			return false
		})
		addHint(own, fmt.Sprintf("spec.policies[%d].name", i), p.Name, names)
	}
	if at := x.Spec.ExpiresAt; at != nil && !clock(current)().Before(at.Time) {
		own = append(own, diagnostic.Diagnostic{
			Severity: diagnostic.Warning, Source: config.ClusterSource, Object: policyException + "/" + x.Namespace + "/" + x.Name, Field: "spec.expiresAt",
			Message: fmt.Sprintf("%q has passed: the exception has no effect", at.UTC().Format(time.RFC3339)),
			Hint:    "delete the exception, or set a later time",
		})
	}
	return own
}

// addHint adds the name that may be meant to the warnings about a missing object at a
// field.
func addHint(found diagnostic.List, field, name string, names []string) {
	for i := range found {
		if f := &found[i]; f.Field == field && f.Severity == diagnostic.Warning {
			f.Hint = cmp.Or(f.Hint, diagnostic.NameHint(name, names...))
		}
	}
}

// selectPolicies returns the policies of both kinds that satisfy a condition.
func selectPolicies(current *config.Config, condition func(kind, name string) bool) (upstream []policy.Policy, own []policy.AdmissionPolicy) {
	for i := range current.Policy.Policies {
		if p := &current.Policy.Policies[i]; condition(validatingAdmissionPolicy, p.Name) {
			upstream = append(upstream, *p)
		}
	}
	for i := range current.Policy.AdmissionPolicies {
		if p := &current.Policy.AdmissionPolicies[i]; condition(admissionPolicy, p.Name) {
			own = append(own, *p)
		}
	}
	return upstream, own
}

// compile returns the diagnostics of the policies, bindings and exceptions of a spec, which
// it completes with the settings that apply to all of them.
func (c *compiler) compile(current *config.Config, spec *policy.Spec, stop func() error) diagnostic.List {
	spec.Configuration, spec.Objects, spec.Authorizer, spec.Now = current.Policy.Configuration, current.Policy.Objects, current.Policy.Authorizer, current.Policy.Now
	spec.KeepBroken = true // bindings of an invalid policy are checked too
	spec.Stop = stop
	spec.Previous = c.declarations(spec.Configuration)
	set, err := policy.Compile(*spec)
	if err != nil {
		return diagnosticsOf(err, stop)
	}
	return set.Warnings()
}

// declarations returns a Set without policies for the configured version of CEL, nil if
// the configuration is invalid.
func (c *compiler) declarations(configuration *policy.Configuration) *policy.Set {
	version := ""
	if configuration != nil {
		version = configuration.CELCompatibilityVersion
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base == nil || c.version != version {
		base, err := policy.Compile(policy.Spec{Configuration: configuration})
		if err != nil {
			return nil // compile reports why
		}
		c.base, c.version = base, strings.Clone(version)
	}
	return c.base
}
