package registration

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// validateTimeout is the timeoutSeconds of the validating webhooks. They are
// called at the same time as all others.
const validateTimeout = 3

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

// IsNeverSent reports whether requests of a resource are never sent for validation, whatever policies match.
func IsNeverSent(resource schema.GroupResource) bool {
	a := atom{group: resource.Group, resource: resource.Resource}
	return a.isExcluded()
}

// notTheAPIServer excludes requests of the API server itself, over its loopback
// connection: without its RBAC bootstrap it does not become ready. No token can
// have that name, for the identity guard refuses it.
func notTheAPIServer() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "not-the-api-server", Expression: `request.userInfo.username != "system:apiserver"`}
}

// notBreakGlass excludes requests of the break-glass group. It is the first
// condition of every webhook but that for custom resources, which fails open anyway
// and has something to say in an emergency too, so that whatever comes behind it cannot use up what
// conditions may cost before it is evaluated, and one false condition keeps a
// request from being sent even if another fails. It cannot fail itself: the request
// is never null, and groups are checked with has() before they are read. The identity
// guard refuses the group, so that a token cannot grant it.
func notBreakGlass() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name:       "not-break-glass",
		Expression: `!(has(request.userInfo.groups) && "` + v1alpha1.BreakGlassGroup + `" in request.userInfo.groups)`,
	}
}

// ownConditions are the match conditions of every validating webhook for policies.
func ownConditions() []admissionregistrationv1.MatchCondition {
	conditions := []admissionregistrationv1.MatchCondition{notBreakGlass()}
	for _, s := range excluded {
		conditions = append(conditions, s.condition())
	}
	return append(conditions, notTheAPIServer(), notBeingDeleted())
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

// limit adds the selectors that all policies have to those of a webhook.
func (s *sentRequests) limit(namespaces, objects **metav1.LabelSelector) {
	if s.namespaces != nil {
		(*namespaces).MatchLabels = s.namespaces.MatchLabels
		(*namespaces).MatchExpressions = append((*namespaces).MatchExpressions, s.namespaces.MatchExpressions...)
	}
	if s.objects != nil {
		*objects = s.objects
	}
}

// validating is the configuration of up to three webhooks: one for the policies
// that fail closed, one for those that fail open, and one for custom resources of Gatehouse.
func (o *Options) validating(fail, ignore sentRequests) Document {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   typeMeta("ValidatingWebhookConfiguration"),
		ObjectMeta: o.metadata(),
	}
	for _, w := range []struct {
		name   string
		policy admissionregistrationv1.FailurePolicyType
		sent   sentRequests
	}{
		{FailValidate, admissionregistrationv1.Fail, fail},
		{IgnoreValidate, admissionregistrationv1.Ignore, ignore},
	} {
		if len(w.sent.atoms) == 0 {
			continue
		}
		namespaces, objects := o.namespaceSelector(), &metav1.LabelSelector{}
		w.sent.limit(&namespaces, &objects)
		one := o.validatingWebhook(w.name, w.policy)
		one.NamespaceSelector, one.ObjectSelector, one.Rules = namespaces, objects, w.sent.rules()
		config.Webhooks = append(config.Webhooks, one)
	}
	comment := "The resources that the policies match, and no others."
	switch {
	case o.CustomResources:
		config.Webhooks = append(config.Webhooks, o.documents())
		comment = `Pods, workloads, resources of --validate, and custom resources of Gatehouse. A policy that matches
other resources says so in its status (hint: --validate RESOURCE sends these too).`
	case o.Spec == nil:
		comment = "Pods and workloads, because no configuration was given (hint: --config DIR registers what its policies match)."
	}
	return Document{comment: comment, object: config}
}

// validatingWebhook returns a webhook for policies, without rules and selectors.
func (o *Options) validatingWebhook(name string, policy admissionregistrationv1.FailurePolicyType) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    name,
		ClientConfig:            o.clientConfig(webhooks.ValidatePath),
		FailurePolicy:           &policy,
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(validateTimeout)),
		AdmissionReviewVersions: []string{"v1"},
		MatchConditions:         ownConditions(),
	}
}
