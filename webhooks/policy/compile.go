package policy

import (
	"cmp"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
)

const (
	policyKind    = "ValidatingAdmissionPolicy"
	bindingKind   = "ValidatingAdmissionPolicyBinding"
	admissionKind = "AdmissionPolicy"
)

// Set is a number of policies, ready to decide. It is immutable and safe for
// concurrent use.
type Set struct {
	policies []*compiledPolicy
	index    index
	objects  Objects
	// managedFields is false if no policy can see those of an object: then they
	// are not decoded.
	managedFields bool
	// selectors is how many distinct namespace and object selectors there are.
	selectors int
	warnings  finding.List
}

// Warnings are what Compile found that does not keep the policies from being
// used, in a fixed order.
func (s *Set) Warnings() finding.List { return slices.Clone(s.warnings) }

// compiledPolicy is one policy with its bindings. Policies without one are not
// kept.
type compiledPolicy struct {
	kind, name    string
	failurePolicy admissionregistrationv1.FailurePolicyType
	match         *constraints
	*program
	// podSecurity is nil for a policy without.
	podSecurity *podSecurity
	bindings    []binding
	// auditKeys has the published key for each key of the policy.
	auditKeys map[string]string
}

// title is how messages name the policy and a binding.
func (p *compiledPolicy) title(binding string) string {
	if binding == "" {
		return fmt.Sprintf("%s '%s'", p.kind, p.name)
	}
	return fmt.Sprintf("%s '%s' with binding '%s'", p.kind, p.name, binding)
}

// binding is one way in which a policy is in force.
type binding struct {
	// name is "" for the actions that a policy has of its own.
	name string
	// match is nil if the binding does not narrow down its policy.
	match   *constraints
	params  params
	actions []admissionregistrationv1.ValidationAction
}

// Compile makes a Set of the spec, which it leaves as it is. The error is a
// finding.List with everything that is wrong with the documents, in a fixed
// order.
func Compile(spec Spec) (*Set, error) {
	c := &compilation{
		set:         &Set{index: index{}, objects: spec.Objects},
		selectors:   selectors{byText: map[string]*selector{}},
		expressions: newExpressions(),
	}
	if c.set.objects == nil {
		c.set.objects = nothing{}
	}
	var err error
	if c.podSecurity, err = podsecurity.New(); err != nil {
		return nil, err
	}

	c.policies(spec.Policies, c.bindings(spec))
	c.admissionPolicies(spec)

	c.findings.Sort()
	if err := c.findings.Err(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.set.policies, func(a, b *compiledPolicy) int {
		return cmp.Or(cmp.Compare(a.name, b.name), -cmp.Compare(a.kind, b.kind))
	})
	for n, p := range c.set.policies {
		c.set.index.add(n, p.match.rules)
		c.set.managedFields = c.set.managedFields || p.looksAtManagedFields
	}
	c.set.selectors = len(c.selectors.byText)
	c.set.warnings = c.findings
	return c.set, nil
}

// compilation is one call of Compile.
type compilation struct {
	set         *Set
	findings    finding.List
	selectors   selectors
	expressions *expressions
	podSecurity *podsecurity.Evaluator
}

func (c *compilation) document(source, kind, name string) document {
	return document{source: source, object: kind + "/" + name, findings: &c.findings}
}

// wrong is the number of findings so far, to tell whether there are new errors.
func (c *compilation) wrong() int {
	n := 0
	for _, f := range c.findings {
		if f.Severity == finding.Error {
			n++
		}
	}
	return n
}

// names reports names that occur twice among the documents of a kind.
type names map[string]string

func (n names) check(d document, source, name string) {
	checkName(d, name)
	if name == "" {
		return
	}
	if first, taken := n[name]; taken {
		hint := ""
		if first != "" {
			hint = fmt.Sprintf("the first is in %s", first)
		}
		d.errorf(field.NewPath("metadata", "name"), hint, "%q is taken by another document", name)
		return
	}
	n[name] = source
}

// boundSpec is a checked binding.
type boundSpec struct {
	document
	name string
	spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
}

// bindings checks the bindings and groups them by policy. Those with errors are
// left out, but their policies are in the result.
func (c *compilation) bindings(spec Spec) map[string][]boundSpec {
	policies := make([]string, len(spec.Policies))
	for i := range spec.Policies {
		policies[i] = spec.Policies[i].Name
	}
	bound, seen := map[string][]boundSpec{}, names{}
	for i := range spec.Bindings {
		b := &spec.Bindings[i]
		d := c.document(b.Source, bindingKind, b.Name)
		seen.check(d, b.Source, b.Name)
		defaulted, before := withBindingDefaults(&b.Spec), c.wrong()
		checkBindingSpec(d, defaulted)
		if defaulted.PolicyName != "" && !slices.Contains(policies, defaulted.PolicyName) {
			d.warnf(field.NewPath("spec", "policyName"), finding.DidYouMean(defaulted.PolicyName, policies...),
				"there is no ValidatingAdmissionPolicy %q, so the binding does nothing", defaulted.PolicyName)
		}
		list := bound[defaulted.PolicyName]
		if c.wrong() == before {
			list = append(list, boundSpec{d, b.Name, defaulted})
		}
		bound[defaulted.PolicyName] = list
	}
	for _, list := range bound {
		slices.SortFunc(list, func(a, b boundSpec) int { return cmp.Compare(a.name, b.name) })
	}
	return bound
}

func (c *compilation) policies(list []Policy, bound map[string][]boundSpec) {
	seen := names{}
	for i := range list {
		p := &list[i]
		d := c.document(p.Source, policyKind, p.Name)
		seen.check(d, p.Source, p.Name)
		spec, before := withDefaults(&p.Spec), c.wrong()
		checkSpec(d, p.Name, spec, false)
		program := c.expressions.compile(d, p.Name, spec, false)
		if _, named := bound[p.Name]; !named {
			d.warnf(nil, "write a ValidatingAdmissionPolicyBinding with this policyName", "no binding names the policy, so it does nothing")
		}
		if c.wrong() != before || len(bound[p.Name]) == 0 {
			continue
		}
		compiled := c.compiled(policyKind, p.Name, spec, program)
		for _, b := range bound[p.Name] {
			ref := field.NewPath("spec", "paramRef")
			switch {
			case spec.ParamKind != nil && b.spec.ParamRef == nil:
				b.warnf(ref, "name the params, or drop paramKind from the policy", "the policy has paramKind, so params is null for this binding")
			case spec.ParamKind == nil && b.spec.ParamRef != nil:
				b.warnf(ref, "set spec.paramKind in the policy", "the policy has no paramKind, so this does nothing")
			}
			out := binding{name: b.name, actions: b.spec.ValidationActions, params: compileParams(c.set.objects, spec.ParamKind, b.spec.ParamRef)}
			if b.spec.MatchResources != nil {
				out.match = c.selectors.compileMatch(b.spec.MatchResources)
			}
			compiled.bindings = append(compiled.bindings, out)
		}
		c.set.policies = append(c.set.policies, compiled)
	}
}

func (c *compilation) admissionPolicies(spec Spec) {
	seen := names{}
	for i := range spec.AdmissionPolicies {
		p := &spec.AdmissionPolicies[i]
		d := c.document(p.Source, admissionKind, p.Name)
		seen.check(d, p.Source, p.Name)
		defaulted, before := withDefaults(&p.Spec.ValidatingAdmissionPolicySpec), c.wrong()
		checkSpec(d, p.Name, defaulted, p.Spec.PodSecurity != nil)
		checkActions(d, p.Spec.ValidationActions, field.NewPath("spec", "validationActions"))
		if defaulted.ParamKind != nil {
			d.errorf(field.NewPath("spec", "paramKind"), "write a ValidatingAdmissionPolicy and a binding with paramRef",
				"is not allowed: without a binding there is nothing to name the params")
		}
		program := c.expressions.compile(d, p.Name, defaulted, p.Spec.PodSecurity != nil)
		var standard *podSecurity
		if p.Spec.PodSecurity != nil {
			standard = compilePodSecurity(d, c.podSecurity, p.Spec.PodSecurity, defaulted.MatchConstraints)
		}
		if c.wrong() != before {
			continue
		}
		compiled := c.compiled(admissionKind, p.Name, defaulted, program)
		compiled.podSecurity = standard
		compiled.bindings = []binding{{actions: slices.Clone(p.Spec.ValidationActions)}}
		c.set.policies = append(c.set.policies, compiled)
	}
}

// compiled is a checked policy without its bindings.
func (c *compilation) compiled(kind, name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, program *program) *compiledPolicy {
	out := &compiledPolicy{
		kind: kind, name: name, failurePolicy: *spec.FailurePolicy,
		match: c.selectors.compileMatch(spec.MatchConstraints), program: program,
	}
	if len(spec.AuditAnnotations) > 0 {
		out.auditKeys = make(map[string]string, len(spec.AuditAnnotations))
		for _, a := range spec.AuditAnnotations {
			out.auditKeys[a.Key] = auditKey(name, a.Key)
		}
	}
	return out
}
