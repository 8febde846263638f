package registration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExcludedNamespaces is an annotation of webhook configurations whose rules and selectors Gatehouse writes: the names of the
// namespaces that nothing is sent from, with commas. A configuration without it is not managed. Gatehouse's ServiceAccount
// cannot change it.
const ExcludedNamespaces = "gatehouse.dev/excluded-namespaces"

// managed returns the webhook configurations without rules and selectors: until Gatehouse writes them, nothing is sent. All
// webhooks are there, because Gatehouse may add none, and their match conditions hold for whatever rules they get.
func (o *Options) managed() []Document {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta: typeMeta("MutatingWebhookConfiguration"), ObjectMeta: o.metadata(),
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			o.mutatingWebhook(AskedMutate, fail, notBreakGlass(), asking()),
			o.mutatingWebhook(DefaultMutate, ignore, notBreakGlass(), notAsking()),
			o.mutatingWebhook(FailMutate, fail, append(ownConditions(), notNewPodThatAsks())...),
			o.mutatingWebhook(IgnoreMutate, ignore, append(ownConditions(), notNewPod())...),
		},
	}
	for i := range mutating.Webhooks {
		w := &mutating.Webhooks[i]
		w.Rules, w.NamespaceSelector, w.ObjectSelector = nil, nil, nil
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: typeMeta("ValidatingWebhookConfiguration"), ObjectMeta: o.metadata(),
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			o.validatingWebhook(FailValidate, fail), o.validatingWebhook(IgnoreValidate, ignore), o.documents(),
		},
	}
	return []Document{
		{
			comment: `Gatehouse writes the rules and selectors of all webhooks but that for its custom resources, as its policies and profiles
need them: do not add any here. Nothing is sent from the namespaces of the annotation.`,
			object: mutating,
		},
		{object: validating},
	}
}

// Selectors returns the selectors of a webhook that sends the requests, and none from the excluded namespaces.
func (r Requests) Selectors(excluded []string) (namespaces, objects *metav1.LabelSelector) {
	namespaces, objects = excluding(excluded), &metav1.LabelSelector{}
	(&sentRequests{namespaces: r.Namespaces, objects: r.Objects}).limit(&namespaces, &objects)
	return namespaces, objects
}

// RequestsOf returns the requests of a managed webhook, given its rules and selectors: Selectors reversed.
func RequestsOf(rules []admissionregistrationv1.RuleWithOperations, namespaces, objects *metav1.LabelSelector) Requests {
	r := Requests{Rules: rules, Objects: selects(objects)}
	if namespaces != nil {
		shared := namespaces.DeepCopy()
		if i := slices.IndexFunc(shared.MatchExpressions, isExclusion); i >= 0 {
			shared.MatchExpressions = slices.Delete(shared.MatchExpressions, i, i+1)
		}
		r.Namespaces = selects(shared)
	}
	return r
}

func isExclusion(r metav1.LabelSelectorRequirement) bool {
	return r.Key == namespaceName && r.Operator == metav1.LabelSelectorOpNotIn
}

// ParseExcluded returns the namespaces of the annotation ExcludedNamespaces. It returns an error if there is none: then the
// configuration was not made to be managed.
func ParseExcluded(annotations map[string]string) ([]string, error) {
	text := annotations[ExcludedNamespaces]
	if text == "" {
		return nil, fmt.Errorf("has no annotation %s (hint: apply the output of gatehouse manifests --manage-registration, or upgrade the chart with webhooks.manage)", ExcludedNamespaces)
	}
	return strings.Split(text, ","), nil
}
