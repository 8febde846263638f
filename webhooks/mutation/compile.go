package mutation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

const (
	policyKind  = "MutatingAdmissionPolicy"
	bindingKind = "MutatingAdmissionPolicyBinding"
	// compatibilityVersion is the Kubernetes version whose expressions are valid, as in webhooks/policy.
	compatibilityVersion = "1.36"
)

// Set is a set of compiled policies. It is immutable and safe for concurrent use.
type Set struct {
	// policies are in the order of their names.
	policies []*compiledPolicy
	// byResource are those in force by the names of the resources that they name, and anyResource are those in force that name
	// all resources. Equivalent resources have the same name.
	byResource  map[string][]*compiledPolicy
	anyResource []*compiledPolicy

	lookups   Lookups
	maxObject int
	// selectors is how many distinct namespace and object selectors there are.
	selectors int
	warnings  diagnostic.List
	compiler  *expression.Compiler
}

// Warnings returns the diagnostics of Compile that do not make the policies invalid, in a
// fixed order.
func (s *Set) Warnings() diagnostic.List { return slices.Clone(s.warnings) }

// IsEmpty reports whether no policy of the Set is in force.
func (s *Set) IsEmpty() bool {
	return !slices.ContainsFunc(s.policies, func(p *compiledPolicy) bool { return len(p.bindings) > 0 })
}

// compiledPolicy is one policy with its bindings.
type compiledPolicy struct {
	name string
	// ignores is true for failurePolicy Ignore, and reinvoked for reinvocationPolicy IfNeeded.
	ignores, reinvoked bool
	match              *matching.Constraints
	*program
	// bindings are in the order of their names. There are none for a policy that is not in force.
	bindings []binding
	// broken is why the policy cannot be evaluated, nil if it can.
	broken error
	// spec is what program was compiled from.
	spec *admissionregistrationv1.MutatingAdmissionPolicySpec
}

// binding applies a policy.
type binding struct {
	name string
	// match is nil if the binding matches whatever its policy matches.
	match  *matching.Constraints
	params matching.Params
}

// program is what the expressions of one policy compile to.
type program struct {
	conditions []expression.Condition
	// variables is nil for a policy without.
	variables *expression.Variables
	mutations []mutationProgram
	// uses are the names that mutations mention.
	uses expression.Uses
}

// mutationProgram is one mutation of a policy.
type mutationProgram struct {
	kind admissionregistrationv1.PatchType
	*expression.Program
}

// Compile makes a Set of the spec, which it leaves as it is. The error is a
// diagnostic.List with everything that is wrong with the documents, in a fixed
// order, or that of the spec's Stop.
func Compile(spec Spec) (*Set, error) {
	c := &compilation{
		set:       &Set{lookups: spec.complete(), maxObject: cmp.Or(spec.MaxObject, DefaultMaxObject)},
		selectors: matching.NewSelectors(), previous: map[string]*compiledPolicy{}, spec: &spec,
	}
	if spec.Previous != nil {
		c.set.compiler = spec.Previous.compiler
		for _, p := range spec.Previous.policies {
			c.previous[p.name] = p
		}
	} else {
		var err error
		if c.set.compiler, err = expression.NewCompiler(compatibilityVersion, nil); err != nil {
			return nil, err
		}
	}
	if len(spec.Policies) > 0 {
		builtin.TypeConverter() // so that no request waits for the schemas
	}
	bound, names := c.bindings(), validation.Taken{}
	for i := range spec.Policies {
		p := &spec.Policies[i]
		names.Check(validation.Reporter{Source: p.Source, Object: policyKind + "/" + p.Name, List: &c.diagnostics}, p.Name)
		c.policy(p, bound[p.Name])
	}
	slices.SortStableFunc(c.set.policies, func(a, b *compiledPolicy) int { return cmp.Compare(a.name, b.name) })
	if spec.Stop != nil {
		if err := spec.Stop(); err != nil {
			return nil, err
		}
	}
	c.diagnostics.Sort()
	if err := c.diagnostics.Err(); err != nil && (!spec.KeepBroken || c.errorCount() != c.brokenExpressions) {
		return nil, err
	}
	c.set.selectors, c.set.warnings = c.selectors.Count(), c.diagnostics
	c.set.index()
	return c.set, nil
}

// index makes the index of the policies.
func (s *Set) index() {
	s.byResource = map[string][]*compiledPolicy{}
	for _, p := range s.policies {
		if len(p.bindings) == 0 {
			continue
		}
		names := map[string]bool{}
		for _, rule := range p.spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				name, _, _ := strings.Cut(resource, "/")
				names[name] = true
			}
		}
		if names["*"] || len(names) == 0 {
			s.anyResource = append(s.anyResource, p)
			for name, list := range s.byResource {
				s.byResource[name] = append(list, p)
			}
			continue
		}
		for name := range names {
			if s.byResource[name] == nil {
				s.byResource[name] = slices.Clone(s.anyResource)
			}
			s.byResource[name] = append(s.byResource[name], p)
		}
	}
}

// about returns the policies in force that may match a resource, in the order of their names.
func (s *Set) about(resource string) []*compiledPolicy {
	if list, named := s.byResource[resource]; named {
		return list
	}
	return s.anyResource
}

// compilation is one call of Compile.
type compilation struct {
	set         *Set
	spec        *Spec
	diagnostics diagnostic.List
	selectors   matching.Selectors
	// previous are policies whose programs can be used again.
	previous map[string]*compiledPolicy
	// brokenExpressions is how many errors are in expressions of policies that are kept.
	brokenExpressions int
}

func (c *compilation) errorCount() int {
	n := 0
	for i := range c.diagnostics {
		if c.diagnostics[i].Severity == diagnostic.Error {
			n++
		}
	}
	return n
}

// boundSpec is a checked binding, and empty for one with errors.
type boundSpec struct {
	validation.Reporter
	name string
	spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
}

// bindings checks the bindings and groups them by their policy.
func (c *compilation) bindings() map[string][]boundSpec {
	var known []string
	for i := range c.spec.Policies {
		known = append(known, c.spec.Policies[i].Name)
	}
	bound, names := map[string][]boundSpec{}, validation.Taken{}
	for i := range c.spec.Bindings {
		b := &c.spec.Bindings[i]
		r, before := validation.Reporter{Source: b.Source, Object: bindingKind + "/" + b.Name, List: &c.diagnostics}, c.errorCount()
		names.Check(r, b.Name)
		spec := validation.DefaultBindingSpec(&admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: b.Spec.PolicyName, ParamRef: b.Spec.ParamRef, MatchResources: b.Spec.MatchResources,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, // what is required of the other kind
		})
		validation.CheckBindingSpec(r, policyKind, spec)
		if spec.PolicyName != "" && !slices.Contains(known, spec.PolicyName) {
			r.NoEffect(field.NewPath("spec", "policyName"), diagnostic.NameHint(spec.PolicyName, known...), "there is no %s %q, so the binding does nothing", policyKind, spec.PolicyName)
		}
		if c.errorCount() != before {
			spec = nil
		}
		bound[b.Spec.PolicyName] = append(bound[b.Spec.PolicyName], boundSpec{r, b.Name, spec})
	}
	for _, list := range bound {
		slices.SortFunc(list, func(a, b boundSpec) int { return cmp.Compare(a.name, b.name) })
	}
	return bound
}

// policy checks and compiles one policy.
func (c *compilation) policy(p *Policy, bound []boundSpec) {
	r, before := validation.Reporter{Source: p.Source, Object: policyKind + "/" + p.Name, List: &c.diagnostics}, c.errorCount()
	spec := checkSpec(r, p.Name, p.Spec.DeepCopy())
	whole := c.errorCount() == before
	out := &compiledPolicy{
		name: p.Name, spec: spec, ignores: *spec.FailurePolicy == admissionregistrationv1.Ignore,
		reinvoked: spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy,
	}
	if earlier := c.previous[p.Name]; earlier != nil && earlier.broken == nil && apiequality.Semantic.DeepEqual(earlier.spec, spec) {
		out.program = earlier.program
	} else {
		out.program = c.compileProgram(r, spec)
	}
	if wrong := c.errorCount() - before; whole && wrong > 0 {
		c.brokenExpressions += wrong
		out.broken = errors.New("its expressions do not compile (hint for its maintainer: gatehouse lint)")
		whole = c.spec.KeepBroken
	}
	if len(bound) == 0 {
		r.NoEffect(nil, "write a "+bindingKind+" with this policyName", "no binding names the policy, so it does nothing")
	}
	if !whole {
		return
	}
	out.match = c.selectors.Compile(spec.MatchConstraints)
	reaches := r.CheckReach(spec.MatchConstraints, nil)
	if out.broken == nil {
		reaches = expression.CheckConditions(r, field.NewPath("spec", "matchConditions"), "policy", out.conditions) && reaches
	}
	useful := !reaches || len(bound) == 0
	for _, b := range bound {
		if b.spec == nil {
			useful = true
			continue
		}
		useful = !reaches || b.spec.MatchResources == nil || b.CheckReach(spec.MatchConstraints, b.spec.MatchResources) || useful
		validation.CheckParamRef(b.Reporter, spec.ParamKind, b.spec.ParamRef)
		compiled := binding{name: b.name, params: matching.CompileParams(spec.ParamKind, b.spec.ParamRef)}
		if b.spec.MatchResources != nil {
			compiled.match = c.selectors.Compile(b.spec.MatchResources)
		}
		out.bindings = append(out.bindings, compiled)
	}
	if !useful {
		r.NoEffect(nil, "", "its bindings match nothing that it matches, so it does nothing")
	}
	c.set.policies = append(c.set.policies, out)
}

// checkSpec reports what the API server refuses in the spec of a policy, but for what its expressions say, and fills in defaults.
func checkSpec(r validation.Reporter, name string, spec *admissionregistrationv1.MutatingAdmissionPolicySpec) *admissionregistrationv1.MutatingAdmissionPolicySpec {
	shared := validation.DefaultPolicySpec(&admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: spec.ParamKind, MatchConstraints: spec.MatchConstraints, FailurePolicy: spec.FailurePolicy,
		MatchConditions: spec.MatchConditions, Variables: spec.Variables,
	})
	spec.FailurePolicy, spec.MatchConstraints = shared.FailurePolicy, shared.MatchConstraints
	const withoutValidations = true
	validation.CheckPolicySpec(r, name, shared, withoutValidations)
	path := field.NewPath("spec")
	if spec.MatchConstraints != nil {
		for i := range spec.MatchConstraints.ResourceRules {
			for k, operation := range spec.MatchConstraints.ResourceRules[i].Operations {
				if operation == admissionregistrationv1.Delete {
					r.Errorf(path.Child("matchConstraints", "resourceRules").Index(i).Child("operations").Index(k), `allowed are "CREATE", "UPDATE", "CONNECT" and "*"`,
						"%q has no object to change", operation)
				}
			}
		}
	}
	never, ifNeeded := string(admissionregistrationv1.NeverReinvocationPolicy), string(admissionregistrationv1.IfNeededReinvocationPolicy)
	switch got := string(spec.ReinvocationPolicy); got {
	case never, ifNeeded:
	case "":
		r.Required(path.Child("reinvocationPolicy"), fmt.Sprintf("write %q, or %q to run again after another policy has changed the object", never, ifNeeded))
	default:
		r.NotSupported(path.Child("reinvocationPolicy"), got, never, ifNeeded)
	}
	if len(spec.Mutations) == 0 {
		r.Required(path.Child("mutations"), "add a mutation with patchType and applyConfiguration or jsonPatch")
	}
	for i := range spec.Mutations {
		checkMutation(r, &spec.Mutations[i], path.Child("mutations").Index(i))
	}
	return spec
}

func checkMutation(r validation.Reporter, m *admissionregistrationv1.Mutation, path *field.Path) {
	apply, json := admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch
	if m.PatchType == "" {
		r.Required(path.Child("patchType"), fmt.Sprintf("write %q or %q", apply, json))
		return
	}
	if m.PatchType != apply && m.PatchType != json {
		r.NotSupported(path.Child("patchType"), string(m.PatchType), string(apply), string(json))
		return
	}
	check := func(child string, given, wanted bool) {
		switch {
		case given && !wanted:
			r.Errorf(path.Child(child), "", "is not allowed with patchType %q", m.PatchType)
		case !given && wanted:
			r.Required(path.Child(child), fmt.Sprintf("patchType is %q", m.PatchType))
		}
	}
	check("applyConfiguration", m.ApplyConfiguration != nil, m.PatchType == apply)
	check("jsonPatch", m.JSONPatch != nil, m.PatchType == json)
	if child, text := expressionOf(m); child != "" && strings.TrimSpace(text) == "" {
		r.Required(path.Child(child, "expression"), "write a CEL expression")
	}
}

// expressionOf returns the expression of a mutation and the name of the field that has it, "" if there is none.
func expressionOf(m *admissionregistrationv1.Mutation) (child, text string) {
	switch {
	case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
		return "applyConfiguration", m.ApplyConfiguration.Expression
	case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
		return "jsonPatch", m.JSONPatch.Expression
	default:
		return "", ""
	}
}

// compileProgram compiles the expressions of a policy and reports those that do not compile. It compiles none of a policy that has
// too many, or too large ones.
func (c *compilation) compileProgram(r validation.Reporter, spec *admissionregistrationv1.MutatingAdmissionPolicySpec) *program {
	out, path := &program{}, field.NewPath("spec")
	s := expression.NewScope(r, c.set.compiler, spec.ParamKind != nil, spec.Variables, c.spec.Stop)
	texts := make([]string, len(spec.Mutations))
	for i := range spec.Mutations {
		_, texts[i] = expressionOf(&spec.Mutations[i])
	}
	if !s.FitWith(path, spec.MatchConditions, spec.Variables, texts) {
		return out
	}
	out.conditions = s.CompileConditions(path.Child("matchConditions"), spec.MatchConditions)
	out.variables = s.DeclareVariables(path.Child("variables"), spec.Variables)
	s.Patches = true
	for i := range spec.Mutations {
		m := &spec.Mutations[i]
		child, text := expressionOf(m)
		if strings.TrimSpace(text) == "" {
			continue
		}
		results := (&patch.JSONPatchCondition{}).ReturnTypes()
		if m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration {
			results = (&patch.ApplyConfigurationCondition{}).ReturnTypes()
		}
		if compiled := s.Compile(path.Child("mutations").Index(i).Child(child, "expression"), text, results...); compiled != nil {
			out.mutations = append(out.mutations, mutationProgram{m.PatchType, compiled})
		}
	}
	out.uses = s.Uses
	s.Seal()
	return out
}
