package registration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The names of the webhooks whose rules depend on policies and profiles.
const (
	AskedMutate    = "asked.mutate.gatehouse.dev"
	DefaultMutate  = "default.mutate.gatehouse.dev"
	FailMutate     = "fail.mutate.gatehouse.dev"
	IgnoreMutate   = "ignore.mutate.gatehouse.dev"
	FailValidate   = "fail.validate.gatehouse.dev"
	IgnoreValidate = "ignore.validate.gatehouse.dev"

	// documentsWebhook is the name of the webhook that checks custom resources.
	documentsWebhook = "documents.validate.gatehouse.dev"
)

// MutatingNames returns the names of the mutating webhooks, in the order of their configuration.
func MutatingNames() []string { return []string{AskedMutate, DefaultMutate, FailMutate, IgnoreMutate} }

// ValidatingNames returns the names of the validating webhooks for policies, in the order of their configuration.
func ValidatingNames() []string { return []string{FailValidate, IgnoreValidate} }

// The timeoutSeconds of the webhooks.
const (
	// mutateTimeout is that of the mutating webhooks, which are called one after the other: all of them must fit into the 60
	// seconds of a request.
	mutateTimeout = 5
	// validateTimeout is that of the validating webhooks, which are called at the same time as all others.
	validateTimeout = 3
	// documentsTimeout is that of the webhook for custom resources: a policy is compiled for it, for which other webhooks
	// do not wait.
	documentsTimeout = 10
)

// ExcludedNamespaces is an annotation of webhook configurations whose rules and selectors Gatehouse writes: the names of the
// namespaces that nothing is sent from, with commas. A configuration without it is not managed. Gatehouse's ServiceAccount
// cannot change it.
const ExcludedNamespaces = "gatehouse.dev/excluded-namespaces"

// ParseExcluded returns the namespaces of the annotation ExcludedNamespaces. It returns an error if there is none: then the
// configuration was not made to be managed.
func ParseExcluded(annotations map[string]string) ([]string, error) {
	text := annotations[ExcludedNamespaces]
	if text == "" {
		return nil, fmt.Errorf("has no annotation %s (hint: apply the output of gatehouse manifests --manage-registration, or upgrade the chart with webhooks.create)", ExcludedNamespaces)
	}
	return strings.Split(text, ","), nil
}

// configurations returns the webhook configurations, of which a managed one has all webhooks without rules and selectors: until
// Gatehouse writes them, nothing is sent. All webhooks are there, because Gatehouse may add none, and their match conditions
// hold for whatever rules they get. One that is not managed has the webhooks that send something.
//
// Each pod that is not created in an emergency meets exactly one of the webhooks for new pods: a pod that asks for injection is
// not created without it, and a pod that says nothing is created even if Gatehouse is not there, unless a policy that fails
// closed changes it.
func (o *Options) configurations(needs Needs) []Document {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: typeMeta("MutatingWebhookConfiguration"), ObjectMeta: o.metadata()}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{TypeMeta: typeMeta("ValidatingWebhookConfiguration"), ObjectMeta: o.metadata()}
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	for _, w := range []struct {
		name       string
		policy     admissionregistrationv1.FailurePolicyType
		conditions []admissionregistrationv1.MatchCondition
	}{
		{AskedMutate, fail, []admissionregistrationv1.MatchCondition{NotBreakGlass(), asking()}},
		{DefaultMutate, ignore, []admissionregistrationv1.MatchCondition{NotBreakGlass(), notAsking()}},
		{FailMutate, fail, append(ownConditions(), notNewPodThatAsks())},
		{IgnoreMutate, ignore, append(ownConditions(), notNewPod())},
		{FailValidate, fail, ownConditions()},
		{IgnoreValidate, ignore, ownConditions()},
	} {
		requests, sends := needs[w.name]
		if !sends && !o.Managed {
			continue
		}
		var namespaces, objects *metav1.LabelSelector
		if !o.Managed {
			namespaces, objects = requests.Selectors(o.Excluded())
		}
		if slices.Contains(MutatingNames(), w.name) {
			mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
				Name: w.name, ClientConfig: o.clientConfig(webhooks.MutatePath), FailurePolicy: &w.policy,
				MatchPolicy: new(admissionregistrationv1.Equivalent), ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
				SideEffects: new(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: new(int32(mutateTimeout)), AdmissionReviewVersions: []string{"v1"},
				Rules: requests.Rules, NamespaceSelector: namespaces, ObjectSelector: objects, MatchConditions: w.conditions,
			})
			continue
		}
		one := o.validatingWebhook(w.name, w.policy, validateTimeout, w.conditions)
		one.Rules, one.NamespaceSelector, one.ObjectSelector = requests.Rules, namespaces, objects
		validating.Webhooks = append(validating.Webhooks, one)
	}
	if o.CustomResources {
		validating.Webhooks = append(validating.Webhooks, o.documents())
	}
	comment := "What the policies and profiles of the configuration match, and nothing else."
	switch {
	case o.Managed:
		comment = `Gatehouse writes the rules and selectors of all webhooks but that for its custom resources, as its policies and profiles
need them: do not add any here. Nothing is sent from the namespaces of the annotation.`
	case o.isUnknown():
		comment = `New pods for injection, and pods and workloads for validation, whatever policies and profiles there will be (hint: --config DIR
sends what its policies match, --manage-registration what those of the cluster match).`
	}
	var list []Document
	if len(mutating.Webhooks) > 0 {
		list = append(list, Document{part: PartRegistration, comment: comment, object: mutating})
		comment = ""
	}
	if len(validating.Webhooks) > 0 {
		list = append(list, Document{part: PartRegistration, comment: comment, object: validating})
	}
	return list
}

// validatingWebhook returns a validating webhook without rules and selectors.
func (o *Options) validatingWebhook(name string, policy admissionregistrationv1.FailurePolicyType, timeout int32, conditions []admissionregistrationv1.MatchCondition) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: name, ClientConfig: o.clientConfig(webhooks.ValidatePath), FailurePolicy: &policy, MatchPolicy: new(admissionregistrationv1.Equivalent),
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"}, MatchConditions: conditions,
	}
}

// documents is the webhook that refuses a custom resource that could not be used,
// with its diagnostics.
//
// It fails open: what gets past it while Gatehouse is down is reported by the
// conditions of the object, and an installation in one command, which creates
// objects before Gatehouse runs, must not be refused. It leaves out no namespace,
// because exceptions are in those of Gatehouse and of the system too. Policies do
// not see these objects, so that none keeps another from being repaired. What is
// done in an emergency is checked like anything else: a mistake is likelier then,
// and without an answer it gets through all the same.
func (o *Options) documents() admissionregistrationv1.ValidatingWebhook {
	w := o.validatingWebhook(documentsWebhook, admissionregistrationv1.Ignore, documentsTimeout, []admissionregistrationv1.MatchCondition{notTheAPIServer()})
	w.NamespaceSelector, w.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	w.Rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule: admissionregistrationv1.Rule{
			APIGroups:   []string{v1alpha1.GroupVersion.Group},
			APIVersions: []string{v1alpha1.GroupVersion.Version},
			// Without subresources: Gatehouse itself writes the status.
			Resources: install.CustomResources(),
			Scope:     new(admissionregistrationv1.AllScopes),
		},
	}}
	return w
}

// Selectors returns the selectors of a webhook that sends the requests, and none from the excluded namespaces.
func (r Requests) Selectors(excluded []string) (namespaces, objects *metav1.LabelSelector) {
	namespaces = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		// The API server sets this label, so that clients cannot exclude a namespace with it.
		Key: namespaceName, Operator: metav1.LabelSelectorOpNotIn, Values: excluded,
	}}}
	if r.Namespaces != nil {
		namespaces.MatchLabels = r.Namespaces.MatchLabels
		namespaces.MatchExpressions = append(namespaces.MatchExpressions, r.Namespaces.MatchExpressions...)
	}
	if objects = r.Objects; objects == nil {
		objects = &metav1.LabelSelector{}
	}
	return namespaces, objects
}

// excluded are the resources that are never sent for validation, whatever policies
// match: what nodes need to join and stay, and what the API server needs
// to know who may do what. Policies, exceptions and the rest of Gatehouse's own
// documents are not sent to policies either, so that none keeps another from being
// mended. Most are in no namespace, so that a namespace selector does not leave
// them out.
var excluded = []excludedResource{ //nolint:gochecknoglobals // a constant table
	{"events", []string{"", "events.k8s.io"}, "events"},
	{"nodes", []string{""}, "nodes"},
	{"csi-nodes", []string{"storage.k8s.io"}, "csinodes"},
	{"certificate-signing-requests", []string{"certificates.k8s.io"}, "certificatesigningrequests"},
	{"leases", []string{"coordination.k8s.io"}, ""},
	{"reviews", []string{"authentication.k8s.io", "authorization.k8s.io"}, ""},
	{"gatehouse-documents", []string{v1alpha1.GroupVersion.Group}, ""},
}

// excludedResource is a resource, with its subresources, in some API groups. An
// empty resource stands for all resources of the groups.
type excludedResource struct {
	name     string
	groups   []string
	resource string
}

// condition lets pass everything but the resource. It looks at the request
// only, which is never null, and not at the object, which is on DELETE.
func (s excludedResource) condition() admissionregistrationv1.MatchCondition {
	expression := `request.resource.group == "` + s.groups[0] + `"`
	if len(s.groups) > 1 {
		expression = `request.resource.group in ["` + strings.Join(s.groups, `", "`) + `"]`
	}
	if s.resource != "" {
		expression += ` && request.resource.resource == "` + s.resource + `"`
	}
	return admissionregistrationv1.MatchCondition{Name: "not-" + s.name, Expression: "!(" + expression + ")"}
}

// IsNeverSent reports whether requests of a resource are never sent for validation, whatever policies match.
func IsNeverSent(resource schema.GroupResource) bool {
	a := atom{group: resource.Group, resource: resource.Resource}
	return a.isExcluded()
}

// ownConditions are the match conditions of every webhook for policies.
func ownConditions() []admissionregistrationv1.MatchCondition {
	conditions := []admissionregistrationv1.MatchCondition{NotBreakGlass()}
	for _, s := range excluded {
		conditions = append(conditions, s.condition())
	}
	return append(conditions, notTheAPIServer(), notBeingDeleted())
}

// notTheAPIServer excludes requests of the API server itself, over its loopback
// connection: without its RBAC bootstrap it does not become ready. No token can
// have that name, for the identity guard refuses it.
func notTheAPIServer() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "not-the-api-server", Expression: `request.userInfo.username != "system:apiserver"`}
}

// NotBreakGlass excludes requests of the break-glass group. It is the first
// condition of every webhook but that for custom resources, which fails open anyway
// and has something to say in an emergency too, so that whatever comes behind it cannot use up what
// conditions may cost before it is evaluated, and one false condition keeps a
// request from being sent even if another fails. It cannot fail itself: the request
// is never null, and groups are checked with has() before they are read. The identity
// guard refuses the group, so that a token cannot grant it.
func NotBreakGlass() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name:       "not-break-glass",
		Expression: `!(has(request.userInfo.groups) && "` + v1alpha1.BreakGlassGroup + `" in request.userInfo.groups)`,
	}
}

// notBeingDeleted excludes updates of pods and workloads that are being deleted and
// change none of spec, labels and annotations: those that remove finalizers.
// Without Gatehouse, no Deployment that is deleted in the foreground and no
// namespace with a Job would ever be gone. All other updates are sent. A finalizer
// and a long grace period keep an object, and the containers of a pod, for as long
// as its author likes, and a pod that is given other labels meanwhile is let
// through by other NetworkPolicies. Of other kinds every update is sent: a Service
// that is being deleted goes on working. So are subresources: none of them removes
// finalizers of these kinds. The condition cannot fail itself: nothing is read that
// was not asked for before.
func notBeingDeleted() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: "not-being-deleted",
		Expression: `!(request.operation == "UPDATE" && request.resource.group in ["", "apps", "batch"] &&
request.resource.resource in ["pods", "replicationcontrollers", "daemonsets", "deployments", "replicasets", "statefulsets", "cronjobs", "jobs"] &&
(!has(request.subResource) || request.subResource == "") &&
oldObject != null && has(oldObject.metadata) && has(oldObject.metadata.deletionTimestamp) && object != null && has(object.metadata) &&
` + isUnchanged("spec") + ` &&
` + isUnchanged("metadata.labels") + ` &&
` + isUnchanged("metadata.annotations") + `)`,
	}
}

// isUnchanged is the expression for an update that leaves a field as it is.
func isUnchanged(field string) string {
	return strings.ReplaceAll("has(object.F) == has(oldObject.F) && (!has(object.F) || object.F == oldObject.F)", "F", field)
}

// asksExpression is true for a pod that says something on injection and does not
// merely decline, with "false" or with names that all have a minus: it asks, or
// it means to and has misspelt it. A pod without annotations, or with null for
// them, says nothing.
const asksExpression = `has(object.metadata.annotations) && object.metadata.annotations != null &&
"` + v1alpha1.InjectAnnotation + `" in object.metadata.annotations &&
!object.metadata.annotations["` + v1alpha1.InjectAnnotation + `"].matches("^(false|\\s*-[^,]*(,\\s*-[^,]*)*)$")`

// newPodExpression is true for the creation of a pod.
const newPodExpression = `request.operation == "CREATE" && request.resource.group == "" && request.resource.resource == "pods" &&
(!has(request.subResource) || request.subResource == "")`

// asking lets pass pods that ask for injection, or mean to, and notAsking all others.
func asking() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "asks-for-injection", Expression: asksExpression}
}

func notAsking() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "does-not-ask-for-injection", Expression: "!(" + asksExpression + ")"}
}

// notNewPod excludes the creation of pods, which the webhooks for sidecars send.
func notNewPod() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "not-a-new-pod", Expression: "!(" + newPodExpression + ")"}
}

// notNewPodThatAsks excludes the creation of pods that ask for injection.
func notNewPodThatAsks() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "not-a-new-pod-that-asks", Expression: "!(" + newPodExpression + " &&\n" + asksExpression + ")"}
}

// podCreation returns the rule of the webhooks for sidecars.
func podCreation() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{corev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistrationv1.NamespacedScope),
		},
	}}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}
