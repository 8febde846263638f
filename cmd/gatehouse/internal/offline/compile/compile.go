// Package compile translates policies, bindings and exceptions of Gatehouse into ValidatingAdmissionPolicies, which the API server enforces by
// itself, and says of every rule and exception whether the API server then decides as Gatehouse does. It is pure: no clock, no file, no client.
package compile

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/workload"
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
	// ExcludeNamespaces are those that are never sent to Gatehouse: AdmissionPolicies are not in force there, nor for the namespaces themselves.
	ExcludeNamespaces []string
}

// compilation is one call of Compile.
type compilation struct {
	spec    *policy.Spec
	options Options
	out     Output
	*checker

	selectors matching.Selectors
	workloads *workload.Kinds
	// custom are the kinds of workloads of which the API server does not check the pod templates, as GROUP/KIND.
	custom   map[string]bool
	excepted []exception
	// mutating are the items of what mutates, by the names of policies and bindings.
	mutating map[string]*Item
	// injects is true if pods get sidecars.
	injects bool
	// names are the sources of documents, by the kinds and names of these.
	names map[string]string
}

// Compile compiles a configuration that is valid. The error is about the options.
func Compile(configuration *config.Config, options Options) (*Output, error) {
	c := &compilation{
		spec: &configuration.Policy, options: options, selectors: matching.NewSelectors(), injects: len(configuration.Sidecar.Profiles) > 0,
		names: map[string]string{}, mutating: map[string]*Item{}, custom: map[string]bool{},
	}
	var err error
	if c.checker, err = newChecker(options.Kubernetes); err != nil {
		return nil, err
	}
	custom := workload.FromAPI(configuration.Workloads())
	for _, k := range custom {
		c.custom[k.Group+"/"+k.Kind] = true
	}
	if c.workloads, err = workload.New(custom); err != nil {
		return nil, err
	}
	c.excepted = c.exceptions()
	exceptionItems := c.out.Items
	c.out.Items = nil
	sources := c.sources()
	for i := range sources {
		if err := c.rules(&sources[i]); err != nil {
			return nil, err
		}
	}
	if err := c.prepare(sources); err != nil {
		return nil, err
	}
	for i := range sources {
		c.source(&sources[i])
	}
	if err := c.profiles(configuration); err != nil {
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

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = policyKind + "Binding"
	// ownSuffix ends the names of what AdmissionPolicies become. ValidatingAdmissionPolicies keep their names.
	ownSuffix = ".gatehouse.dev"
	// reserved begins the names of variables that documents have besides those of their sources.
	reserved = "gatehouse_"
)

// source is a policy of either kind with its bindings.
type source struct {
	policy.Any

	// spec has its defaults, and so have those of the bindings.
	spec *admissionregistrationv1.ValidatingAdmissionPolicySpec
	// rules are the validations and checks, and annotations the audit annotations.
	rules, annotations []rule
	// texts are the expressions as they are, and ofTemplates those for pod templates.
	texts, ofTemplates texts
	// alone is true if the match conditions depend on the object alone.
	alone bool
	// skipsSame is true if what an update does not change is not judged again, and existing if what it violated before is allowed. Before
	// are the selectors of objects that an update can violate as before.
	skipsSame, existing bool
	before              []*metav1.LabelSelector
}

func (s *source) suffix() string {
	if s.Own != nil {
		return ownSuffix
	}
	return ""
}

// differ adds a difference to all rules.
func (s *source) differ(format string, args ...any) {
	for i := range s.rules {
		s.rules[i].item.differ(fmt.Sprintf(format, args...))
	}
}

// stay leaves all of the policy to Gatehouse.
func (s *source) stay(reason string) {
	for _, r := range slices.Concat(s.rules, s.annotations) {
		r.item.stay(reason)
	}
}

// sources returns the policies by their names.
func (c *compilation) sources() (out []source) {
	for _, p := range c.spec.All() {
		s := source{Any: p, spec: validation.DefaultPolicySpec(p.Spec)}
		s.ChecksTemplates = p.ChecksTemplates && c.createsPods(s.spec.MatchConstraints)
		s.Bindings = slices.Clone(p.Bindings)
		for i := range s.Bindings {
			s.Bindings[i].ValidatingAdmissionPolicyBindingSpec = validation.DefaultBindingSpec(p.Bindings[i].ValidatingAdmissionPolicyBindingSpec)
		}
		slices.SortStableFunc(s.Bindings, func(a, b policy.AnyBinding) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b source) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) })
	return out
}

// rule is a validation of a policy, a check of a standard, or an audit annotation.
type rule struct {
	name, indexed, message string
	reason                 *metav1.StatusReason
	standard               bool
	item                   *Item
	// program is nil for checks and annotations.
	program *expression.Program
}

// prepare checks the expressions of policies on all processors: it is most of the work, and one policy says nothing about another.
func (c *compilation) prepare(sources []source) error {
	const many = 50 // policies that are worth another checker
	var group errgroup.Group
	workers := min(runtime.GOMAXPROCS(0), 1+len(sources)/many)
	for w := range workers {
		group.Go(func() (err error) {
			k := c.checker
			if w > 0 {
				if k, err = newChecker(c.kubernetes); err != nil {
					return err
				}
			}
			for i := w; i < len(sources); i += workers {
				s := &sources[i]
				if len(s.Bindings) == 0 {
					continue
				}
				s.alone = k.check(s, &s.texts, true)
				if s.ChecksTemplates {
					s.ofTemplates = k.templates.translate(&s.texts)
					k.check(s, &s.ofTemplates, false)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// source compiles a policy.
func (c *compilation) source(s *source) {
	if len(s.Bindings) == 0 {
		return
	}
	if s.AllowsExisting && s.alone {
		s.skipsSame = true
		c.existing(s)
	}
	if slices.ContainsFunc(s.spec.Variables, func(v admissionregistrationv1.Variable) bool { return strings.HasPrefix(v.Name, reserved) }) {
		s.stay("a variable has a name that begins with " + reserved)
	}
	first := &part{texts: &s.texts, isPod: matchesOnly(s.spec.MatchConstraints, "pods"), matchesNamespaces: mayMatch(s.spec.MatchConstraints.ResourceRules, "namespaces")}
	byPath := map[string]*part{}
	for _, k := range c.workloads.All() {
		path := strings.Join(k.Template, ".")
		if byPath[path] == nil {
			byPath[path] = &part{path: k.Template, isPod: true}
			first.templates = append(first.templates, k.Template)
		}
		byPath[path].kinds = append(byPath[path].kinds, k)
	}
	if c.part(s, first); !s.ChecksTemplates {
		return
	}
	for _, path := range sortedKeys(byPath) {
		p := byPath[path]
		p.texts = s.ofTemplates.at(p.path)
		c.part(s, p)
	}
}

// rules sets the rules of a policy with their expressions, and adds them to the report.
func (c *compilation) rules(s *source) error {
	if len(s.Bindings) == 0 {
		c.item(s.Kind, s.Name, "").note("no binding puts it in force")
		return nil
	}
	s.texts = texts{conditions: s.spec.MatchConditions, variables: slices.Clone(s.spec.Variables)}
	add := func(r rule, t text) { s.rules, s.texts.rules = append(s.rules, r), append(s.texts.rules, t) }
	if s.Own != nil && s.Own.PodSecurity != nil {
		standard := s.Own.PodSecurity
		item := c.item(s.Kind, s.Name, "podSecurity")
		item.note("messages say what is forbidden, and not in which container")
		checks, expressions, err := standardRules(standard.Level, standard.Version)
		if err != nil {
			return err
		}
		if standard.NamespaceLabels == v1alpha1.HonorNamespaceLabels {
			item.stay("labels of the namespace decide the level (the API server's own PodSecurity plug-in reads them, for pods)")
		}
		for i := range checks {
			checks[i].item = item
			add(checks[i], text{expression: expressions[i]})
		}
		s.texts.variables = append(s.texts.variables, admissionregistrationv1.Variable{Name: standardVariable, Expression: standardContainers})
	}
	for i := range s.spec.Validations {
		v := &s.spec.Validations[i]
		r := rule{name: v1alpha1.IndexedRule(i), message: v.Message, reason: v.Reason}
		if s.Own != nil && s.Own.Validations[i].Name != "" {
			r.indexed, r.name = r.name, s.Own.RuleName(i)
		}
		r.item = c.item(s.Kind, s.Name, r.name)
		add(r, text{expression: v.Expression, message: v.MessageExpression})
	}
	for i := range s.spec.AuditAnnotations {
		name := fmt.Sprintf("auditAnnotations[%d]", i)
		s.annotations = append(s.annotations, rule{name: name, item: c.item(s.Kind, s.Name, name)})
		s.texts.annotations = append(s.texts.annotations, text{expression: s.spec.AuditAnnotations[i].ValueExpression})
	}
	baselined := c.baselined(s.Kind, s.Name)
	for i := range s.rules {
		r := &s.rules[i]
		if baselined[r.name] {
			r.item.stay("a PolicyBaseline allows some violations by their hashes, which the API server cannot compute")
		}
		for _, x := range c.excepted {
			if named, isAbout := x.of(s.Kind, s.Name); isAbout && x.Spec.Match.Containers != nil && isNamed(named, r) {
				r.item.stay("exception " + x.title + " is about containers")
			}
		}
	}
	return nil
}

// existing decides whether the documents of a policy can allow what was violated before an update.
func (c *compilation) existing(s *source) {
	denying, selecting := 0, 0
	namespaces := []*metav1.LabelSelector{s.spec.MatchConstraints.NamespaceSelector}
	s.before = []*metav1.LabelSelector{s.spec.MatchConstraints.ObjectSelector}
	for _, b := range s.Bindings {
		if slices.Contains(b.ValidationActions, admissionregistrationv1.Deny) {
			denying++
		}
		if m := b.MatchResources; m != nil {
			s.before, namespaces = append(s.before, m.ObjectSelector), append(namespaces, m.NamespaceSelector)
			if !isEmptySelector(m.ObjectSelector) {
				selecting++
			}
		}
	}
	some, all := matching.Creates(s.spec.MatchConstraints.ResourceRules)
	s.existing = denying == len(s.Bindings) && (all || !some) && (selecting == 0 || len(s.Bindings) == 1) &&
		(!mayMatch(s.spec.MatchConstraints.ResourceRules, "namespaces") || !slices.ContainsFunc(namespaces, func(n *metav1.LabelSelector) bool { return !isEmptySelector(n) }))
	c.out.allows = c.out.allows || s.existing
	if denying > 0 && !s.existing {
		s.differ("an update of an object that violates the rule already is refused")
	}
}

// text is what a rule evaluates, or why it has none that the API server accepts. The same holds for the message.
type text struct {
	expression, problem     string
	message, messageProblem string
}

// texts are the expressions of a policy. The problem is why it cannot be evaluated at all.
type texts struct {
	problem            string
	conditions         []admissionregistrationv1.MatchCondition
	variables          []admissionregistrationv1.Variable
	rules, annotations []text
}

// part compiles a part of a policy.
func (c *compilation) part(s *source, p *part) {
	where, name := "", s.Name+s.suffix()
	if p.path != nil {
		where = strings.Join(p.path, ".") + ": "
		name = s.Name + "." + p.label() + ownSuffix
		if c.injects {
			s.differ("a pod template is judged without the sidecars that Gatehouse adds")
		}
	}
	spec := &admissionregistrationv1.ValidatingAdmissionPolicySpec{FailurePolicy: s.spec.FailurePolicy, ParamKind: s.spec.ParamKind}
	problem := p.problem
	if problem == "" {
		problem = c.matchAs(s, p, spec)
	}
	if problem != "" {
		p.decline(s.rules, problem)
		return
	}
	guards, expires := c.guards(s, p, spec)
	var in []rule
	var names []string
	for i := range s.rules {
		r := &s.rules[i]
		if r.item.Status == Stays {
			continue
		}
		if v, problem := c.rule(s, p, i, where, guards[i]); problem == "" {
			spec.Validations, in, names = append(spec.Validations, v), append(in, *r), append(names, r.name)
		} else {
			p.decline(s.rules[i:i+1], problem)
		}
	}
	for i, a := range s.spec.AuditAnnotations {
		r, t := &s.annotations[i], p.annotations[i]
		if a.ValueExpression = t.expression; t.problem != "" {
			p.decline(s.annotations[i:i+1], t.problem)
		} else if r.item.Status != Stays {
			spec.AuditAnnotations, in = append(spec.AuditAnnotations, a), append(in, *r)
		}
	}
	if len(in) == 0 {
		return
	}
	uses := func(name string) bool {
		return slices.ContainsFunc(spec.Validations, func(v admissionregistrationv1.Validation) bool {
			return strings.Contains(v.Expression, "variables."+name)
		})
	}
	if uses(powerVariable) {
		power := keepsPower(p.optionalPath("object"), p.optionalPath("oldObject"))
		if problem := c.accepts(power); problem != "" {
			p.decline(in, problem)
			return
		}
		spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Name: powerVariable, Expression: power})
	}
	spec.Variables = slices.DeleteFunc(spec.Variables, func(v admissionregistrationv1.Variable) bool { return v.Name == standardVariable && !uses(v.Name) })
	if problem := c.emit(s, p, name, spec, expires, names); problem != "" {
		p.decline(in, problem)
		return
	}
	for _, b := range s.Bindings {
		if problem := c.binding(s, p, b, name); problem != "" {
			for _, r := range in {
				r.item.differ("binding " + cmp.Or(b.Name, s.Name) + " stays with Gatehouse" + where + ": " + problem)
			}
		}
	}
}

// decline leaves rules to Gatehouse, or those of a pod template.
func (p *part) decline(rules []rule, problem string) {
	for _, r := range rules {
		if p.path == nil {
			r.item.stay(problem)
		} else {
			r.item.differ("pod templates at " + strings.Join(p.path, ".") + " stay with Gatehouse: " + problem)
		}
	}
}

// rule returns a rule as a validation of the part, or why it is none.
func (c *compilation) rule(s *source, p *part, i int, where string, guards []string) (v admissionregistrationv1.Validation, problem string) {
	r, t := &s.rules[i], &p.rules[i]
	switch {
	case t.problem != "":
		return v, t.problem
	case slices.Contains(guards, ""):
		return v, "an exception of it has no translation"
	case t.messageProblem != "":
		r.item.note("for pod templates the message is fixed: " + t.messageProblem)
	}
	also, differences := p.allowed(s, r)
	for _, one := range also {
		if problem := c.accepts(one); problem != "" {
			return v, problem
		}
	}
	v = admissionregistrationv1.Validation{Expression: t.expression, Reason: r.reason, Message: r.message, MessageExpression: t.message}
	if also = append(also, guards...); len(also) > 0 {
		v.Expression = "(\n" + t.expression + "\n) ||\n" + strings.Join(also, " ||\n")
	}
	if len(v.Expression) > maxExpression {
		return v, fmt.Sprintf("it has more than %d characters with what is allowed before an update and by exceptions", maxExpression)
	}
	prefix := where
	if r.indexed != "" || r.standard {
		prefix += r.name + ": "
	}
	if strings.TrimSpace(v.Message) == "" && (prefix != "" || v.Expression != t.expression) {
		v.Message = "failed expression: " + strings.Join(strings.Fields(s.texts.rules[i].expression), " ")
	}
	if prefix != "" {
		v.Message = prefix + strings.TrimSpace(v.Message)
		if v.MessageExpression != "" {
			v.MessageExpression = fmt.Sprintf("%q + (\n%s\n)", prefix, v.MessageExpression)
		}
	}
	for _, difference := range differences {
		r.item.differ(difference)
	}
	return v, ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
