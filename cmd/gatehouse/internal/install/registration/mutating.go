package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
	config := &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: typeMeta("MutatingWebhookConfiguration"), ObjectMeta: o.metadata()}
	comment := "While Gatehouse is down, a pod that asks for injection is rejected, and every other pod is created without sidecars."
	if o.injects() {
		unasked := admissionregistrationv1.Ignore
		if policies.failsForPods {
			unasked, comment = admissionregistrationv1.Fail, "While Gatehouse is down, no pod is created, because a MutatingAdmissionPolicy that matches pods fails closed."
		}
		config.Webhooks = append(config.Webhooks,
			o.mutatingWebhook(AskedMutate, admissionregistrationv1.Fail, notBreakGlass(), asking()),
			o.mutatingWebhook(DefaultMutate, unasked, notBreakGlass(), notAsking()))
	} else {
		comment = "The resources that the policies change, and no others."
	}
	for _, w := range []struct {
		name   string
		policy admissionregistrationv1.FailurePolicyType
		sent   *sentRequests
	}{
		{FailMutate, admissionregistrationv1.Fail, &policies.fail},
		{IgnoreMutate, admissionregistrationv1.Ignore, &policies.ignore},
	} {
		if len(w.sent.atoms) == 0 {
			continue
		}
		one := o.mutatingWebhook(w.name, w.policy, ownConditions()...)
		w.sent.limit(&one.NamespaceSelector, &one.ObjectSelector)
		one.Rules = w.sent.rules()
		if o.injects() {
			one.MatchConditions = append(one.MatchConditions, notNewPod())
		}
		config.Webhooks = append(config.Webhooks, one)
	}
	return Document{comment: comment, object: config}
}

// mutatingWebhook returns a webhook for new pods.
func (o *Options) mutatingWebhook(name string, policy admissionregistrationv1.FailurePolicyType, conditions ...admissionregistrationv1.MatchCondition) admissionregistrationv1.MutatingWebhook {
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
		Rules:                   podCreation(),
		MatchConditions:         conditions,
	}
}

// asking lets pass pods that ask for injection, or mean to, and notAsking all others.
func asking() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "asks-for-injection", Expression: asksExpression}
}

func notAsking() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "does-not-ask-for-injection", Expression: "!(" + asksExpression + ")"}
}

// newPodExpression is true for the creation of a pod.
const newPodExpression = `request.operation == "CREATE" && request.resource.group == "" && request.resource.resource == "pods" &&
(!has(request.subResource) || request.subResource == "")`

// notNewPod excludes the creation of pods, which the webhooks for sidecars send.
func notNewPod() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: "not-a-new-pod", Expression: "!(" + newPodExpression + ")",
	}
}

// notNewPodThatAsks excludes the creation of pods that ask for injection.
func notNewPodThatAsks() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: "not-a-new-pod-that-asks", Expression: "!(" + newPodExpression + " &&\n" + asksExpression + ")",
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}
