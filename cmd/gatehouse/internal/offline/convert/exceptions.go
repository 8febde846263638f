package convert

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/pattern"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// kyvernoException is the spec of a PolicyException of kyverno.io.
type kyvernoException struct {
	Background  any               `json:"background,omitempty"`
	Exceptions  []exceptedRules   `json:"exceptions"`
	Match       filters           `json:"match"`
	Conditions  any               `json:"conditions,omitempty"`
	PodSecurity []excludedControl `json:"podSecurity,omitempty"`
}

type exceptedRules struct {
	PolicyName string   `json:"policyName"`
	RuleNames  []string `json:"ruleNames"`
}

// celException is the spec of a PolicyException of policies.kyverno.io.
type celException struct {
	PolicyRefs []struct {
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"policyRefs"`
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
	ReportResult    any                                      `json:"reportResult,omitempty"`
}

// exceptions converts the exceptions, after the policies that they name.
func (c *converter) exceptions() {
	for _, o := range c.later {
		policies, matches, exempt, notes, err := c.exception(o)
		var specs []v1alpha1.PolicyExceptionSpec
		for _, match := range matches {
			specs = append(specs, c.exceptionSpecs(policies, match, exempt)...)
		}
		objects := namedExceptions(metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}, specs)
		notes = append([]string{"reason and expiresAt are to be filled in, and its namespace must be one of the PolicyConfiguration's"}, notes...)
		c.publish(o, objects, notes, err)
	}
}

// namedExceptions returns PolicyExceptions, of which all but the first have a number in their names.
func namedExceptions(meta metav1.ObjectMeta, specs []v1alpha1.PolicyExceptionSpec) (out []*object) {
	for i := range specs {
		specs[i].Reason = "converted from Kyverno: say why"
		of := meta
		if i > 0 {
			of.Name = fmt.Sprintf("%s-%d", meta.Name, i+1)
		}
		out = append(out, own("PolicyException", of, specs[i]))
	}
	return out
}

// exceptionSpecs returns exceptions from policies: from the controls of Pod Security Standards that are exempt, and from all of the others.
func (c *converter) exceptionSpecs(policies []v1alpha1.ExceptedPolicy, match v1alpha1.ExceptionMatch, exempt []exemption) (out []v1alpha1.PolicyExceptionSpec) {
	var standards []string
	whole := slices.DeleteFunc(slices.Clone(policies), func(p v1alpha1.ExceptedPolicy) bool {
		isStandard := len(exempt) > 0 && c.isStandard(p.Name)
		if isStandard {
			standards = append(standards, p.Name)
		}
		return isStandard
	})
	if len(whole) > 0 {
		out = append(out, v1alpha1.PolicyExceptionSpec{Policies: whole, Match: match})
	}
	for _, e := range exempt {
		of := v1alpha1.PolicyExceptionSpec{Match: match}
		of.Match.Containers = e.containers
		for _, name := range standards {
			of.Policies = append(of.Policies, v1alpha1.ExceptedPolicy{Name: name, Rules: e.checks})
		}
		if len(standards) > 0 {
			out = append(out, of)
		}
	}
	return out
}

// isStandard reports whether a policy is a Pod Security Standard.
func (c *converter) isStandard(policy string) bool {
	for _, made := range c.byPolicy {
		if slices.ContainsFunc(made, func(m converted) bool { return m.name == policy && m.standard }) {
			return true
		}
	}
	return false
}

// exception returns what an exception is about: policies, alternatives of objects, and controls of Pod Security Standards.
func (c *converter) exception(o *manifest.Object) (policies []v1alpha1.ExceptedPolicy, matches []v1alpha1.ExceptionMatch, exempt []exemption, notes []string, err error) {
	if o.GroupVersionKind().Group != "kyverno.io" {
		policies, matches, notes, err = c.celException(o)
		return policies, matches, nil, notes, err
	}
	var of kyvernoException
	if err := specOf(o, &of, nil); err != nil {
		return nil, nil, nil, nil, err
	}
	if of.Conditions != nil {
		return nil, nil, nil, nil, unsupported("spec.conditions", "write matchConditions in CEL", "conditions of an exception")
	}
	if exempt, err = exemptions("spec.podSecurity", of.PodSecurity); err != nil {
		return nil, nil, nil, nil, err
	}
	if slices.ContainsFunc(exempt, func(e exemption) bool { return e.containers != nil }) {
		notes = append(notes, noteImages)
	}
	templates := false
	for i, e := range of.Exceptions {
		named, checks, err := c.exceptedPolicies(fmt.Sprintf("spec.exceptions[%d]", i), e.PolicyName, e.RuleNames)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		policies, templates = append(policies, named...), templates || checks
	}
	if templates {
		notes = append(notes, "pods and the pod templates of all workloads are exempt alike, a template by the name of its workload")
	}
	matches, err = exceptionMatches(&of.Match, templates)
	return policies, matches, exempt, notes, err
}

// exceptionMatches returns the objects that filters select, one alternative for each list of names.
func exceptionMatches(match *filters, templates bool) (out []v1alpha1.ExceptionMatch, err error) {
	blocks, fields, oneOf := match.all("spec.match")
	var names [][]string
	var when [][]celexpr.Expr
	for i := range blocks {
		f, own := *blocks[i], []string(nil)
		if templates { // these have no name, but match.names knows the workload's
			if own, err = workloadNames(&f, fields[i]); err != nil {
				return nil, err
			}
		}
		b, err := readFilter(&f, fields[i], celexpr.Raw("object"))
		if err != nil {
			return nil, err
		}
		pod := slices.ContainsFunc(b.targets, func(t target) bool { return t.of == reflect.TypeFor[corev1.Pod]() })
		if len(b.targets) > 0 && !pod && templates {
			return nil, unsupported(fields[i]+".resources.kinds", "add Pod, as which pod templates are checked, and name the workload in match.names",
				"an exception for workloads from a rule about pods")
		}
		at := slices.IndexFunc(names, func(of []string) bool { return slices.Equal(of, own) })
		if at < 0 {
			at = len(names)
			names, when = append(names, own), append(when, nil)
		}
		when[at] = append(when[at], b.condition(true, true))
	}
	if !oneOf && len(names) > 1 {
		return nil, unsupported("spec.match.all", "join them in one", "several filters that must all match")
	}
	for i := range names {
		matches := celexpr.And(when[i]...)
		if oneOf {
			matches = celexpr.Or(when[i]...)
		}
		one := v1alpha1.ExceptionMatch{Names: names[i]}
		switch {
		case !matches.IsTrue():
			one.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "match", Expression: matches.Format()}}
		case len(one.Names) == 0:
			return nil, unsupported("spec.match", "name kinds, namespaces or names", "an exception for everything")
		}
		out = append(out, one)
	}
	return out, nil
}

// workloadNames takes the names out of a filter, which match workloads and not their pod templates. Of labels and annotations there is
// no such form.
func workloadNames(f *filter, field string) ([]string, error) {
	r := &f.Resources
	if r.Selector != nil || r.Annotations != nil {
		return nil, unsupported(field+".resources", "name the workloads", "labels or annotations of a workload: an exception sees those of its pod template")
	}
	names := r.Names
	if r.Name != "" {
		names = append([]string{r.Name}, names...)
	}
	if slices.ContainsFunc(names, func(name string) bool { return strings.ContainsAny(strings.TrimSuffix(name, "*"), "*?") }) {
		return nil, unsupported(field+".resources.names", "write wildcards at the end alone", "a name of a workload with wildcards elsewhere than at the end")
	}
	r.Name, r.Names = "", nil
	return names, nil
}

// exceptedPolicies returns what rules of a policy became, as exceptions name it, and whether one of them checks pod templates.
func (c *converter) exceptedPolicies(field, policy string, rules []string) (out []v1alpha1.ExceptedPolicy, templates bool, err error) {
	const advice = "convert it together with its policy"
	policy = policy[strings.LastIndexByte(policy, '/')+1:]
	made := c.byPolicy[policy]
	if len(made) == 0 {
		return nil, false, unsupported(field, advice, "the policy %q, which is not among the documents that were converted", policy)
	}
	for _, m := range made {
		named := len(rules) == 0 || slices.ContainsFunc(rules, func(name string) bool {
			return pattern.MatchWildcard(name, m.rule) || pattern.MatchWildcard(withoutAutogen(name), m.rule)
		})
		if !named || m.mutates {
			continue
		}
		i := slices.IndexFunc(out, func(e v1alpha1.ExceptedPolicy) bool { return e.Name == m.name })
		if i < 0 {
			i = len(out)
			out = append(out, v1alpha1.ExceptedPolicy{Name: m.name})
		}
		out[i].Rules, templates = append(out[i].Rules, m.rules...), templates || m.templates
	}
	if len(out) == 0 {
		return nil, false, unsupported(field, advice, "rules of %q that were not converted, or mutate", policy)
	}
	return out, templates, nil
}

// celException converts an exception of policies.kyverno.io.
func (c *converter) celException(o *manifest.Object) (policies []v1alpha1.ExceptedPolicy, matches []v1alpha1.ExceptionMatch, notes []string, err error) {
	var of celException
	if err := specOf(o, &of, nil); err != nil {
		return nil, nil, nil, err
	}
	templates := false
	for i, ref := range of.PolicyRefs {
		named, checks, err := c.exceptedPolicies(fmt.Sprintf("spec.policyRefs[%d]", i), ref.Name, nil)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, p := range named {
			policies = append(policies, v1alpha1.ExceptedPolicy{Name: p.Name})
		}
		templates = templates || checks
	}
	if len(of.MatchConditions) == 0 {
		return nil, nil, nil, unsupported("spec.matchConditions", "write a condition", "an exception for everything")
	}
	one := v1alpha1.ExceptionMatch{MatchConditions: of.MatchConditions}
	if templates {
		if one, err = workloadConditions(of.MatchConditions); err != nil {
			return nil, nil, nil, err
		}
	}
	return policies, []v1alpha1.ExceptionMatch{one}, nil, nil
}

var (
	// ofWorkload matches what an exception may not ask of a workload, since it sees its pod template: all but its namespace and the user.
	ofWorkload = regexp.MustCompile(`\b(?:object|oldObject|request)\b(\.(?:metadata\.namespace|namespace|userInfo)\b)?`)
	// ofName matches a condition that wants one of several names, as the parser writes it.
	ofName = regexp.MustCompile(`^object\.metadata\.name(?: == | in \[|(\.startsWith)\()"([^*\\]+)"[\])]?$`)
)

// workloadConditions returns conditions about workloads as an exception has them that sees pod templates: with the names apart.
func workloadConditions(conditions []admissionregistrationv1.MatchCondition) (out v1alpha1.ExceptionMatch, err error) {
	parse, err := parser.NewParser(parser.EnableOptionalSyntax(true), parser.PopulateMacroCalls(true), parser.Macros(parser.AllMacros...))
	if err != nil {
		return out, err
	}
	for i, m := range conditions {
		field := fmt.Sprintf("spec.matchConditions[%d].expression", i)
		parsed, errs := parse.Parse(common.NewTextSource(m.Expression))
		if len(errs.GetErrors()) > 0 {
			return out, unsupported(field, "correct the expression", "an expression that is not valid: %s", plainMessage(errs.ToDisplayString()))
		}
		texts := func(e ast.Expr, operator string) (all []string) {
			for _, of := range operands(e, operator) {
				text, failed := parser.Unparse(of, parsed.SourceInfo())
				all, err = append(all, text), cmp.Or(err, failed)
			}
			return all
		}
		for j, part := range operands(parsed.Expr(), operators.LogicalAnd) {
			names, text := namesOf(texts(part, operators.LogicalOr)), texts(part, "")[0]
			unseen := slices.ContainsFunc(ofWorkload.FindAllStringSubmatch(text, -1), func(m []string) bool { return m[1] == "" })
			switch {
			case len(names) > 0 && out.Names == nil:
				out.Names = names
			case unseen || err != nil:
				return out, unsupported(field, "name the workload: object.metadata.name == 'x'", "a condition about a workload: an exception sees its pod template")
			default:
				name := ruleName(fmt.Sprintf("%s-%d", m.Name, j+1))
				out.MatchConditions = append(out.MatchConditions, admissionregistrationv1.MatchCondition{Name: name, Expression: text})
			}
		}
	}
	return out, nil
}

// operands returns the operands of a logical operator, which may be nested.
func operands(e ast.Expr, operator string) (out []ast.Expr) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operator {
		return []ast.Expr{e}
	}
	for _, arg := range e.AsCall().Args() {
		out = append(out, operands(arg, operator)...)
	}
	return out
}

// namesOf returns the names of which alternatives want one, as match.names has them, and none if one is about something else.
func namesOf(alternatives []string) (out []string) {
	for _, text := range alternatives {
		m := ofName.FindStringSubmatch(text)
		if m == nil {
			return nil
		}
		for name := range strings.SplitSeq(m[2], `", "`) {
			if m[1] != "" {
				name += "*"
			}
			out = append(out, name)
		}
	}
	return out
}
