package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/celbound"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

const exceptionKind = "PolicyException"

// exception is a PolicyException in force.
type exception struct {
	// title is namespace/name.
	title string
	// policies are those that it is about, and the rules of each; none are all.
	policies map[exceptedPolicy][]string
	// expires is zero for one that does not.
	expires time.Time
	// namespaces are those that it is about; nil are all.
	namespaces []string
	names      []string
	// inNamespaces and objects are nil for one that does not select by labels.
	inNamespaces, objects labels.Selector
	conditions            []condition
	// inert is why it does nothing, whatever the request is.
	inert string
}

// exceptedPolicy names a policy: its kind may be "" for both.
type exceptedPolicy struct{ kind, name string }

// findException returns the title of the exception that covers a violation of the rule,
// and "" if there is none; then also those that were tried, if they are to be explained.
// A rule that is "" is the whole policy, which only an exception from all of it covers.
func findException(t target, rule string) (exceptionTitle string, tried []TriedException) {
	for _, x := range t.policy.exceptions {
		if !x.covers(t.policy, rule) {
			continue
		}
		why := x.inert
		if why == "" {
			if why = x.whyNot(t.request); why == "" {
				return x.title, nil
			}
		}
		if t.request.review.explain {
			tried = append(tried, TriedException{x.title, why})
		}
	}
	return "", tried
}

// covers reports whether the exception names the rule.
func (x *exception) covers(p *compiledPolicy, rule string) bool {
	for _, kind := range [...]string{p.kind, ""} {
		rules, named := x.policies[exceptedPolicy{kind, p.name}]
		if named && (len(rules) == 0 || slices.Contains(rules, rule)) {
			return true
		}
	}
	return false
}

// whyNot returns why the exception does not hold for the request at this time, and ""
// if it does.
func (x *exception) whyNot(r *request) string {
	if !x.expires.IsZero() {
		if now, known := r.review.time(); !known || !now.Before(x.expires) {
			return "it expired at " + x.expires.UTC().Format(time.RFC3339)
		}
	}
	namespace := r.Namespace
	if r.requested.Group == "" && r.requested.Resource == "namespaces" {
		namespace = "" // a namespace is not in itself
	}
	if x.namespaces != nil && (namespace == "" || !slices.Contains(x.namespaces, namespace)) {
		return fmt.Sprintf("it is about namespaces %s, and this is in %q", diagnostic.QuotedList(x.namespaces), namespace)
	}
	if name, generated := r.knownAs(); len(x.names) > 0 && !matchesName(x.names, name, generated) {
		return fmt.Sprintf("it is about names %s, and this is %q", diagnostic.QuotedList(x.names), name)
	}
	if x.inNamespaces != nil {
		found, known := r.review.set.objects.Namespace(namespace)
		if namespace == "" || !known || !x.inNamespaces.Matches(labels.Set(found.Labels)) {
			return "its namespaceSelector does not select"
		}
	}
	if x.objects != nil && !x.selects(r) {
		return "its objectSelector does not select"
	}
	if condition := r.falseCondition(x.conditions); condition != "" {
		return "its match condition " + condition + " is not true"
	}
	return ""
}

// selects reports whether the exception selects the object, and of an update the
// old one too, so that nobody labels an object into an exception. Options have no
// labels, not even none.
func (x *exception) selects(r *request) bool {
	if r.Operation == admissionv1.Connect {
		return false
	}
	for _, object := range [...]*payload{&r.object, &r.oldObject} {
		if object.present() && !x.objects.Matches(r.objectLabels(object)) {
			return false
		}
	}
	return true
}

// falseCondition returns the name of the first condition that is not true, and "" if all are.
func (r *request) falseCondition(conditions []condition) string {
	if len(conditions) == 0 {
		return ""
	}
	var in expression.Input
	in.Reset(r, nil, nil)
	defer func() { r.review.spent += in.Spent }()
	phase := in.Phase(celconfig.RuntimeCELCostBudgetMatchConditions)
	for i := range conditions {
		if value, _, err := phase.Eval(r.review.context, conditions[i].Program); err != nil || value != types.True {
			return conditions[i].name
		}
	}
	return ""
}

// knownAs returns the name by which an exception knows the object: that of the
// workload for a pod template. It is generated if it is only the beginning of a
// name.
func (r *request) knownAs() (name string, generated bool) {
	if r.owner != "" {
		_, name, _ := strings.Cut(r.owner, "/")
		return name, r.ownerGenerated
	}
	return r.objectName(), r.isNameGenerated()
}

// isNameGenerated reports whether the object has no name yet.
func (r *request) isNameGenerated() bool {
	if r.Name != "" {
		return false
	}
	object, err := r.object.json()
	return err == nil && object.Get("metadata", "name").Text() == ""
}

// matchesName reports whether one of the patterns, of which a "*" at the end stands
// for any rest, is about the name. A name that is generated has a rest.
func matchesName(patterns []string, name string, generated bool) bool {
	return name != "" && slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, open := strings.CutSuffix(pattern, "*"); open {
			return strings.HasPrefix(name, prefix)
		}
		return pattern == name && !generated
	})
}

// defaultExceptionNamespaces returns those whose exceptions may be about any object.
func defaultExceptionNamespaces() []string { return []string{"gatehouse-system"} }

// exceptions compiles the exceptions and gives them to their policies.
func (c *compilation) exceptions(spec *Spec) {
	rules := v1alpha1.ExceptionRules{}
	if spec.Configuration != nil {
		rules = spec.Configuration.Exceptions
	}
	if rules.Namespaces == nil {
		rules.Namespaces = defaultExceptionNamespaces()
	}
	seen := map[string]string{}
	var all []*exception
	for i := range spec.Exceptions {
		x := &spec.Exceptions[i]
		title := x.Namespace + "/" + x.Name
		d := c.reporter(x.Source, exceptionKind, title)
		validation.CheckName(d, x.Name)
		if first, twice := seen[title]; twice && x.Name != "" {
			d.Errorf(field.NewPath("metadata", "name"), fmt.Sprintf("the first is in %s", first), "%q is taken by another document", x.Name)
		}
		seen[title] = x.Source
		before, found := c.wrong(), len(c.diagnostics)
		compiled, more := c.exception(d, x, &rules)
		c.diagnostics = append(c.diagnostics[:found], few(d, c.diagnostics[found:], more)...)
		c.counted, c.errors = found, before
		if c.wrong() == before {
			all = append(all, compiled)
		}
		// An exception that is not in force lets nothing pass.
		c.broken += c.wrong() - before
	}
	slices.SortFunc(all, func(a, b *exception) int { return cmp.Compare(a.title, b.title) })
	for _, x := range all {
		for _, p := range c.set.policies {
			_, one := x.policies[exceptedPolicy{p.kind, p.name}]
			_, both := x.policies[exceptedPolicy{"", p.name}]
			if one || both {
				p.exceptions = append(p.exceptions, x)
			}
		}
	}
}

// exception compiles an exception, and says how many diagnostics more there are.
func (c *compilation) exception(d validation.Reporter, x *Exception, rules *v1alpha1.ExceptionRules) (out *exception, more int) {
	path := field.NewPath("spec")
	out = &exception{title: x.Namespace + "/" + x.Name, policies: map[exceptedPolicy][]string{}}
	if strings.TrimSpace(x.Spec.Reason) == "" {
		d.Required(path.Child("reason"), "say why, for who reads the audit log")
	}
	c.exceptedPolicies(d, x, out)
	c.exceptionMatch(d, &x.Spec.Match, out)
	switch own := slices.Contains(rules.OwnNamespaces, "*") || slices.Contains(rules.OwnNamespaces, x.Namespace); {
	case x.Namespace == "":
		d.Required(field.NewPath("metadata", "namespace"), "an exception is in a namespace, which decides what it may be about")
	case slices.Contains(rules.Namespaces, x.Namespace):
	case own:
		for i, name := range x.Spec.Match.Namespaces {
			if name != x.Namespace {
				d.Warnf(path.Child("match", "namespaces").Index(i), "leave it out", "%q is another namespace: the exception holds in %q alone", name, x.Namespace)
			}
		}
		out.namespaces = []string{x.Namespace}
	default:
		out.inert = fmt.Sprintf("exceptions in namespace %q do nothing", x.Namespace)
		d.Warnf(field.NewPath("metadata", "namespace"), fmt.Sprintf("allowed are %s, see exceptions of PolicyConfiguration", diagnostic.QuotedList(slices.Concat(rules.Namespaces, rules.OwnNamespaces))),
			"exceptions in %q do nothing", x.Namespace)
	}
	switch {
	case x.Spec.ExpiresAt != nil:
		out.expires = x.Spec.ExpiresAt.Time
	case rules.RequireExpiry:
		out.inert = cmp.Or(out.inert, "it has no expiresAt")
		d.Warnf(path.Child("expiresAt"), "PolicyConfiguration requires it", "is missing, so the exception does nothing")
	}
	return out, c.exceptionConditions(d, x, out)
}

// maxDiagnostics is how many diagnostics about one exception are told: whoever may write
// one must not fill a log.
const maxDiagnostics = 20

// few returns the diagnostics about an exception if there are not too many, and otherwise
// the first of them, errors before warnings, and how many more there are. There are
// more beside those that were found only if these are too many.
func few(d validation.Reporter, found diagnostic.List, more int) diagnostic.List {
	if more += len(found) - maxDiagnostics; more <= 0 {
		return found
	}
	slices.SortStableFunc(found, func(a, b diagnostic.Diagnostic) int {
		if a.Severity == b.Severity {
			return 0
		}
		if a.Severity == diagnostic.Error {
			return -1
		}
		return 1
	})
	severity := found[min(maxDiagnostics, len(found)-1)].Severity
	found = slices.Clone(found[:maxDiagnostics])
	d.List = &found
	d.Add(severity, "", "", fmt.Sprintf("and %d more", more))
	return found
}

// exceptedPolicies checks and compiles the policies of an exception.
func (c *compilation) exceptedPolicies(d validation.Reporter, x *Exception, out *exception) {
	path := field.NewPath("spec", "policies")
	if len(x.Spec.Policies) == 0 {
		d.Required(path, "name the policies that are meant")
	}
	for i, p := range x.Spec.Policies {
		at := path.Index(i)
		switch p.Kind {
		case "", policyKind, admissionKind:
		default:
			d.NotSupported(at.Child("kind"), p.Kind, policyKind, admissionKind)
			continue
		}
		if p.Name == "" {
			d.Required(at.Child("name"), "")
			continue
		}
		key := exceptedPolicy{p.Kind, p.Name}
		if _, twice := out.policies[key]; twice {
			d.Errorf(at.Child("name"), "name the rules in one place", "%q occurs twice", p.Name)
			continue
		}
		out.policies[key] = slices.Clone(p.Rules)
		known := c.rulesOf(key)
		if known == nil {
			if !c.isPolicy(key) {
				d.Warnf(at.Child("name"), diagnostic.DidYouMean(p.Name, c.policyNames()...), "there is no policy %q", p.Name)
			}
			continue
		}
		knows := sets.New(known...)
		for k, rule := range p.Rules {
			if rule == "podSecurity" || !knows.Has(rule) {
				d.Warnf(at.Child("rules").Index(k), nearestRule(rule, known), "the policy has no rule %q", rule)
			}
		}
	}
}

// nearestRule returns a hint for a rule that there is not. Checks of a standard may
// have the level behind their name.
func nearestRule(rule string, known []string) string {
	for _, name := range known {
		if strings.HasPrefix(name, rule+"_") {
			return fmt.Sprintf("did you mean %q?", name)
		}
	}
	return diagnostic.DidYouMean(rule, known...)
}

// exceptionMatch checks and compiles what an exception is about.
func (c *compilation) exceptionMatch(d validation.Reporter, match *v1alpha1.ExceptionMatch, out *exception) {
	path := field.NewPath("spec", "match")
	if len(match.Namespaces) == 0 && len(match.Names) == 0 && match.NamespaceSelector == nil && match.ObjectSelector == nil && len(match.MatchConditions) == 0 {
		d.Errorf(path, "name namespaces or objects; to drop a policy, delete its binding", "is empty: an exception must say what it is about")
	}
	if len(match.Namespaces) > 0 {
		out.namespaces = slices.Clone(match.Namespaces)
	}
	out.names = slices.Clone(match.Names)
	for i, name := range match.Names {
		if strings.Contains(strings.TrimSuffix(name, "*"), "*") || name == "" {
			d.Errorf(path.Child("names").Index(i), `as in "legacy-*"`, "%q is not a name: a \"*\" can stand at its end only", name)
		}
	}
	strict := metav1validation.LabelSelectorValidationOptions{}
	selector := func(spec *metav1.LabelSelector, name string) labels.Selector {
		if spec == nil {
			return nil
		}
		d.FieldErrors(metav1validation.ValidateLabelSelector(spec, strict, path.Child(name)))
		parsed, err := metav1.LabelSelectorAsSelector(spec)
		if err != nil {
			return nil // reported already
		}
		return parsed
	}
	out.inNamespaces = selector(match.NamespaceSelector, "namespaceSelector")
	out.objects = selector(match.ObjectSelector, "objectSelector")
	validation.CheckMatchConditions(d, match.MatchConditions, path.Child("matchConditions"))
}

// maxConditionsText is how many bytes the conditions of one exception may have
// together. Tenants may write exceptions, and every replica compiles them and keeps
// what comes of it, which is a hundred times as much.
const maxConditionsText = 16 << 10

// maxConditionsPatterns is how many parts the regular expressions in them may have
// together.
const maxConditionsPatterns = 8_000

// exceptionConditions compiles the conditions of an exception, or takes what they
// compiled to before, and says how many diagnostics it leaves out.
//
// Of an exception that does nothing they are not compiled while broken policies are
// kept, that is where the exceptions of a cluster are used: who may have none in
// force must not cost more than a look.
func (c *compilation) exceptionConditions(d validation.Reporter, x *Exception, out *exception) (more int) {
	given, path := x.Spec.Match.MatchConditions, field.NewPath("spec", "match", "matchConditions")
	text := 0
	for i := range given {
		text += len(given[i].Expression)
	}
	switch {
	case text > maxConditionsText:
		d.Errorf(path, "say it in fewer conditions, or in several exceptions", "have %d bytes together, allowed are %d", text, maxConditionsText)
		return 0
	case len(given) == 0, out.inert != "" && c.keepBroken:
		return 0
	}
	known := c.conditions[out.title]
	if known == nil || !slices.Equal(known.given, given) {
		var found diagnostic.List
		patterns := 0
		budget := &celbound.Budget{Stop: c.stop}
		s := &scope{Reporter: validation.Reporter{Source: d.Source, Object: d.Object, List: &found}, compiler: c.compiler, declarations: expression.Declarations{Authorizer: true, Budget: budget}}
		known = &exceptionConditions{given: slices.Clone(given)}
		for i := range given {
			if err := budget.Add(given[i].Expression); err != nil {
				known.compiled = nil
				s.Errorf(path, celbound.DocumentHint, "%v", err)
				break
			}
			if program := s.compile(path.Index(i).Child("expression"), given[i].Expression, cel.BoolType); program != nil {
				known.compiled = append(known.compiled, condition{given[i].Name, program})
				patterns += program.Patterns()
			}
			if patterns > maxConditionsPatterns {
				known.compiled = nil
				s.Errorf(path.Index(i).Child("expression"), "repeat less in patterns", "the regular expressions of the conditions are too large: with repetitions written out they may have %d parts together", maxConditionsPatterns)
				break
			}
		}
		kept := min(maxDiagnostics, len(found))
		known.found, known.more = slices.Clone(found[:kept]), len(found)-kept
	}
	c.set.conditions[out.title] = known
	out.conditions = known.compiled
	for _, f := range known.found {
		f.Source = d.Source
		c.diagnostics = append(c.diagnostics, f)
	}
	return known.more
}

// exceptionConditions are the conditions of an exception, right or wrong.
type exceptionConditions struct {
	given    []admissionregistrationv1.MatchCondition
	compiled []condition
	// found are the first diagnostics, and more how many there are beside them.
	found diagnostic.List
	more  int
}
