package convert

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

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

// exceptionNamespace is that of exceptions in every configuration.
const exceptionNamespace = "gatehouse-system"

// exceptions converts the exceptions, after the policies that they name.
func (c *converter) exceptions() {
	for _, o := range c.later {
		policies, matches, exempt, notes, err := c.exception(o)
		var specs []v1alpha1.PolicyExceptionSpec
		for _, match := range matches {
			specs = append(specs, c.exceptionSpecs(policies, match, exempt)...)
		}
		if o.Namespace == "" {
			notes = append(notes, fmt.Sprintf("it has no namespace: it is written for %q, where every configuration takes exceptions from", exceptionNamespace))
		}
		meta := metav1.ObjectMeta{Namespace: cmp.Or(o.Namespace, exceptionNamespace)}
		meta.Name = c.free("PolicyException", meta.Namespace, o.Name, o, &notes)
		objects := namedExceptions(meta, specs)
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
	var of kyvernoException
	var cel celException
	inCEL, field := o.GroupVersionKind().Group != "kyverno.io", "spec.exceptions"
	if inCEL {
		field = "spec.policyRefs"
		err = specOf(o, &cel, nil)
	} else {
		err = specOf(o, &of, nil)
	}
	for _, ref := range cel.PolicyRefs {
		of.Exceptions = append(of.Exceptions, exceptedRules{PolicyName: ref.Name})
	}
	switch {
	case err != nil:
	case of.Conditions != nil:
		err = unsupported("spec.conditions", "write matchConditions in CEL", "conditions of an exception")
	case inCEL && len(cel.MatchConditions) == 0:
		err = unsupported("spec.matchConditions", "write a condition", "an exception for everything")
	default:
		exempt, err = exemptions("spec.podSecurity", of.PodSecurity)
	}
	if slices.ContainsFunc(exempt, func(e exemption) bool { return e.containers != nil }) {
		notes = append(notes, noteImages)
	}
	templates := false
	for i := 0; i < len(of.Exceptions) && err == nil; i++ {
		var named []v1alpha1.ExceptedPolicy
		var checks bool
		named, checks, err = c.exceptedPolicies(fmt.Sprintf("%s[%d]", field, i), &of.Exceptions[i], o.File)
		policies, templates = append(policies, named...), templates || checks
	}
	switch {
	case err != nil:
	case !inCEL:
		if templates {
			notes = append(notes, "pods and the pod templates of all workloads are exempt alike, a template by the name of its workload")
		}
		matches, err = c.exceptionMatches(&of.Match, templates)
	case templates:
		matches = make([]v1alpha1.ExceptionMatch, 1)
		matches[0], err = workloadConditions("spec.matchConditions", cel.MatchConditions)
	default:
		matches = []v1alpha1.ExceptionMatch{{MatchConditions: cel.MatchConditions}}
	}
	return policies, matches, exempt, notes, err
}

// exceptionMatches returns the objects that filters select.
func (c *converter) exceptionMatches(match *filters, templates bool) (out []v1alpha1.ExceptionMatch, err error) {
	blocks, fields, oneOf := match.all("spec.match")
	var alternatives [][]guard
	either := celexpr.False
	for i := range blocks {
		b, err := c.readFilter(blocks[i], fields[i], celexpr.Raw("object"))
		if err != nil {
			return nil, err
		}
		pod := slices.ContainsFunc(b.targets, func(t target) bool { return t.of == reflect.TypeFor[corev1.Pod]() })
		if len(b.targets) > 0 && !pod && templates {
			return nil, unsupported(fields[i]+".resources.kinds", "add Pod, as which pod templates are checked, and name the workload in match.names",
				"an exception for workloads from a rule about pods")
		}
		alternatives, either = append(alternatives, b.guards(true, true)), celexpr.Or(either, b.condition(true, true))
	}
	switch {
	case !oneOf:
		alternatives = [][]guard{slices.Concat(alternatives...)}
	case !templates:
		alternatives = [][]guard{{{"match", either}}}
	}
	for _, guards := range alternatives {
		one := v1alpha1.ExceptionMatch{MatchConditions: matchConditions(guards)}
		if len(one.MatchConditions) == 0 {
			return nil, unsupported("spec.match", "name kinds, namespaces or names", "an exception for everything")
		}
		if templates {
			if one, err = workloadConditions("spec.match", one.MatchConditions); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// exceptedPolicies returns what rules of a policy became, as exceptions name it, and whether one of them checks pod templates.
func (c *converter) exceptedPolicies(field string, of *exceptedRules, file string) (out []v1alpha1.ExceptedPolicy, templates bool, err error) {
	const advice = "convert it together with its policy"
	policy := of.PolicyName[strings.LastIndexByte(of.PolicyName, '/')+1:]
	made := c.made(policy, file)
	if len(made) == 0 {
		return nil, false, unsupported(field, advice, "the policy %q, which is not among the documents that were converted", policy)
	}
	for _, m := range made {
		named := len(of.RuleNames) == 0 || slices.ContainsFunc(of.RuleNames, func(name string) bool {
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
		if templates = templates || m.templates; len(of.RuleNames) > 0 {
			out[i].Rules = append(out[i].Rules, m.rules...)
		}
	}
	if len(out) == 0 {
		err = unsupported(field, advice, "rules of %q that were not converted, or mutate", policy)
	}
	return out, templates, err
}

var (
	// ofWorkload matches what an exception may not ask of a workload, since it sees its pod template: all but its namespace and the user.
	ofWorkload = regexp.MustCompile(`\b(?:object|oldObject|request)\b(\.(?:metadata\.namespace|\??namespace|userInfo|kind\.kind)\b)?`)
	// ofName matches a condition that wants one of several names.
	ofName = regexp.MustCompile(`^object\.metadata\.(?:name|\?name\.or\(object\.metadata\.\?generateName\)\.orValue\(""\))\s*` +
		`(?:==|in\s*\[|(\.startsWith)\()\s*((?:["'][^"'*\\]+["'],?\s*)+)[\])]?$`)
	quoted = regexp.MustCompile(`["']([^"']+)["']`)
)

// workloadConditions returns conditions about workloads as an exception has them that sees pod templates: with the names apart, which it
// knows of workloads.
func workloadConditions(field string, conditions []admissionregistrationv1.MatchCondition) (out v1alpha1.ExceptionMatch, err error) {
	for _, m := range conditions {
		var rest []string
		parts := []string{m.Expression}
		if !strings.ContainsAny(m.Expression, "(|?") { // nothing binds less than &&
			parts = strings.Split(m.Expression, "&&")
		}
		for _, part := range parts {
			if names := namesOf(part); len(names) > 0 && out.Names == nil {
				out.Names = names
			} else {
				rest = append(rest, part)
			}
		}
		if m.Expression = strings.TrimSpace(strings.Join(rest, "&&")); m.Expression == "" {
			continue
		}
		for _, of := range ofWorkload.FindAllStringSubmatch(m.Expression, -1) {
			if of[1] == "" || of[1] == ".kind.kind" && field != "spec.match" {
				return out, unsupported(field, "name the workload, with wildcards at the end alone, or its namespace",
					"a condition about a workload: an exception sees its pod template")
			}
		}
		out.MatchConditions = append(out.MatchConditions, m)
	}
	return out, nil
}

// namesOf returns the names of which a condition wants one, as match.names has them, and none if it is about something else.
func namesOf(expression string) (out []string) {
	for text := range strings.SplitSeq(strings.Trim(expression, "() \n"), "||") {
		m := ofName.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil {
			return nil
		}
		for _, name := range quoted.FindAllStringSubmatch(m[2], -1) {
			if m[1] != "" {
				name[1] += "*"
			}
			out = append(out, name[1])
		}
	}
	return out
}
