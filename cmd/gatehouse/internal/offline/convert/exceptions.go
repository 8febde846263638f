package convert

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/celexpr"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// kyvernoException is the spec of a PolicyException of kyverno.io.
type kyvernoException struct {
	Background  any             `json:"background,omitempty"`
	Exceptions  []exceptedRules `json:"exceptions"`
	Match       filters         `json:"match"`
	Conditions  any             `json:"conditions,omitempty"`
	PodSecurity []any           `json:"podSecurity,omitempty"`
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
		var spec *v1alpha1.PolicyExceptionSpec
		var err error
		if o.GroupVersionKind().Group == "kyverno.io" {
			spec, err = c.exception(o)
		} else {
			spec, err = c.celException(o)
		}
		notes := []string{"reason and expiresAt are to be filled in, and its namespace must be one of the PolicyConfiguration's"}
		c.publish(o, []*object{own("PolicyException", metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}, spec)}, notes, err)
	}
}

// exception converts an exception of kyverno.io.
func (c *converter) exception(o *manifest.Object) (*v1alpha1.PolicyExceptionSpec, error) {
	var of kyvernoException
	if err := specOf(o, &of, nil); err != nil {
		return nil, err
	}
	switch {
	case len(of.PodSecurity) > 0:
		return nil, unsupported("spec.podSecurity", "name the checks as rules, such as podSecurity.hostPorts", "controls of a Pod Security Standard")
	case of.Conditions != nil:
		return nil, unsupported("spec.conditions", "write matchConditions in CEL", "conditions of an exception")
	}
	out := &v1alpha1.PolicyExceptionSpec{Reason: "converted from Kyverno: say why"}
	for i, e := range of.Exceptions {
		policies, err := c.exceptedPolicies(fmt.Sprintf("spec.exceptions[%d]", i), e.PolicyName, e.RuleNames)
		if err != nil {
			return nil, err
		}
		out.Policies = append(out.Policies, policies...)
	}
	templates := slices.ContainsFunc(of.Exceptions, func(e exceptedRules) bool {
		return slices.ContainsFunc(c.byPolicy[e.PolicyName], func(made converted) bool { return made.templates })
	})
	blocks, fields, oneOf := of.Match.all("spec.match")
	var all []celexpr.Expr
	for i := range blocks {
		b, err := readFilter(blocks[i], fields[i], celexpr.Raw("object"))
		if err != nil {
			return nil, err
		}
		pod := slices.ContainsFunc(b.targets, func(t target) bool { return t.of == reflect.TypeFor[corev1.Pod]() })
		if len(b.targets) > 0 && !pod && templates {
			return nil, unsupported(fields[i]+".resources.kinds", "add Pod, as which pod templates are checked, and name the workload in match.names",
				"an exception for workloads from a rule about pods")
		}
		all = append(all, b.condition(true, true))
	}
	matches := celexpr.And(all...)
	if oneOf {
		matches = celexpr.Or(all...)
	}
	if matches.IsTrue() {
		return nil, unsupported("spec.match", "name kinds, namespaces or names", "an exception for everything")
	}
	out.Match.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "match", Expression: matches.Format()}}
	return out, nil
}

// exceptedPolicies returns what rules of a policy became, as exceptions name it.
func (c *converter) exceptedPolicies(field, policy string, rules []string) ([]v1alpha1.ExceptedPolicy, error) {
	const advice = "convert it together with its policy"
	policy = policy[strings.LastIndexByte(policy, '/')+1:]
	made := c.byPolicy[policy]
	if len(made) == 0 {
		return nil, unsupported(field, advice, "the policy %q, which is not among the documents that were converted", policy)
	}
	var out []v1alpha1.ExceptedPolicy
	for _, m := range made {
		named := len(rules) == 0 || slices.ContainsFunc(rules, func(name string) bool { return name == "*" || withoutAutogen(name) == m.rule })
		if !named || m.mutates {
			continue
		}
		i := slices.IndexFunc(out, func(e v1alpha1.ExceptedPolicy) bool { return e.Name == m.name })
		if i < 0 {
			i = len(out)
			out = append(out, v1alpha1.ExceptedPolicy{Name: m.name})
		}
		out[i].Rules = append(out[i].Rules, m.rules...)
	}
	if len(out) == 0 {
		return nil, unsupported(field, advice, "rules of %q that were not converted, or mutate", policy)
	}
	return out, nil
}

// celException converts an exception of policies.kyverno.io.
func (c *converter) celException(o *manifest.Object) (*v1alpha1.PolicyExceptionSpec, error) {
	var of celException
	if err := specOf(o, &of, nil); err != nil {
		return nil, err
	}
	out := &v1alpha1.PolicyExceptionSpec{Reason: "converted from Kyverno: say why"}
	for i, ref := range of.PolicyRefs {
		policies, err := c.exceptedPolicies(fmt.Sprintf("spec.policyRefs[%d]", i), ref.Name, nil)
		if err != nil {
			return nil, err
		}
		for _, p := range policies {
			out.Policies = append(out.Policies, v1alpha1.ExceptedPolicy{Name: p.Name})
		}
	}
	if len(of.MatchConditions) == 0 {
		return nil, unsupported("spec.matchConditions", "write a condition", "an exception for everything")
	}
	out.Match.MatchConditions = of.MatchConditions
	return out, nil
}
