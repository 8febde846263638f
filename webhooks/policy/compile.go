package policy

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

const (
	policyKind           = "ValidatingAdmissionPolicy"
	bindingKind          = "ValidatingAdmissionPolicyBinding"
	admissionKind        = "AdmissionPolicy"
	admissionBindingKind = "AdmissionPolicyBinding"
	configurationKind    = "PolicyConfiguration"
)

// Set is a set of compiled policies. It is immutable and safe for concurrent use.
type Set struct {
	policies   []*compiledPolicy
	index      index
	objects    Objects
	authorizer authorizer.UnconditionalAuthorizer
	inject     Injector
	now        func() time.Time
	workloads  *workload.Kinds
	// option is that of the Spec, nil for none.
	option celbound.Option
	// budget is what all policies together may spend on a request.
	budget int64
	// checksTemplates is true if a policy checks pod templates.
	checksTemplates bool
	// selectors is how many distinct namespace and object selectors there are.
	selectors int
	warnings  diagnostic.List
	// conditions are those of the exceptions, by their titles.
	conditions map[string]*exceptionConditions
	// compiler made the policies for the version.
	compiler *expression.Compiler
	version  string
}

// Warnings returns the diagnostics of Compile that do not make the policies invalid, in a
// fixed order.
func (s *Set) Warnings() diagnostic.List { return slices.Clone(s.warnings) }

// compiledPolicy is one policy with its bindings.
type compiledPolicy struct {
	kind, name    string
	failurePolicy admissionregistrationv1.FailurePolicyType
	match         *matching.Constraints
	*program
	// podSecurity is nil for a policy without.
	podSecurity *podSecurity
	// bindings are none for a policy that is not in force.
	bindings []binding
	// exceptions are those that are about the policy, by name.
	exceptions []*exception
	// baselined are the violations that baselines allow, by the rule and then by the name of
	// the baseline. Most policies have none.
	baselined map[string][]baselined
	// checksTemplates is true if the policy checks pod templates, and allowsExisting if it
	// allows violations that were there before an update.
	checksTemplates, allowsExisting bool
	// needsNamespace is true if the policy can be evaluated only for a known namespace.
	needsNamespace bool
	// conditionsReadObjectOnly is true if its match conditions depend on the object alone.
	conditionsReadObjectOnly bool
	// broken is why the policy cannot be evaluated, nil if it can.
	broken error
	// spec and ruleNames are what program was compiled from.
	spec      *admissionregistrationv1.ValidatingAdmissionPolicySpec
	ruleNames []string
	contact   string
}

// needsKnownNamespace returns the value of needsNamespace.
func (p *compiledPolicy) needsKnownNamespace() bool {
	return p.uses.Has(expression.UsesNamespace) || p.podSecurity != nil && p.podSecurity.labels
}

// title returns how messages name a policy and a binding.
func title(kind, name, binding string) string {
	if binding == "" {
		return kind + " '" + name + "'"
	}
	return kind + " '" + name + "' with binding '" + binding + "'"
}

// binding applies a policy.
type binding struct {
	// name is "" for the actions that a policy has of its own.
	name string
	// match is nil if the binding matches whatever its policy matches.
	match   *matching.Constraints
	params  matching.Params
	actions []admissionregistrationv1.ValidationAction
	contact string
}

// defaultBudget is what all policies together may spend on a request: as much as
// ten bindings of upstream's. It takes seconds of processor time, so that the
// context usually ends first.
const defaultBudget = 10 * celconfig.RuntimeCELCostBudget

// Compile makes a Set of the spec, which it leaves as it is. The error is a
// diagnostic.List with everything that is wrong with the documents, in a fixed
// order, or that of the spec's Stop.
func Compile(spec Spec) (*Set, error) {
	c := &compilation{
		set: &Set{
			objects: spec.Objects, authorizer: spec.Authorizer, inject: spec.Inject, now: spec.Now,
			option: spec.Option, budget: defaultBudget, version: CompatibilityVersion, conditions: map[string]*exceptionConditions{},
		},
		selectors:     matching.NewSelectors(),
		previous:      map[exceptedPolicy]*compiledPolicy{},
		containerUses: map[*expression.Program]containerUse{},
		keepBroken:    spec.KeepBroken, followsParams: spec.FollowsParams,
		stop: spec.Stop,
	}
	if c.set.objects == nil {
		c.set.objects = matching.Nothing{}
	}
	builtin.TypeOf(corev1.SchemeGroupVersion.WithKind("Pod")) // so that no request waits for the table of types
	var err error
	if c.podSecurity, err = podsecurity.New(); err != nil {
		return nil, err
	}
	c.configuration(spec.Configuration)
	if err := c.compilerFor(spec.Previous); err != nil {
		return nil, err
	}

	c.policies(&spec)
	slices.SortStableFunc(c.set.policies, func(a, b *compiledPolicy) int {
		return cmp.Or(cmp.Compare(a.name, b.name), -cmp.Compare(a.kind, b.kind))
	})
	c.exceptions(&spec)
	c.baselines(&spec)
	if spec.Stop != nil {
		if err := spec.Stop(); err != nil {
			return nil, err
		}
	}

	c.diagnostics.Sort()
	if err := c.diagnostics.Err(); err != nil && (!spec.KeepBroken || c.hasFatal()) {
		return nil, err
	}
	c.set.index = newIndex(c.set.policies, c.set.objects)
	for _, p := range c.set.policies {
		c.set.checksTemplates = c.set.checksTemplates || p.checksTemplates && len(p.bindings) > 0
	}
	c.set.selectors = c.selectors.Count()
	c.set.warnings = c.diagnostics
	return c.set, nil
}

// compilation is one call of Compile.
type compilation struct {
	set         *Set
	diagnostics diagnostic.List
	selectors   matching.Selectors
	compiler    *expression.Compiler
	podSecurity *podsecurity.Evaluator
	// previous are policies whose programs can be used again.
	previous map[exceptedPolicy]*compiledPolicy
	// conditions are those of exceptions of which the same holds.
	conditions map[string]*exceptionConditions
	keepBroken bool
	// followsParams is that of the Spec.
	followsParams bool
	// stop is that of the spec.
	stop func() error
	// broken is how many errors are in expressions and exceptions, which need not
	// keep the rest from working.
	broken int
	// counted is how many diagnostics wrong has counted, and errors how many of these are
	// errors.
	counted, errors int
	// named are the policies of all documents.
	named []exceptedPolicy
	// containerUses are those of rules that exceptions of containers are from.
	containerUses map[*expression.Program]containerUse
}

// compilerFor takes the compiler of the previous Set, and the policies that it
// compiled, if it is for the same version.
func (c *compilation) compilerFor(previous *Set) error {
	if previous != nil && previous.version == c.set.version {
		c.compiler, c.conditions = previous.compiler, previous.conditions
		for _, p := range previous.policies {
			c.previous[exceptedPolicy{p.kind, p.name}] = p
		}
	} else {
		var err error
		if c.compiler, err = expression.NewCompiler(c.set.version, c.set.option); err != nil {
			return err
		}
	}
	c.set.compiler = c.compiler
	return nil
}

// hasFatal reports whether there are errors that keeping broken policies does not
// help with.
func (c *compilation) hasFatal() bool { return c.errorCount() != c.broken }

func (c *compilation) reporter(source, kind, name string) validation.Reporter {
	return validation.Reporter{Source: source, Object: kind + "/" + name, List: &c.diagnostics}
}

// errorCount returns the number of errors so far. It reads each diagnostic once.
func (c *compilation) errorCount() int {
	for _, f := range c.diagnostics[c.counted:] {
		if f.Severity == diagnostic.Error {
			c.errors++
		}
	}
	c.counted = len(c.diagnostics)
	return c.errors
}

// policyDocument is a policy of either kind, whose spec has its defaults.
type policyDocument struct {
	validation.Reporter
	Kind, Name  string
	Spec        *admissionregistrationv1.ValidatingAdmissionPolicySpec
	annotations map[string]string
	// own is nil for a ValidatingAdmissionPolicy.
	own *v1alpha1.AdmissionPolicySpec
}

// ruleNames returns the names of the validations in messages.
func (p *policyDocument) ruleNames() []string {
	names := make([]string, len(p.Spec.Validations))
	for i := range names {
		if names[i] = v1alpha1.IndexedRule(i); p.own != nil {
			names[i] = p.own.RuleName(i)
		}
	}
	return names
}

// policies checks and compiles all policies and bindings.
func (c *compilation) policies(spec *Spec) {
	var all []policyDocument
	seen := map[string]validation.Taken{policyKind: {}, admissionKind: {}}
	add := func(source, kind string, meta *metav1.ObjectMeta, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, own *v1alpha1.AdmissionPolicySpec) {
		d := c.reporter(source, kind, meta.Name)
		seen[kind].Check(d, meta.Name)
		all = append(all, policyDocument{d, kind, meta.Name, validation.DefaultPolicySpec(spec), meta.Annotations, own})
	}
	for i := range spec.Policies {
		p := &spec.Policies[i]
		add(p.Source, policyKind, &p.ObjectMeta, &p.Spec, nil)
	}
	for i := range spec.AdmissionPolicies {
		p := &spec.AdmissionPolicies[i]
		add(p.Source, admissionKind, &p.ObjectMeta, p.Spec.Upstream(), &p.Spec)
	}
	bound := c.bindings(spec, all)
	for i := range all {
		c.named = append(c.named, exceptedPolicy{all[i].Kind, all[i].Name})
		c.policy(&all[i], bound[all[i].Kind][all[i].Name])
	}
}

// policy checks and compiles one policy.
func (c *compilation) policy(p *policyDocument, bound []boundSpec) {
	before := c.errorCount()
	complete := p.own != nil && p.own.PodSecurity != nil
	validation.CheckPolicySpec(p.Reporter, p.Name, p.Spec, complete)
	if p.own != nil {
		validation.CheckRuleNames(p.Reporter, p.own.Validations, field.NewPath("spec", "validations"))
	}
	out := &compiledPolicy{kind: p.Kind, name: p.Name, failurePolicy: *p.Spec.FailurePolicy, spec: p.Spec, ruleNames: p.ruleNames(), contact: contactOf(p.Reporter, p.annotations)}
	templates, existing := c.extensions(p)
	out.allowsExisting = existing
	own := p.own != nil && len(p.own.ValidationActions) > 0
	if own {
		validation.CheckActions(p.Reporter, p.own.ValidationActions, field.NewPath("spec", "validationActions"))
		if p.Spec.ParamKind != nil {
			p.Errorf(field.NewPath("spec", "validationActions"), "write an AdmissionPolicyBinding with paramRef and validationActions, and drop them here",
				"is not allowed with paramKind: nothing here names the params")
		}
	}
	if complete {
		out.podSecurity = compilePodSecurity(p.Reporter, c.podSecurity, p.Name, p.own.PodSecurity, p.Spec.MatchConstraints)
	}
	whole := c.errorCount() == before
	out.program = c.program(p, out.ruleNames)
	if wrong := c.errorCount() - before; whole && wrong > 0 {
		// Only expressions are wrong.
		c.broken += wrong
		out.broken = errors.New("its expressions do not compile (hint for its maintainer: gatehouse lint)")
		if c.keepBroken {
			whole = true
		}
	}
	if bound == nil && !own {
		kind := bindingKind
		if p.own != nil {
			kind = admissionBindingKind
		}
		hint := "write a " + kind + " with this policyName"
		if p.own != nil {
			hint = "set spec.validationActions, or write an " + kind + " with this policyName"
		}
		p.NoEffect(nil, hint, "no binding names the policy, so it does nothing")
	}
	if !whole || c.errorCount() != before && !c.keepBroken {
		return
	}
	out.conditionsReadObjectOnly = !slices.ContainsFunc(out.conditions, func(c expression.Condition) bool { return !readsObjectOnly(c.Program) })
	out.match = c.selectors.Compile(p.Spec.MatchConstraints)
	out.checksTemplates = templates && out.match.MatchesPodCreation()
	out.needsNamespace = out.needsKnownNamespace()
	if c.set.authorizer == nil && out.uses.Has(expression.UsesAuthorizer) {
		p.Warnf(nil, "add the Roles and bindings to the directory, or connect to a cluster", "the policy uses authorizer, and no Roles and bindings are known: these expressions fail")
	}
	if own {
		out.bindings = append(out.bindings, binding{actions: slices.Clone(p.own.ValidationActions)})
	}
	reaches := p.CheckReach(p.Spec.MatchConstraints, nil)
	if out.broken == nil {
		reaches = expression.CheckConditions(p.Reporter, field.NewPath("spec", "matchConditions"), "policy", out.conditions) && reaches
	}
	useful := own || !reaches || len(bound) == 0
	for _, b := range bound {
		useful = !reaches || b.spec.MatchResources == nil || b.CheckReach(p.Spec.MatchConstraints, b.spec.MatchResources) || useful
		validation.CheckParamRef(b.Reporter, p.Spec.ParamKind, b.spec.ParamRef)
		compiled := binding{name: b.name, actions: b.spec.ValidationActions, contact: b.contact, params: matching.CompileParams(p.Spec.ParamKind, b.spec.ParamRef)}
		c.checkParams(b.Reporter, &compiled.params)
		if b.spec.MatchResources != nil {
			compiled.match = c.selectors.Compile(b.spec.MatchResources)
		}
		out.bindings = append(out.bindings, compiled)
	}
	if !useful {
		p.NoEffect(nil, "", "its bindings match nothing that it matches, so it does nothing")
	}
	c.set.policies = append(c.set.policies, out)
}

// contactOf returns whom to ask about a denial. One that cannot be shown is ignored, so that it keeps no policy from working.
func contactOf(d validation.Reporter, annotations map[string]string) string {
	const most = 256 // bytes
	contact := strings.TrimSpace(annotations[v1alpha1.ContactAnnotation])
	if len(contact) > most || strings.ContainsFunc(contact, func(r rune) bool { return !unicode.IsPrint(r) }) {
		d.Warnf(field.NewPath("metadata", "annotations").Key(v1alpha1.ContactAnnotation), "name a team, a channel or a page", "is ignored: it must be one line of at most %d bytes", most)
		return ""
	}
	return contact
}

// program compiles the expressions of a policy, or takes what they compiled to
// before.
func (c *compilation) program(p *policyDocument, ruleNames []string) *program {
	earlier := c.previous[exceptedPolicy{p.Kind, p.Name}]
	if earlier != nil && earlier.broken == nil && slices.Equal(earlier.ruleNames, ruleNames) &&
		apiequality.Semantic.DeepEqual(earlier.spec, p.Spec) {
		return earlier.program
	}
	return compileProgram(expression.NewScope(p.Reporter, c.compiler, p.Spec.ParamKind != nil, p.Spec.Variables, c.stop), p.Name, p.Spec, ruleNames)
}

// extensions returns what a policy asks for beyond upstream's semantics: an
// AdmissionPolicy by default, a ValidatingAdmissionPolicy by annotation.
func (c *compilation) extensions(p *policyDocument) (templates, existing bool) {
	var t v1alpha1.WorkloadTemplates
	var e v1alpha1.ExistingViolations
	at := func(name string) *field.Path { return field.NewPath("spec", name) }
	names := [2]string{"workloadTemplates", "existingViolations"}
	if p.own != nil {
		t = cmp.Or(p.own.WorkloadTemplates, v1alpha1.CheckTemplates)
		e = cmp.Or(p.own.ExistingViolations, v1alpha1.AllowExisting)
	} else {
		t, e = v1alpha1.IgnoreTemplates, v1alpha1.DenyExisting
		at = func(name string) *field.Path { return field.NewPath("metadata", "annotations").Key(name) }
		names = [2]string{v1alpha1.WorkloadTemplatesAnnotation, v1alpha1.ExistingViolationsAnnotation}
		if text, given := p.annotations[v1alpha1.WorkloadTemplatesAnnotation]; given {
			t = v1alpha1.WorkloadTemplates(text)
		}
		if text, given := p.annotations[v1alpha1.ExistingViolationsAnnotation]; given {
			e = v1alpha1.ExistingViolations(text)
		}
	}
	if t != v1alpha1.CheckTemplates && t != v1alpha1.IgnoreTemplates {
		p.NotSupported(at(names[0]), string(t), string(v1alpha1.CheckTemplates), string(v1alpha1.IgnoreTemplates))
	}
	if e != v1alpha1.AllowExisting && e != v1alpha1.DenyExisting {
		p.NotSupported(at(names[1]), string(e), string(v1alpha1.AllowExisting), string(v1alpha1.DenyExisting))
	}
	return t == v1alpha1.CheckTemplates, e == v1alpha1.AllowExisting
}

// rulesOf returns the names of the rules of a policy, nil if there is no such policy, and the names of
// rules by their index, such as "validations[2]", for those that have a name of their own.
func (c *compilation) rulesOf(key exceptedPolicy) (out []string, named map[string]string) {
	named = map[string]string{}
	for _, p := range c.set.policies {
		if !key.includes(exceptedPolicy{p.kind, p.name}) {
			continue
		}
		out = slices.Grow(out, 1) // not nil
		for i := range p.validations {
			name := p.validations[i].name
			out = append(out, name)
			if indexed := p.validations[i].indexed; indexed != "" {
				named[indexed] = name
			}
		}
		for i := range p.auditAnnotations {
			out = append(out, p.auditAnnotations[i].name)
		}
		if p.podSecurity != nil {
			for _, check := range podsecurity.Checks() {
				out = append(out, "podSecurity."+check)
			}
		}
	}
	return out, named
}
