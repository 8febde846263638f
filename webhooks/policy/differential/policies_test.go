package differential_test

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/dispatcher"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// rules returns resource rules, most of them about one of the requests.
func (g *generator) rules(requests []dispatcher.Asked) []admissionregistrationv1.NamedRuleWithOperations {
	var out []admissionregistrationv1.NamedRuleWithOperations
	for range 1 + g.Intn(2) {
		req := &requests[g.Intn(len(requests))].Sent
		group, version, resource := req.Resource.Group, req.Resource.Version, req.Resource.Resource
		if g.maybe(0.35) {
			version = g.of("v1", "v2", "v1beta1", "v1beta2", "v1alpha1", "v2beta2", "*")
		}
		if resource == "events" && g.maybe(0.5) {
			group, version = g.of("", "events.k8s.io"), "v1"
		}
		if g.maybe(0.15) {
			group = "*"
		}
		rule := admissionregistrationv1.NamedRuleWithOperations{}
		rule.APIGroups, rule.APIVersions = []string{group}, []string{version}
		if version != "*" && version != "v2" && g.maybe(0.2) {
			rule.APIVersions = append(rule.APIVersions, "v2")
		}
		name := resource
		if req.SubResource != "" && g.maybe(0.8) {
			name += "/" + req.SubResource
		}
		if g.maybe(0.35) {
			name = g.of("*", "*/*", resource+"/*", "*/status", "*/scale", "*/exec")
		}
		rule.Resources = []string{name}
		rule.Operations = []admissionregistrationv1.OperationType{"*"}
		if g.maybe(0.5) {
			rule.Operations = nil
			for _, o := range g.list("CREATE", "UPDATE", "DELETE", "CONNECT") {
				rule.Operations = append(rule.Operations, admissionregistrationv1.OperationType(o))
			}
		}
		if g.maybe(0.15) {
			rule.ResourceNames = g.list("web", "cart", "x")
		}
		if g.maybe(0.3) {
			rule.Scope = new(admissionregistrationv1.ScopeType(g.of("*", "Namespaced", "Cluster")))
		}
		out = append(out, rule)
	}
	return out
}

func (g *generator) selector() *metav1.LabelSelector {
	r := metav1.LabelSelectorRequirement{Key: g.of("team", "env", "use", "kubernetes.io/metadata.name")}
	if r.Operator = metav1.LabelSelectorOperator(g.of("In", "In", "NotIn", "NotIn", "Exists", "DoesNotExist")); len(r.Operator) <= len("NotIn") {
		r.Values = g.list("a", "b", "prod", "test", "checkout", "limits", "shop", "lab")
	}
	if g.maybe(0.2) {
		return &metav1.LabelSelector{}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
}

func (g *generator) match(requests []dispatcher.Asked, required bool) *admissionregistrationv1.MatchResources {
	out := &admissionregistrationv1.MatchResources{}
	if required || g.maybe(0.6) {
		out.ResourceRules = g.rules(requests)
	}
	if g.maybe(0.15) {
		out.ExcludeResourceRules = g.rules(requests)
	}
	if g.maybe(0.2) {
		out.NamespaceSelector = g.selector()
	}
	if g.maybe(0.2) {
		out.ObjectSelector = g.selector()
	}
	if g.maybe(0.4) {
		out.MatchPolicy = new(admissionregistrationv1.MatchPolicyType(g.of("Exact", "Equivalent", "Equivalent")))
	}
	return out
}

// policySpec returns a policy whose expressions may not compile.
func (g *generator) policySpec(requests []dispatcher.Asked) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: g.match(requests, true)}
	g.names = nil
	if g.maybe(0.5) {
		spec.FailurePolicy = new(admissionregistrationv1.FailurePolicyType(g.of("Fail", "Ignore")))
	}
	if g.maybe(0.4) {
		spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: g.of("Limit", "ClusterLimit", "Unserved")}
		if g.maybe(0.4) {
			spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		}
		g.names = append(g.names, paramPaths...)
	}
	if g.maybe(0.35) {
		for i := range 1 + g.Intn(3) {
			spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: g.expand("bool", 2)})
		}
	}
	if g.maybe(0.4) {
		for i := range 1 + g.Intn(3) {
			spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Name: fmt.Sprintf("v%d", i), Expression: g.expand(g.of("any", "any", "bool"), 2)})
			name := fmt.Sprintf("variables.v%d", i)
			g.names = append(g.names, name, name, name)
		}
	}
	for range 1 + g.Intn(4) {
		v := admissionregistrationv1.Validation{Expression: g.expand("bool", 3)}
		if g.maybe(0.3) {
			v.Message = g.of("no", "  padded  ", "must be so", "é")
		}
		if g.maybe(0.4) {
			v.MessageExpression = g.expand("message", 2)
		}
		if g.maybe(0.3) {
			v.Reason = new(metav1.StatusReason(g.of("Forbidden", "Invalid", "RequestEntityTooLarge")))
		}
		spec.Validations = append(spec.Validations, v)
	}
	if g.maybe(0.3) {
		for i := range 1 + g.Intn(2) {
			spec.AuditAnnotations = append(spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{Key: fmt.Sprintf("k%d", i), ValueExpression: g.expand("note", 2)})
		}
	}
	return spec
}

func (g *generator) binding(p *admissionregistrationv1.ValidatingAdmissionPolicy, name string, requests []dispatcher.Asked) policy.Binding {
	b := policy.Binding{Source: name}
	b.Name, b.Spec.PolicyName = name, p.Name
	actions := [][]admissionregistrationv1.ValidationAction{{"Deny"}, {"Deny"}, {"Deny", "Audit"}, {"Warn"}, {"Audit"}, {"Warn", "Audit"}}
	b.Spec.ValidationActions = actions[g.Intn(len(actions))]
	if g.maybe(0.3) {
		b.Spec.MatchResources = g.match(requests, false)
	}
	if p.Spec.ParamKind != nil && g.maybe(0.85) || g.maybe(0.05) {
		ref := &admissionregistrationv1.ParamRef{ParameterNotFoundAction: new(admissionregistrationv1.ParameterNotFoundActionType(g.of("Allow", "Deny")))}
		if g.maybe(0.5) {
			ref.Name = g.of("limits", "limits-2", "p", "global", "none")
		} else {
			ref.Selector = g.selector()
		}
		if g.maybe(0.5) {
			ref.Namespace = g.of("shop", "lab")
		}
		b.Spec.ParamRef = ref
	}
	return b
}
