package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celcost "github.com/gatehouse-dev/gatehouse/webhooks/cel/cost"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/matching"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// defaultExceptionNamespaces returns those whose exceptions may be about any object.
func defaultExceptionNamespaces() []string { return []string{"gatehouse-system"} }

// ExceptionRules returns the namespaces in which exceptions and baselines take effect.
func ExceptionRules(spec *Spec) v1alpha1.ExceptionRules {
	rules := v1alpha1.ExceptionRules{}
	if spec.Configuration != nil {
		rules = spec.Configuration.Exceptions
	}
	if rules.Namespaces == nil {
		rules.Namespaces = defaultExceptionNamespaces()
	}
	return rules
}

// Reach is about which objects the exceptions and baselines of a namespace can be.
type Reach uint8

const (
	// ReachesNothing is that of a namespace in which they do nothing.
	ReachesNothing Reach = iota
	// ReachesOwn is that of a namespace whose own objects they can be about.
	ReachesOwn
	// ReachesAll is that of a namespace from which they can be about all objects.
	ReachesAll
)

// ReachOf returns about which objects the exceptions and baselines of a namespace can be.
func (s *Spec) ReachOf(namespace string) Reach {
	rules := ExceptionRules(s)
	return reachOf(&rules, namespace)
}

func reachOf(rules *v1alpha1.ExceptionRules, namespace string) Reach {
	switch {
	case slices.Contains(rules.Namespaces, namespace):
		return ReachesAll
	case slices.Contains(rules.OwnNamespaces, "*"), slices.Contains(rules.OwnNamespaces, namespace):
		return ReachesOwn
	}
	return ReachesNothing
}

// exceptions compiles the exceptions and gives them to their policies.
func (c *compilation) exceptions(spec *Spec) {
	rules := ExceptionRules(spec)
	seen := map[string]string{}
	var all []*exception
	for i := range spec.Exceptions {
		x := &spec.Exceptions[i]
		title := titleOf(&x.PolicyException)
		d := c.reporter(x.Source, exceptionKind, title)
		validation.CheckName(d, x.Name)
		if first, twice := seen[title]; twice && x.Name != "" {
			d.Errorf(field.NewPath("metadata", "name"), fmt.Sprintf("the first is in %s", first), "%q is taken by another document", x.Name)
		}
		seen[title] = x.Source
		before, found := c.errorCount(), len(c.diagnostics)
		compiled := c.exception(d, x, &rules)
		severity := diagnostic.Error
		if c.errorCount() == before {
			all, severity = append(all, compiled), diagnostic.Warning
		}
		if len(c.diagnostics) > found+maxDiagnostics {
			c.diagnostics = c.diagnostics[:found+maxDiagnostics]
			c.counted, c.errors = found, before
			d.Add(severity, "", "", "and more")
		}
		// An exception that is not in force lets nothing pass.
		c.broken += c.errorCount() - before
	}
	slices.SortFunc(all, func(a, b *exception) int { return cmp.Compare(a.title, b.title) })
	for _, x := range all {
		for _, p := range c.set.policies {
			if x.isAbout(p) {
				p.exceptions = append(p.exceptions, x)
			}
		}
	}
}

// titleOf returns the name of an exception in messages. Only an invalid exception has no namespace.
func titleOf(x *v1alpha1.PolicyException) string {
	return strings.TrimPrefix(x.Namespace+"/"+x.Name, "/")
}

// exception compiles an exception.
func (c *compilation) exception(d validation.Reporter, x *Exception, rules *v1alpha1.ExceptionRules) *exception {
	path := field.NewPath("spec")
	out := &exception{title: titleOf(&x.PolicyException), policies: map[exceptedPolicy][]string{}}
	if strings.TrimSpace(x.Spec.Reason) == "" {
		d.Required(path.Child("reason"), "explain the exception to readers of the audit log")
	}
	c.exceptedPolicies(d, x, out)
	c.exceptionMatch(d, &x.Spec.Match, out)
	c.exceptionContainers(d, x.Spec.Match.Containers, out)
	if matched := c.rulesMatchedBy(out.policies); len(matched) > 0 {
		checkNames(d, path.Child("match", "names"), x.Spec.Match.Names, "object that the policy matches", func(name string) bool { return matching.CanBeName(name, matched) })
	}
	switch reach := reachOf(rules, x.Namespace); {
	case x.Namespace == "":
		d.Required(field.NewPath("metadata", "namespace"), "the namespace decides which objects the exception may exempt")
	case reach == ReachesAll:
		checkNames(d, path.Child("match", "namespaces"), x.Spec.Match.Namespaces, "namespace", matching.CanBeNamespace)
	case reach == ReachesOwn:
		for i, name := range x.Spec.Match.Namespaces {
			if name != x.Namespace {
				d.Warnf(path.Child("match", "namespaces").Index(i), "leave it out", "%q is another namespace: the exception exempts objects in %q only", name, x.Namespace)
			}
		}
		out.namespaces = []string{x.Namespace}
	default:
		out.inert = fmt.Sprintf("exceptions in namespace %q do nothing", x.Namespace)
		d.NoEffect(field.NewPath("metadata", "namespace"), fmt.Sprintf("allowed are %s, see exceptions of PolicyConfiguration", diagnostic.QuotedList(slices.Concat(rules.Namespaces, rules.OwnNamespaces))),
			"exceptions in %q do nothing", x.Namespace)
	}
	switch {
	case x.Spec.ExpiresAt != nil:
		out.expires = x.Spec.ExpiresAt.Time
	case rules.RequireExpiry:
		out.inert = cmp.Or(out.inert, "it has no expiresAt")
		d.NoEffect(path.Child("expiresAt"), "PolicyConfiguration requires it", "is missing, so the exception does nothing")
	}
	c.exceptionConditions(d, x, out)
	return out
}

// rulesMatchedBy returns the resource rules of the policies that exist.
func (c *compilation) rulesMatchedBy(policies map[exceptedPolicy][]string) (rules []admissionregistrationv1.NamedRuleWithOperations) {
	for _, p := range c.set.policies {
		for key := range policies {
			if key.includes(exceptedPolicy{p.kind, p.name}) {
				rules = append(rules, p.spec.MatchConstraints.ResourceRules...)
			}
		}
	}
	return rules
}

// checkStars reports names with a star that is not at the end.
func checkStars(d validation.Reporter, path *field.Path, names []string) {
	for i, name := range names {
		if strings.Contains(strings.TrimSuffix(name, "*"), "*") || name == "" {
			d.Errorf(path.Index(i), `as in "legacy-*"`, "%q is not a name: a \"*\" can stand at its end only", name)
		}
	}
}

// checkNames warns of names that nothing can have.
func checkNames(d validation.Reporter, path *field.Path, names []string, what string, canBe func(name string) bool) {
	wrong := 0
	for i, name := range names {
		report := d.Warnf
		if canBe(name) {
			continue
		}
		if wrong++; wrong == len(names) {
			report = d.NoEffect
		}
		report(path.Index(i), "", "no %s can have the name %q", what, name)
	}
}

// maxDiagnostics is how many diagnostics about one exception are reported, so that its
// author cannot fill a log.
const maxDiagnostics = 20

// exceptedPolicies checks and compiles the policies of an exception.
func (c *compilation) exceptedPolicies(d validation.Reporter, x *Exception, out *exception) {
	path, missing := field.NewPath("spec", "policies"), 0
	if len(x.Spec.Policies) == 0 {
		d.Required(path, "name at least one policy")
	}
	for i, p := range x.Spec.Policies {
		at := path.Index(i)
		switch p.Kind {
		case "", policyKind, admissionKind:
		case "MutatingAdmissionPolicy":
			d.Errorf(at.Child("kind"), "exclude the objects in the policy, by a match condition or excludeResourceRules", "%q is not allowed: exceptions are from policies that validate", p.Kind)
			continue
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
		known, named := c.rulesOf(key)
		if known == nil {
			if !slices.ContainsFunc(c.named, key.includes) {
				names := make([]string, len(c.named))
				for n := range c.named {
					names[n] = c.named[n].name
				}
				report := d.Warnf
				if missing++; missing == len(x.Spec.Policies) {
					report = d.NoEffect
				}
				report(at.Child("name"), diagnostic.NameHint(p.Name, names...), "there is no policy %q", p.Name)
			}
			continue
		}
		knows := sets.New(known...)
		for k, rule := range p.Rules {
			if full := "validations[" + rule + "]"; knows.Has(full) && rule != podSecurityPart && rule != matchConditionsPart {
				if !isRuleIndex(full) {
					rule, out.policies[key][k] = full, full
				}
			}
			switch at := at.Child("rules").Index(k); {
			case named[rule] != "":
				// The index goes on to mean the rule when it gets a name.
				out.policies[key] = append(out.policies[key], named[rule])
			case rule != podSecurityPart && knows.Has(rule):
			case mayExist(rule):
				d.Warnf(at, ruleHint(rule, known), "the policy has no rule %q", rule)
			default:
				d.Errorf(at, ruleHint(rule, known), "the policy has no rule %q", rule)
			}
		}
	}
}

// podSecurityPart and matchConditionsPart are parts of a policy in messages, which are no rules.
const (
	podSecurityPart     = "podSecurity"
	matchConditionsPart = "matchConditions"
)

// mayExist reports whether a policy, or a later version of Kubernetes, may have such a rule: an index, or a check of podSecurity. A
// validation by its name is in the policy or a mistake.
func mayExist(rule string) bool {
	return isRuleIndex(rule) || strings.HasPrefix(rule, podSecurityPart+".") || strings.HasPrefix(rule, "auditAnnotations[")
}

// isRuleIndex reports whether a rule is named by its index.
func isRuleIndex(rule string) bool {
	digits, isValidation := strings.CutPrefix(rule, "validations[")
	digits, isClosed := strings.CutSuffix(digits, "]")
	i, err := strconv.ParseUint(digits, 10, 31)
	return isValidation && isClosed && err == nil && rule == v1alpha1.IndexedRule(int(i))
}

// ruleHint returns a hint for a rule that is not among the rules: the one that was meant, or those that there are but for the checks of
// podSecurity. What the names of all rules have in common makes none near.
func ruleHint(rule string, rules []string) string {
	bare := func(rule string) string {
		return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(rule, "validations["), podSecurityPart+"."), "]")
	}
	names := map[string]string{}
	for _, r := range rules {
		if !isRuleIndex(r) { // the nearest number is no better than another
			names[bare(r)] = r
		}
	}
	if near, isNear := diagnostic.Nearest(bare(rule), slices.Sorted(maps.Keys(names))...); isNear {
		return fmt.Sprintf("did you mean %q?", names[near])
	}
	const most = 10
	known := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(rules))), func(r string) bool { return strings.HasPrefix(r, podSecurityPart+".") })
	if len(known) > most {
		return "there are " + strings.Join(known[:most], ", ") + ", and more"
	}
	return strings.TrimSuffix("there are "+strings.Join(known, ", "), "there are ")
}

// exceptionMatch checks and compiles what an exception is about.
func (c *compilation) exceptionMatch(d validation.Reporter, match *v1alpha1.ExceptionMatch, out *exception) {
	path := field.NewPath("spec", "match")
	if len(match.Namespaces) == 0 && len(match.Names) == 0 && match.NamespaceSelector == nil && match.ObjectSelector == nil && len(match.MatchConditions) == 0 && match.Containers == nil {
		d.Errorf(path, "set namespaces, names or a selector, or containers; to disable a policy, delete its binding", "is empty: an exception must select objects")
	}
	if len(match.Namespaces) > 0 {
		out.namespaces = slices.Clone(match.Namespaces)
	}
	out.names = slices.Clone(match.Names)
	checkStars(d, path.Child("names"), match.Names)
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
		if key := matching.Contradiction(name == "namespaceSelector", spec); key != "" {
			d.NoEffect(path.Child(name), "", "nothing can meet what it requires of the label %q, so the exception does nothing", key)
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

// exceptionConditions compiles the conditions of an exception, or reuses those of the
// previous Set.
//
// With KeepBroken, as in a cluster, the conditions of an exception that does nothing are
// not compiled: its author must not cause that work.
func (c *compilation) exceptionConditions(d validation.Reporter, x *Exception, out *exception) {
	given, path := x.Spec.Match.MatchConditions, field.NewPath("spec", "match", "matchConditions")
	text := 0
	for i := range given {
		text += len(given[i].Expression)
	}
	switch {
	case text > maxConditionsText:
		d.Errorf(path, "say it in fewer conditions, or in several exceptions", "have %d bytes together, allowed are %d", text, maxConditionsText)
		return
	case len(given) == 0, out.inert != "" && c.keepBroken:
		return
	}
	known := c.conditions[out.title]
	if known == nil || !slices.Equal(known.given, given) {
		var found diagnostic.List
		patterns := 0
		s := expression.NewScope(validation.Reporter{Source: d.Source, Object: d.Object, List: &found}, c.compiler, false, nil, c.stop)
		known = &exceptionConditions{given: slices.Clone(given)}
		for i := range given {
			if !s.Fits(path, given[i].Expression) {
				known.compiled = nil
				break
			}
			if program := s.Compile(path.Index(i).Child("expression"), given[i].Expression, cel.BoolType); program != nil {
				known.compiled = append(known.compiled, expression.Condition{Name: given[i].Name, Program: program})
				patterns += program.Patterns()
			}
			if patterns > maxConditionsPatterns {
				known.compiled = nil
				s.Errorf(path.Index(i).Child("expression"), "repeat less in patterns", "the regular expressions of the conditions are too large: with repetitions written out they may have %d parts together", maxConditionsPatterns)
				break
			}
		}
		if found.Err() == nil {
			expression.CheckConditions(s.Reporter, path, "exception", known.compiled)
		}
		known.bound, known.uses = s.Bound, s.Uses
		known.found = slices.Clone(found[:min(maxDiagnostics+1, len(found))])
	}
	c.set.conditions[out.title] = known
	out.conditions, out.bound, out.uses = known.compiled, known.bound, known.uses
	for _, f := range known.found {
		f.Source = d.Source
		c.diagnostics = append(c.diagnostics, f)
	}
}

// exceptionConditions are the conditions of an exception, right or wrong.
type exceptionConditions struct {
	given    []admissionregistrationv1.MatchCondition
	compiled []expression.Condition
	bound    celcost.Bound
	uses     expression.Uses
	// found are the first diagnostics, one more than are shown.
	found diagnostic.List
}
