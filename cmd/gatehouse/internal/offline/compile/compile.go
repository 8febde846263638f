// Package compile translates policies, bindings and exceptions of Gatehouse into ValidatingAdmissionPolicies, which the API server enforces by
// itself, and says of every rule and exception whether the API server then decides as Gatehouse does. It is pure: no clock, no file, no client.
package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// Options are what Compile is to know besides the configuration.
type Options struct {
	// Kubernetes is the version of the API server, such as "1.36".
	Kubernetes string
	// Now is the time by which exceptions and baselines have expired.
	Now time.Time
	// Until, if it is not zero, is the time up to which the documents will be used: exceptions that expire before are left out.
	Until time.Time
}

// compilation is one call of Compile.
type compilation struct {
	spec      *policy.Spec
	options   Options
	out       Output
	compiler  *expression.Compiler
	selectors matching.Selectors
	workloads *workload.Kinds
	excepted  []exception
	// mutating is the last of the policies that mutate, whose compiler is used again.
	mutating *mutation.Set
	// injects is true if pods get sidecars.
	injects bool
	names   map[string]string
	items   map[string][]*Item // of the documents, by their names
}

// Compile compiles a configuration that is valid. The error is about the options.
func Compile(configuration *config.Config, options Options) (*Output, error) {
	c := &compilation{
		spec: &configuration.Policy, options: options, selectors: matching.NewSelectors(), injects: len(configuration.Sidecar.Profiles) > 0,
		names: map[string]string{}, items: map[string][]*Item{},
	}
	var err error
	if c.compiler, err = expression.NewCompiler(options.Kubernetes, nil); err != nil {
		return nil, err
	}
	if c.workloads, err = workload.New(workload.FromAPI(configuration.Workloads())); err != nil {
		return nil, err
	}
	c.excepted = c.exceptions()
	exceptionItems := c.out.Items
	c.out.Items = nil
	sources := c.sources()
	for i := range sources {
		if err := c.source(&sources[i]); err != nil {
			return nil, err
		}
	}
	if err := c.profiles(configuration); err != nil {
		return nil, err
	}
	if err := c.verify(); err != nil {
		return nil, err
	}
	slices.SortFunc(exceptionItems, func(a, b *Item) int { return cmp.Compare(a.Name, b.Name) })
	c.out.Items = append(c.out.Items, exceptionItems...)
	return &c.out, nil
}

// item adds one to the report.
func (c *compilation) item(kind, name, rule string) *Item {
	item := &Item{Kind: kind, Name: name, Rule: rule, Status: Native}
	c.out.Items = append(c.out.Items, item)
	return item
}

// source is a policy of either kind with its bindings.
type source struct {
	kind, name  string
	spec        *admissionregistrationv1.ValidatingAdmissionPolicySpec
	own         *v1alpha1.AdmissionPolicySpec
	annotations map[string]string
	bindings    []bound
	templates   bool
	existing    bool
}

// bound is a binding of a source.
type bound struct {
	// source is its name, "" for the actions of an AdmissionPolicy itself.
	source, name string
	spec *admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
}

const (
	policyKind    = "ValidatingAdmissionPolicy"
	admissionKind = "AdmissionPolicy"
)

// sources returns the policies by their names.
func (c *compilation) sources() (out []source) {
	bindings := map[string][]bound{}
	for i := range c.spec.Bindings {
		b := &c.spec.Bindings[i]
		key := policyKind + "/" + b.Spec.PolicyName
		bindings[key] = append(bindings[key], bound{b.Name, b.Name, validation.DefaultBindingSpec(&b.Spec)})
	}
	for i := range c.spec.AdmissionPolicyBindings {
		b := &c.spec.AdmissionPolicyBindings[i]
		key := admissionKind + "/" + b.Spec.PolicyName
		bindings[key] = append(bindings[key], bound{b.Name, b.Name + ownSuffix, validation.DefaultBindingSpec(&b.Spec)})
	}
	for i := range c.spec.Policies {
		p := &c.spec.Policies[i]
		out = append(out, source{
			kind: policyKind, name: p.Name, spec: validation.DefaultPolicySpec(&p.Spec), annotations: p.Annotations,
			templates: p.Annotations[v1alpha1.WorkloadTemplatesAnnotation] == string(v1alpha1.CheckTemplates),
			existing:  p.Annotations[v1alpha1.ExistingViolationsAnnotation] == string(v1alpha1.AllowExisting),
		})
	}
	for i := range c.spec.AdmissionPolicies {
		p := &c.spec.AdmissionPolicies[i]
		s := source{
			kind: admissionKind, name: p.Name, spec: validation.DefaultPolicySpec(p.Spec.Upstream()), own: &p.Spec, annotations: p.Annotations,
			templates: p.Spec.WorkloadTemplates != v1alpha1.IgnoreTemplates, existing: p.Spec.ExistingViolations != v1alpha1.DenyExisting,
		}
		if len(p.Spec.ValidationActions) > 0 {
			actions := &admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{ValidationActions: p.Spec.ValidationActions}
			s.bindings = append(s.bindings, bound{"", p.Name + ownSuffix, actions})
		}
		out = append(out, s)
	}
	for i := range out {
		out[i].bindings = append(out[i].bindings, bindings[out[i].kind+"/"+out[i].name]...)
	}
	slices.SortFunc(out, func(a, b source) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind)) })
	return out
}

// ownSuffix ends the names of what AdmissionPolicies become. ValidatingAdmissionPolicies keep their names.
const ownSuffix = ".gatehouse.dev"

// rule is a validation of a policy, or a check of a standard.
type rule struct {
	name, indexed                          string
	expression, message, messageExpression string
	reason                                 *metav1.StatusReason
	standard                               bool
	item                                   *Item
	program                                *expression.Program
}

// source compiles a policy.
func (c *compilation) source(s *source) error {
	if len(s.bindings) == 0 {
		c.item(s.kind, s.name, "").note("no binding puts it in force")
		return nil
	}
	if c.isPlain(s) {
		c.plain(s)
		return nil
	}
	rules, err := c.rules(s)
	if err != nil {
		return err
	}
	conditionsReadObject := c.programs(s, rules)
	existing := s.existing && conditionsReadObject
	denying := 0
	for _, b := range s.bindings {
		if slices.Contains(b.spec.ValidationActions, admissionregistrationv1.Deny) {
			denying++
		}
	}
	created := creationOf(s.spec.MatchConstraints.ResourceRules)
	if existing && denying > 0 && (denying < len(s.bindings) || created == partlyCreated || !isEmptySelector(s.spec.MatchConstraints.ObjectSelector)) {
		for i := range rules {
			rules[i].item.differ("an update of an object that violates the rule already is refused")
		}
		existing = false
	}
	existing = existing && denying > 0
	first := &part{isPod: matchesOnlyPods(s.spec.MatchConstraints), matchesNamespaces: matchesNamespaces(s.spec.MatchConstraints)}
	byPath := map[string]*part{}
	for _, k := range c.workloads.All() {
		path := strings.Join(k.Template, ".")
		if byPath[path] == nil {
			byPath[path] = &part{path: k.Template, isPod: true}
			first.templates = append(first.templates, k.Template)
		}
		byPath[path].kinds = append(byPath[path].kinds, k)
	}
	if err := c.part(s, first, rules, existing && created == alwaysCreated); err != nil {
		return err
	}
	if !s.templates || !c.selectors.Compile(s.spec.MatchConstraints).MatchesPodCreation() {
		return nil
	}
	for _, path := range sortedKeys(byPath) {
		p := byPath[path]
		p.skipsSame = s.existing && conditionsReadObject
		if p.template, err = newForTemplate(p.path); err != nil {
			return err
		}
		if err := c.part(s, p, rules, existing); err != nil {
			return err
		}
	}
	return nil
}

// isPlain reports whether a policy is Kubernetes' own and nothing of Gatehouse applies to it.
func (c *compilation) isPlain(s *source) bool {
	return s.own == nil && !s.templates && !s.existing && len(c.baselined(s.kind, s.name)) == 0 &&
		!slices.ContainsFunc(c.excepted, func(x exception) bool { _, isAbout := x.of(s.kind, s.name); return isAbout })
}

// plain adds a policy as it is.
func (c *compilation) plain(s *source) {
	var names []string
	for i := range s.spec.Validations {
		names = append(names, v1alpha1.IndexedRule(i))
		c.item(s.kind, s.name, names[i])
	}
	for i := range s.spec.AuditAnnotations {
		c.item(s.kind, s.name, fmt.Sprintf("auditAnnotations[%d]", i))
	}
	c.emit(s, nil, s.name, s.spec, time.Time{}, c.out.Items[len(c.out.Items)-len(s.spec.Validations)-len(s.spec.AuditAnnotations):], names)
	for _, b := range s.bindings {
		c.bind(s, nil, b.source, b.name, s.name, *b.spec)
	}
}

// rules returns the rules of a policy, and adds them to the report.
func (c *compilation) rules(s *source) ([]rule, error) {
	var out []rule
	if s.own != nil && s.own.PodSecurity != nil {
		standard := s.own.PodSecurity
		item := c.item(s.kind, s.name, "podSecurity")
		item.note("messages say what is forbidden, and not in which container")
		checks, err := standardRules(standard.Level, standard.Version)
		if err != nil {
			return nil, err
		}
		if standard.NamespaceLabels == v1alpha1.HonorNamespaceLabels {
			item.stay("labels of the namespace decide the level (the API server's own PodSecurity plug-in reads them, for pods)")
		}
		for i := range checks {
			checks[i].item, checks[i].reason = item, new(metav1.StatusReasonForbidden)
		}
		out = checks
	}
	for i := range s.spec.Validations {
		v := &s.spec.Validations[i]
		r := rule{name: v1alpha1.IndexedRule(i), expression: v.Expression, message: strings.TrimSpace(v.Message), messageExpression: v.MessageExpression, reason: v.Reason}
		if s.own != nil && s.own.Validations[i].Name != "" {
			r.indexed, r.name = r.name, s.own.RuleName(i)
		}
		r.item = c.item(s.kind, s.name, r.name)
		out = append(out, r)
	}
	baselined := c.baselined(s.kind, s.name)
	for i := range out {
		r := &out[i]
		if baselined[r.name] {
			r.item.stay("a PolicyBaseline allows some violations by their hashes, which the API server cannot compute")
		}
		for _, x := range c.excepted {
			if named, isAbout := x.of(s.kind, s.name); isAbout && x.Spec.Match.Containers != nil && isNamed(named, r) {
				r.item.stay("exception " + x.title + " is about containers")
			}
		}
	}
	return out, nil
}

// programs compiles the rules as they are, and reports whether the match conditions depend on the object alone.
func (c *compilation) programs(s *source, rules []rule) bool {
	var found diagnostic.List
	scope := expression.NewScope(validation.Reporter{List: &found}, c.compiler, s.spec.ParamKind != nil, s.spec.Variables, nil)
	alone := true
	for _, condition := range scope.CompileConditions(nil, s.spec.MatchConditions) {
		alone = alone && !condition.Uses().Has(expression.UsesOldObject|expression.UsesUser|expression.UsesAuthorizer)
	}
	scope.DeclareVariables(nil, s.spec.Variables)
	scope.Reads = true
	for i := range rules {
		if r := &rules[i]; !r.standard {
			if r.program = scope.Compile(nil, r.expression, cel.BoolType); r.program == nil {
				r.item.stay("it does not compile in Kubernetes " + c.options.Kubernetes)
			}
		}
	}
	return alone
}

// part compiles a part of a policy.
func (c *compilation) part(s *source, p *part, rules []rule, existing bool) error {
	name := s.name
	if s.own != nil {
		name += ownSuffix
	}
	where := ""
	if p.path != nil {
		where = strings.Join(p.path, ".") + ": "
		name = s.name + "." + strings.ToLower(strings.Join(p.path, ".")) + ownSuffix
	}
	spec := &admissionregistrationv1.ValidatingAdmissionPolicySpec{FailurePolicy: s.spec.FailurePolicy, ParamKind: s.spec.ParamKind}
	for _, r := range rules {
		if p.path != nil && c.injects {
			r.item.differ("a pod template is judged without the sidecars that Gatehouse adds")
		}
	}
	if problem := c.matchAs(s, p, spec, rules); problem != "" {
		for i := range rules {
			rules[i].item.differ("pod templates at " + where + problem)
		}
		return nil
	}
	guards, expires := c.guards(s, p, spec, rules)
	if slices.ContainsFunc(rules, func(r rule) bool { return r.standard && r.item.Status != Stays }) {
		text := standardContainers
		if p.template != nil {
			text, _ = p.template.rewrite(text)
		}
		spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Name: standardVariable, Expression: text})
	}
	var items []*Item
	var names []string
	for i := range rules {
		r := &rules[i]
		if r.item.Status == Stays {
			continue
		}
		v, problem := c.rule(p, r, where, guards[i], existing)
		if problem != "" && p.path == nil {
			r.item.stay(problem)
			continue
		}
		if problem != "" {
			r.item.differ("pod templates stay with Gatehouse: " + problem)
			continue
		}
		spec.Validations, items, names = append(spec.Validations, v), append(items, r.item), append(names, r.name)
	}
	c.annotations(s, p, spec)
	if len(spec.Validations)+len(spec.AuditAnnotations) == 0 {
		return nil
	}
	if c.emit(s, p.path, name, spec, expires, items, names) {
		c.bindings(s, p, name, items)
	}
	return nil
}

// annotations adds the audit annotations.
func (c *compilation) annotations(s *source, p *part, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
	for i, a := range s.spec.AuditAnnotations {
		rule := fmt.Sprintf("auditAnnotations[%d]", i)
		at := slices.IndexFunc(c.out.Items, func(i *Item) bool { return i.Kind == s.kind && i.Name == s.name && i.Rule == rule })
		if at < 0 {
			c.item(s.kind, s.name, rule)
			at = len(c.out.Items) - 1
		}
		if p.template != nil {
			var problem string
			if a.ValueExpression, problem = p.template.rewrite(a.ValueExpression); problem != "" {
				c.out.Items[at].differ("pod templates have no such annotation: " + problem)
				continue
			}
		}
		spec.AuditAnnotations = append(spec.AuditAnnotations, a)
	}
}

// rule returns a rule as a validation of the part, or why it is none.
func (c *compilation) rule(p *part, r *rule, where string, guards []string, existing bool) (v admissionregistrationv1.Validation, problem string) {
	text := r.expression
	if slices.Contains(guards, "") {
		return v, "an exception of it has no translation"
	}
	v = admissionregistrationv1.Validation{Reason: r.reason, Message: r.message, MessageExpression: r.messageExpression}
	if p.template != nil {
		if text, problem = p.template.rewrite(text); problem != "" {
			return v, problem
		}
		if v.MessageExpression != "" {
			if v.MessageExpression, problem = p.template.rewrite(v.MessageExpression); problem != "" {
				v.MessageExpression = "" // the message says it too
			}
		}
	}
	var also []string
	var differences []string
	switch {
	case r.standard:
		if p.path == nil {
			also = append(also, standardUnchanged())
		}
		if existing {
			object, old := p.optionalPath("object"), p.optionalPath("oldObject")
			also = append(also, fmt.Sprintf(`request.operation == "UPDATE" && %[1]s.?spec == %[2]s.?spec && %[1]s.?metadata.?annotations == %[2]s.?metadata.?annotations`, object, old))
			differences = append(differences, limitsRefused)
			if p.path == nil {
				differences = []string{"an ephemeral container cannot be added to a pod that violates the check already"}
			}
		}
	case existing:
		var unchanged string
		if unchanged, differences = p.unchanged(r.program); unchanged != "" {
			also = append(also, unchanged)
		}
	}
	also = append(also, guards...)
	v.Expression = text
	if len(also) > 0 {
		v.Expression = "(\n" + text + "\n)"
		for _, other := range also {
			v.Expression += " ||\n" + other
		}
	}
	if len(v.Expression) > maxExpression {
		return v, fmt.Sprintf("it has more than %d characters with its exceptions", maxExpression)
	}
	if v.Message == "" {
		v.Message = "failed expression: " + strings.Join(strings.Fields(r.expression), " ")
	}
	prefix := where
	if r.indexed != "" || r.standard {
		prefix += r.name + ": "
	}
	v.Message = prefix + v.Message
	if prefix != "" && v.MessageExpression != "" {
		v.MessageExpression = fmt.Sprintf("%q + (\n%s\n)", prefix, v.MessageExpression)
	}
	for _, difference := range differences {
		r.item.differ(difference)
	}
	return v, ""
}

// emit adds a policy, and reports whether it can be.
func (c *compilation) emit(s *source, path []string, name string, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec, expires time.Time, items []*Item, rules []string) bool {
	from := s.kind + "/" + s.name
	text, err := json.Marshal(spec)
	problem := ""
	switch other := c.names[name]; {
	case err != nil:
		problem = err.Error()
	case other != "":
		problem = other + " becomes a policy of the same name, " + name
	case len(text) > maxDocument-(1<<16):
		problem = "the policy is too large for the API server"
	}
	if problem != "" {
		for _, item := range items {
			item.stay(problem)
		}
		return false
	}
	c.names[name] = from
	digest := sha256.Sum256(text)
	annotations := map[string]string{FromAnnotation: from, HashAnnotation: hex.EncodeToString(digest[:])}
	if !expires.IsZero() {
		annotations[ExpiresAnnotation] = expires.UTC().Format(time.RFC3339)
		if c.out.Expires.IsZero() || expires.Before(c.out.Expires) {
			c.out.Expires = expires
		}
	}
	for _, key := range []string{v1alpha1.ContactAnnotation} {
		if value, given := s.annotations[key]; given {
			annotations[key] = value
		}
	}
	c.items[name] = items
	c.out.Documents = append(c.out.Documents, Document{From: from, Template: strings.Join(path, "."), Rules: rules, Policy: &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: policyKind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{ManagedByLabel: ManagedBy}},
		Spec:       *spec,
	}})
	return true
}

// bind adds a binding.
func (c *compilation) bind(s *source, path []string, source, name, of string, spec admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec) {
	spec.PolicyName = of
	c.out.Documents = append(c.out.Documents, Document{From: s.kind + "/" + s.name, Source: source, Template: strings.Join(path, "."), Binding: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: policyKind + "Binding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{FromAnnotation: s.kind + "/" + s.name}, Labels: map[string]string{ManagedByLabel: ManagedBy}},
		Spec:       spec,
	}})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
