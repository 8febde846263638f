package defaults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func roleBinding(ref *rbacv1.RoleRef, list []rbacv1.Subject) {
	set(&ref.APIGroup, rbacv1.GroupName)
	for i := range list {
		if list[i].Kind == rbacv1.UserKind || list[i].Kind == rbacv1.GroupKind {
			set(&list[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func mutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		webhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig, w.Rules)
		setPointer(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
}

func validatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		webhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, &w.ClientConfig, w.Rules)
	}
}

// webhook fills in what the two types of webhooks have in common.
func webhook(
	failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType,
	namespaces, objects **metav1.LabelSelector, timeout **int32,
	client *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations,
) {
	setPointer(failure, admissionregistrationv1.Fail)
	setPointer(match, admissionregistrationv1.Equivalent)
	setPointer(namespaces, metav1.LabelSelector{})
	setPointer(objects, metav1.LabelSelector{})
	setPointer(timeout, 10)
	if client.Service != nil {
		setPointer(&client.Service.Port, 443)
	}
	for i := range rules {
		setPointer(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

func matchResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	setPointer(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	setPointer(&m.NamespaceSelector, metav1.LabelSelector{})
	setPointer(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			setPointer(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}
