package convert

import (
	"cmp"
	"fmt"
	"path"
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
	// kind is that of a policy in CEL, and "" of one that is not.
	kind string
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
		specs, notes, err := c.exception(o)
		notes = append([]string{"reason and expiresAt are to be filled in, and its namespace must be one of the PolicyConfiguration's"}, notes...)
		if o.Namespace == "" {
			notes = append(notes, fmt.Sprintf("it has no namespace: it is written for %q, where every configuration takes exceptions from", exceptionNamespace))
		}
		c.publish(o, namedExceptions(metav1.ObjectMeta{Namespace: cmp.Or(o.Namespace, exceptionNamespace), Name: o.Name}, specs), notes, err)
	}
}

// namedExceptions returns PolicyExceptions.
func namedExceptions(meta metav1.ObjectMeta, specs []v1alpha1.PolicyExceptionSpec) (out []*object) {
	for _, spec := range specs {
		spec.Reason = "converted from Kyverno: say why"
		out = append(out, own("PolicyException", meta, spec))
	}
	return out
}

// exception returns what an exception becomes: for each of its alternatives an exception from the policies that it names, and others from
// controls of Pod Security Standards.
func (c *converter) exception(o *manifest.Object) (specs []v1alpha1.PolicyExceptionSpec, notes []string, err error) {
	var of kyvernoException
	var cel celException
	field, matchField, into := "spec.exceptions", "spec.match", any(&of)
	inCEL := o.GroupVersionKind().Group != "kyverno.io"
	if inCEL {
		field, matchField, into = "spec.policyRefs", "spec.matchConditions", &cel
	}
	if _, err := specOf(o, into, nil); err != nil {
		return nil, nil, err
	}
	params, notes, err := adaptExpressions(&cel.MatchConditions, matchField)
	for _, ref := range cel.PolicyRefs {
		of.Exceptions = append(of.Exceptions, exceptedRules{PolicyName: ref.Name, kind: ref.Kind})
	}
	exempt, failed := exemptions("spec.podSecurity", of.PodSecurity)
	switch err = cmp.Or(err, failed); {
	case err != nil:
		return nil, nil, err
	case params != nil:
		return nil, nil, unsupported(matchField, "write a condition about the object or the user", "a condition about a ConfigMap")
	case of.Conditions != nil:
		return nil, nil, unsupported("spec.conditions", "write matchConditions in CEL", "conditions of an exception")
	case slices.ContainsFunc(exempt, func(e exemption) bool { return e.containers != nil }):
		notes = append(notes, noteImages)
	}
	var policies []v1alpha1.ExceptedPolicy
	var standards []string
	templates := false
	for i := range of.Exceptions {
		made, err := c.excepted(fmt.Sprintf("%s[%d]", field, i), &of.Exceptions[i], o.File)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range made {
			one := v1alpha1.ExceptedPolicy{Name: m.name}
			if len(of.Exceptions[i].RuleNames) > 0 {
				one.Rules = m.rules
			}
			if templates = templates || m.templates; m.podSecurity != nil && len(exempt) > 0 {
				standards = union(standards, m.name)
			} else {
				policies = append(policies, one)
			}
		}
	}
	if templates && !inCEL {
		notes = append(notes, "pods and the pod templates of all workloads are exempt alike, a template by the name of its workload")
	}
	alternatives := [][]admissionregistrationv1.MatchCondition{cel.MatchConditions}
	if !inCEL {
		if alternatives, err = c.exceptionConditions(&of.Match, templates); err != nil {
			return nil, nil, err
		}
	}
	if len(policies)+len(standards) == 0 {
		return nil, nil, unsupported(field, "name a policy", "an exception from no policy")
	}
	for _, conditions := range alternatives {
		match := v1alpha1.ExceptionMatch{MatchConditions: conditions}
		if len(conditions) == 0 {
			return nil, nil, unsupported(matchField, "say what it is for, by kinds, namespaces, names or a condition", "an exception for everything")
		}
		if templates {
			if match, err = workloadConditions(matchField, conditions); err != nil {
				return nil, nil, err
			}
		}
		if len(policies) > 0 {
			specs = append(specs, v1alpha1.PolicyExceptionSpec{Policies: policies, Match: match})
		}
		for i := 0; i < len(exempt) && len(standards) > 0; i++ {
			specs = append(specs, exempt[i].from(match, standards...))
		}
	}
	return specs, notes, nil
}

// exceptionConditions returns conditions about the objects that filters select, for each alternative those that must hold together.
func (c *converter) exceptionConditions(match *filters, templates bool) (out [][]admissionregistrationv1.MatchCondition, err error) {
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
		out = append(out, matchConditions(guards))
	}
	return out, nil
}

// excepted returns what those rules of a policy became that an exception names.
func (c *converter) excepted(field string, of *exceptedRules, file string) ([]converted, error) {
	made := c.made(of.PolicyName, func(o *manifest.Object) bool {
		return o.Kind == of.kind || of.kind == "" && o.GroupVersionKind().Group == "kyverno.io" && of.PolicyName == path.Join(o.Namespace, o.Name)
	}, file)
	if len(made) == 0 {
		return nil, unsupported(field, "convert it together with its policy", "the policy %q, which is not among the documents that were converted", of.PolicyName)
	}
	made = slices.DeleteFunc(made, func(m converted) bool {
		return m.mutates || len(of.RuleNames) > 0 && !slices.ContainsFunc(of.RuleNames, func(name string) bool {
			return pattern.MatchWildcard(name, m.rule) || pattern.MatchWildcard(withoutAutogen(name), m.rule)
		})
	})
	if len(made) == 0 {
		return nil, unsupported(field, "correct ruleNames, or see what is reported of the policy", "rules of %q that it does not have, that were not converted, or mutate", of.PolicyName)
	}
	return made, nil
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
