package config

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// The kinds that mean something to Gatehouse. Every other kind is context.
const (
	sidecarProfile      = "SidecarProfile"
	admissionPolicy     = "AdmissionPolicy"
	admissionBinding    = "AdmissionPolicyBinding"
	policyException     = "PolicyException"
	policyBaseline      = "PolicyBaseline"
	policyConfiguration = "PolicyConfiguration"
	recordingConfig     = "RecordingConfiguration"
	accessToken         = "AccessToken"
	tokenRevocation     = "TokenRevocation"
	grant               = "Grant"
	// authenticationConfiguration is the name of a kind of ours and of one of
	// upstream's.
	authenticationConfiguration = "AuthenticationConfiguration"
	upstreamPolicy              = "ValidatingAdmissionPolicy"
	upstreamBinding             = "ValidatingAdmissionPolicyBinding"
	mutatingPolicy              = "MutatingAdmissionPolicy"
	mutatingBinding             = "MutatingAdmissionPolicyBinding"
	namespaceKind               = "Namespace"
)

// testKind is the kind of tests beside policies. The test runner reads them, and this
// package skips them.
const testKind = "Test"

// typedKind is a kind that means something to Gatehouse: the version in which it is
// read, and a new object of its type, nil for a kind that is read in another way.
type typedKind struct {
	version schema.GroupVersion
	new     func() any
	// older are the names of versions with the same fields, which are read too.
	older []string
}

// reads reports whether objects of the kind are read in a version.
func (k *typedKind) reads(version schema.GroupVersion) bool {
	return k.version == version || k.version.Group == version.Group && slices.Contains(k.older, version.Version)
}

//nolint:gochecknoglobals // a constant table
var typedKinds = map[string]typedKind{
	sidecarProfile:      {version: v1alpha1.GroupVersion, new: func() any { return new(v1alpha1.SidecarProfile) }},
	admissionPolicy:     {version: v1alpha1.GroupVersion, new: func() any { return new(v1alpha1.AdmissionPolicy) }},
	admissionBinding:    {version: v1alpha1.GroupVersion, new: func() any { return new(v1alpha1.AdmissionPolicyBinding) }},
	policyException:     {version: v1alpha1.GroupVersion, new: func() any { return new(v1alpha1.PolicyException) }},
	policyBaseline:      {version: v1alpha1.GroupVersion, new: func() any { return new(v1alpha1.PolicyBaseline) }},
	accessToken:         {version: v1alpha1.GroupVersion, new: func() any { return new(v1alpha1.AccessToken) }},
	tokenRevocation:     {version: v1alpha1.GroupVersion, new: func() any { return new(v1alpha1.TokenRevocation) }},
	grant:               {version: v1alpha1.GroupVersion, new: func() any { return new(v1alpha1.Grant) }},
	policyConfiguration: {version: v1alpha1.GroupVersion},
	recordingConfig:     {version: v1alpha1.GroupVersion},
	testKind:            {version: v1alpha1.GroupVersion},
	upstreamPolicy: {version: admissionregistrationv1.SchemeGroupVersion, new: func() any {
		return new(admissionregistrationv1.ValidatingAdmissionPolicy)
	}},
	upstreamBinding: {version: admissionregistrationv1.SchemeGroupVersion, new: func() any {
		return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	}},
	mutatingPolicy: {
		admissionregistrationv1.SchemeGroupVersion,
		func() any { return new(admissionregistrationv1.MutatingAdmissionPolicy) },
		[]string{"v1beta1", oldestVersion},
	},
	mutatingBinding: {
		admissionregistrationv1.SchemeGroupVersion,
		func() any { return new(admissionregistrationv1.MutatingAdmissionPolicyBinding) },
		[]string{"v1beta1", oldestVersion},
	},
	namespaceKind: {version: corev1.SchemeGroupVersion, new: func() any { return new(corev1.Namespace) }},
}

// oldestVersion is the version of the API server's own policies in which parameterNotFoundAction has a default.
const oldestVersion = "v1alpha1"

// upgrade fills in the default that a field has in an older version alone.
func upgrade(from schema.GroupVersionKind, value any) {
	if b, ok := value.(*admissionregistrationv1.MutatingAdmissionPolicyBinding); ok && from.Version == oldestVersion {
		if ref := b.Spec.ParamRef; ref != nil && ref.ParameterNotFoundAction == nil {
			ref.ParameterNotFoundAction = new(admissionregistrationv1.DenyAction)
		}
	}
}

// isForeign reports whether a kind is one of another project with the name of a kind
// that is read: in its group it is context.
func isForeign(gvk schema.GroupVersionKind) bool {
	switch gvk.Kind {
	case namespaceKind, policyException, testKind:
		return gvk.Group != typedKinds[gvk.Kind].version.Group
	default:
		return false
	}
}

// isNamespaced reports whether a kind of ours is in namespaces. All others are cluster-scoped.
func isNamespaced(kind string) bool { return kind == policyException || kind == policyBaseline }

// isTyped reports whether the kind means something to Gatehouse in this version.
func isTyped(gvk schema.GroupVersionKind) bool {
	kind, ok := typedKinds[gvk.Kind]
	return ok && kind.reads(gvk.GroupVersion())
}

// isKnown reports whether objects of the kind are read. A kind of ours that does not
// exist, or one of another version, is an error: a policy with a typing error must not be
// skipped as context.
func (o *object) isKnown(gvk schema.GroupVersionKind) bool {
	kind, ok := typedKinds[gvk.Kind]
	accepted := kind.version
	if gvk.GroupKind() == singleton(authenticationConfiguration) {
		accepted, ok = v1alpha1.GroupVersion, true
	}
	if !ok && gvk.Group == rbacv1.GroupName && isRBAC(gvk.Kind) {
		accepted, ok = rbacv1.SchemeGroupVersion, true
	}
	if ok {
		if gvk.GroupVersion() == accepted || kind.reads(gvk.GroupVersion()) || isForeign(gvk) {
			return true
		}
		o.report(problem{
			field:   "apiVersion",
			message: fmt.Sprintf("%q is not a supported version of %s", strict.Cut(gvk.GroupVersion().String(), 60), gvk.Kind),
			hint:    "write " + accepted.String(),
		})
		return false
	}
	var names []string
	switch gvk.Group {
	case v1alpha1.GroupVersion.Group:
		names = []string{
			accessToken, admissionPolicy, admissionBinding, authenticationConfiguration, grant, policyBaseline, policyConfiguration, policyException,
			recordingConfig, sidecarProfile, testKind, tokenRevocation,
		}
	case admissionregistrationv1.GroupName:
		names = []string{upstreamPolicy, upstreamBinding, mutatingPolicy, mutatingBinding}
	case apiserver.GroupName:
		names = []string{authenticationConfiguration}
	default:
		return true
	}
	hint := fmt.Sprintf("supported kinds are %s", strings.Join(names, ", "))
	if near, isNear := suggestKind(gvk, names); isNear {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if gvk.Group == admissionregistrationv1.GroupName {
		return true
	}
	if isUpstreamKind(gvk) {
		return true
	}
	o.report(problem{field: "kind", message: fmt.Sprintf("%q is not a kind of %s", strict.Cut(gvk.Kind, 60), gvk.Group), hint: hint})
	return false
}

// isUpstreamKind reports whether a kind is another one of the group
// admissionregistration.k8s.io.
func isUpstreamKind(gvk schema.GroupVersionKind) bool {
	switch gvk.Kind {
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		return gvk.Group == admissionregistrationv1.GroupName
	default:
		return false
	}
}

// suggestKind returns the kind that was most likely meant by an unknown one. Of our own
// kinds a part of the name is enough if no other has it, as of PolicyConfig.
func suggestKind(gvk schema.GroupVersionKind, names []string) (string, bool) {
	if near, isNear := diagnostic.Nearest(gvk.Kind, names...); isNear {
		return near, true
	}
	const least = 4 // characters: fewer are in too many names
	if gvk.Group == admissionregistrationv1.GroupName || len(gvk.Kind) < least {
		return "", false
	}
	found := ""
	for _, name := range names {
		if !strings.Contains(strings.ToLower(name), strings.ToLower(gvk.Kind)) {
			continue
		}
		if found != "" {
			return "", false
		}
		found = name
	}
	return found, found != ""
}

// foreignEngine returns the policy engine that evaluates a kind, "" for one that is no
// policy, and what to use instead.
func foreignEngine(gvk schema.GroupVersionKind) (engine, hint string) {
	if gvk.Kind == policyException {
		return "", ""
	}
	const policies = "write it as a ValidatingAdmissionPolicy or an AdmissionPolicy"
	switch gvk.Group {
	case "kyverno.io", "policies.kyverno.io":
		return "Kyverno", policies
	case "templates.gatekeeper.sh", "constraints.gatekeeper.sh", "mutations.gatekeeper.sh":
		return "Gatekeeper", policies
	case "policies.kubewarden.io":
		return "Kubewarden", policies
	}
	return "", ""
}

// warnOfKind warns of a policy of another engine, and of a kind that differs from one of
// Kubernetes by its case or a letter: nothing finds the object. Other groups have any kinds.
func (o *object) warnOfKind(gvk schema.GroupVersionKind) {
	if engine, hint := foreignEngine(gvk); engine != "" {
		o.foreign[gvk] = append(o.foreign[gvk], o.warning(problem{field: "kind", message: fmt.Sprintf("Gatehouse does not evaluate it: it is a policy of %s", engine), hint: hint}))
		return
	}
	if scheme.Scheme.Recognizes(gvk) {
		return
	}
	var names []string
	for name, t := range scheme.Scheme.KnownTypes(gvk.GroupVersion()) {
		// What every group has, such as ListOptions, is no object.
		if !strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") && !strings.HasSuffix(name, "List") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if near, isNear := diagnostic.Nearest(gvk.Kind, names...); isNear {
		o.warn(problem{
			field: "kind", message: fmt.Sprintf("%q is not a kind of %s, so nothing looks the object up", strict.Cut(gvk.Kind, 60), gvk.GroupVersion()),
			hint: fmt.Sprintf("did you mean %q?", near),
		})
	}
}

// foreignPolicies returns the warnings about policies of other engines. What is a param of a policy here, as the constraint of a converted
// policy is, is none.
func (d *decoder) foreignPolicies() (found diagnostic.List) {
	if len(d.foreign) == 0 {
		return nil
	}
	var kinds []*admissionregistrationv1.ParamKind
	for _, p := range d.config.Policy.All() {
		kinds = append(kinds, p.Spec.ParamKind)
	}
	for i := range d.config.Mutation.Policies {
		kinds = append(kinds, d.config.Mutation.Policies[i].Spec.ParamKind)
	}
	for _, kind := range kinds {
		if kind != nil {
			delete(d.foreign, schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
		}
	}
	for _, list := range d.foreign {
		found = append(found, list...)
	}
	return found
}
