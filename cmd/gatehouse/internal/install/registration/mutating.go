package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// mutateTimeout is the timeoutSeconds of the mutating webhooks. Mutating
// webhooks are called one after the other, and all of them must fit into the
// 60 seconds of a request.
const mutateTimeout = 5

// asksExpression is true for a pod that says something on injection and does not
// merely decline, with "false" or with names that all have a minus: it asks, or
// it means to and has misspelt it. A pod without annotations, or with null for
// them, says nothing.
const asksExpression = `has(object.metadata.annotations) && object.metadata.annotations != null &&
"` + v1alpha1.InjectAnnotation + `" in object.metadata.annotations &&
!object.metadata.annotations["` + v1alpha1.InjectAnnotation + `"].matches("^(false|\\s*-[^,]*(,\\s*-[^,]*)*)$")`

// mutating is the configuration of two webhooks, of which each pod that is not
// created in an emergency meets exactly one: a pod that asks for injection is not created without it, and a
// pod that says nothing is created even if Gatehouse is not there.
//
// Policies that change other objects have two more webhooks, by their failurePolicy.
func (o *Options) mutating(policies *policySet) Document {
	webhook := func(name string, policy admissionregistrationv1.FailurePolicyType, condition, expression string) admissionregistrationv1.MutatingWebhook {
		return admissionregistrationv1.MutatingWebhook{
			Name:                    name,
			ClientConfig:            o.clientConfig(webhooks.MutatePath),
			FailurePolicy:           &policy,
			MatchPolicy:             new(admissionregistrationv1.Equivalent),
			NamespaceSelector:       o.namespaceSelector(),
			ObjectSelector:          &metav1.LabelSelector{},
			ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(mutateTimeout)),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{corev1.GroupName},
					APIVersions: []string{"v1"},
					Resources:   []string{"pods"},
					Scope:       new(admissionregistrationv1.NamespacedScope),
				},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{notBreakGlass(), {Name: condition, Expression: expression}},
		}
	}
	config := &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: typeMeta("MutatingWebhookConfiguration"), ObjectMeta: o.metadata()}
	comment := "While Gatehouse is down, a pod that asks for injection is rejected, and every other pod is created without sidecars."
	if o.injects() {
		unasked := admissionregistrationv1.Ignore
		if policies.failsForPods {
			unasked, comment = admissionregistrationv1.Fail, "While Gatehouse is down, no pod is created, because a MutatingAdmissionPolicy that matches pods fails closed."
		}
		config.Webhooks = append(config.Webhooks,
			webhook("asked.mutate.gatehouse.dev", admissionregistrationv1.Fail, "asks-for-injection", asksExpression),
			webhook("default.mutate.gatehouse.dev", unasked, "does-not-ask-for-injection", "!("+asksExpression+")"))
	} else {
		comment = "The resources that the policies change, and no others."
	}
	for _, w := range []struct {
		name   string
		policy admissionregistrationv1.FailurePolicyType
		sent   *sentRequests
	}{
		{"fail.mutate.gatehouse.dev", admissionregistrationv1.Fail, &policies.fail},
		{"ignore.mutate.gatehouse.dev", admissionregistrationv1.Ignore, &policies.ignore},
	} {
		if len(w.sent.atoms) == 0 {
			continue
		}
		one := webhook(w.name, w.policy, "", "")
		w.sent.limit(&one.NamespaceSelector, &one.ObjectSelector)
		one.Rules, one.MatchConditions = w.sent.rules(), ownConditions()
		if o.injects() {
			one.MatchConditions = append(one.MatchConditions, notNewPod())
		}
		config.Webhooks = append(config.Webhooks, one)
	}
	return Document{comment: comment, object: config}
}

// notNewPod excludes the creation of pods, which the webhooks for sidecars send.
func notNewPod() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: "not-a-new-pod",
		Expression: `!(request.operation == "CREATE" && request.resource.group == "" && request.resource.resource == "pods" &&
(!has(request.subResource) || request.subResource == ""))`,
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}
