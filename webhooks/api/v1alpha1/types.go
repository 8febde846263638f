package v1alpha1

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The annotations that Gatehouse reads from and writes to pods, and reads from
// namespaces.
const (
	// InjectAnnotation on a pod is the pod's word on injection: "true" asks
	// for every profile that matches, "false" declines all of them, and a list
	// such as "mesh,-logs" asks for the profiles that it names and declines
	// those behind a minus. Any other value, and the name of a profile that
	// does not exist, refuses the pod, because a misspelt wish must not pass
	// silently. On a namespace it is the word for every pod that says nothing
	// itself.
	InjectAnnotation = "sidecar.gatehouse.dev/inject"
	// StatusAnnotation on a pod records which profiles were applied and what
	// each added, as one line of JSON. Gatehouse alone writes it.
	StatusAnnotation = "sidecar.gatehouse.dev/status"
	// ParameterDomain follows the name of a profile and a dot in the prefix of the
	// annotations that set its parameters: "mesh.sidecar.gatehouse.dev/cpu".
	ParameterDomain = "sidecar.gatehouse.dev"
)

// BreakGlassGroup is a group for emergencies: fail-closed registrations do not send
// requests of its members to Gatehouse. Nobody is a permanent member: a cluster
// administrator uses it for one command with kubectl --as-group, which requires the
// right to impersonate it and appears in the audit log. No source of identities may
// return it.
const BreakGlassGroup = "gatehouse.dev:break-glass"

// GroupVersion is the API group and version of every kind in this package.
//
//nolint:gochecknoglobals // the constant that every Kubernetes API package exports under this name
var GroupVersion = schema.GroupVersion{Group: "gatehouse.dev", Version: "v1alpha1"}

// AdmissionPolicy denies, warns about or audits requests to the API server. Its
// spec extends that of a ValidatingAdmissionPolicy. It is cluster-scoped. With
// validationActions it needs no binding.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghap,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Deny",type=string,JSONPath=`.spec.validationActions[?(@=="Deny")]`
// +kubebuilder:printcolumn:name="Warn",type=string,JSONPath=`.spec.validationActions[?(@=="Warn")]`
// +kubebuilder:printcolumn:name="Audit",type=string,JSONPath=`.spec.validationActions[?(@=="Audit")]`
// +kubebuilder:printcolumn:name="Violations",type=integer,JSONPath=`.status.audit.violations`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type AdmissionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines which requests the policy matches and what it requires.
	Spec AdmissionPolicySpec `json:"spec"`

	// Status is reported by Gatehouse in a cluster. It is ignored in a directory.
	// +optional
	Status AdmissionPolicyStatus `json:"status,omitzero"`
}

// AdmissionPolicyList is a list of AdmissionPolicy.
//
// +kubebuilder:object:root=true
type AdmissionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AdmissionPolicy `json:"items"`
}

// AdmissionPolicySpec extends upstream's ValidatingAdmissionPolicySpec. A policy
// has podSecurity, validations, or both.
//
// +kubebuilder:validation:XValidation:rule="has(self.podSecurity) || (has(self.validations) && size(self.validations) > 0) || (has(self.auditAnnotations) && size(self.auditAnnotations) > 0)",message="a policy needs podSecurity, validations or auditAnnotations"
// +kubebuilder:validation:XValidation:rule="has(self.matchConstraints) && has(self.matchConstraints.resourceRules) && size(self.matchConstraints.resourceRules) > 0",message="a policy needs matchConstraints.resourceRules, which select requests",fieldPath=".matchConstraints"
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || self.failurePolicy in ['Fail', 'Ignore']",message="must be Fail or Ignore",fieldPath=".failurePolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.matchConditions) || size(self.matchConditions) <= 64",message="has too many items, allowed are 64",fieldPath=".matchConditions"
// +kubebuilder:validation:XValidation:rule="!has(self.auditAnnotations) || size(self.auditAnnotations) <= 20",message="has too many items, allowed are 20",fieldPath=".auditAnnotations"
// +kubebuilder:validation:XValidation:rule="!has(self.validationActions) || !('Deny' in self.validationActions && 'Warn' in self.validationActions)",message="\"Deny\" and \"Warn\" exclude each other: a denial shows the message already",fieldPath=".validationActions"
type AdmissionPolicySpec struct {
	// ParamKind is the kind of the objects that bindings pass to expressions as params.
	// Without it, there are none.
	// +optional
	ParamKind *admissionregistrationv1.ParamKind `json:"paramKind,omitempty"`
	// MatchConstraints select the requests that the policy checks. Required. With
	// matchPolicy Equivalent, the default, a resource matches in every version. Gatehouse
	// converts the versions of Kubernetes' own kinds; for a custom resource in a version
	// that the rules do not name, failurePolicy decides, unless the API server converts it
	// because the webhook names the version, as "gatehouse manifests --config DIR" writes.
	MatchConstraints *admissionregistrationv1.MatchResources `json:"matchConstraints,omitempty"`
	// Validations are the rules: CEL expressions that must be true.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:XValidation:rule="self.all(v, !has(v.name) || self.exists_one(w, has(w.name) && w.name == v.name))",message="two rules have the same name"
	Validations []Validation `json:"validations,omitempty"`
	// FailurePolicy is Fail or Ignore. With Fail, the default, an expression that
	// cannot be evaluated, or costs more than the API server allows, counts as a
	// violation. A request is denied, whatever the actions are, if params are missing or
	// of a kind that is not served, if the namespace is unknown, or if an expression does
	// not compile. With Ignore, all of these are skipped. If the object cannot be read or
	// the deadline has passed, the failurePolicy of the webhook decides.
	// +optional
	FailurePolicy *admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
	// AuditAnnotations are CEL expressions whose values are added to the audit event.
	// +optional
	// +listType=atomic
	AuditAnnotations []admissionregistrationv1.AuditAnnotation `json:"auditAnnotations,omitempty"`
	// MatchConditions are CEL expressions that must be true for the policy to be
	// evaluated. At most 64.
	// +optional
	// +listType=map
	// +listMapKey=name
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// Variables are CEL expressions that other expressions, except match conditions,
	// use as variables.NAME. An expression can use the variables above it.
	// +optional
	// +listType=map
	// +listMapKey=name
	Variables []admissionregistrationv1.Variable `json:"variables,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	// PodSecurity checks pods against a Pod Security Standard with upstream's
	// checks.
	// +optional
	PodSecurity *PodSecurity `json:"podSecurity,omitempty"`
	// ValidationActions are the consequences of a violation, as in an
	// AdmissionPolicyBinding: Deny, Warn, Audit; Deny and Warn exclude each other.
	// A policy with validationActions applies without a binding, to everything that
	// it matches and without params.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Deny;Warn;Audit
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`
	// WorkloadTemplates is Check or Ignore. With Check, the default, a policy that
	// matches the creation of pods also checks the pod templates of workloads, as
	// the pods that they will create.
	// +optional
	// +kubebuilder:default=Check
	// +kubebuilder:validation:Enum=Check;Ignore
	WorkloadTemplates WorkloadTemplates `json:"workloadTemplates,omitempty"`
	// ExistingViolations is Allow or Deny. With Allow, the default, an object that
	// already violates a rule can be updated if the update does not make it worse: the
	// old object violated the rule in the same way, everything that the rule and the match
	// conditions read is unchanged, and they read neither oldObject nor the authorizer nor
	// the user. A list may lose elements if each of them must satisfy the rule. For Pod
	// Security, and rules that read a securityContext, a host path or a host namespace, the
	// pod's spec must be the same, but for probes' numbers, CPU and memory, pull policies,
	// grace periods, and a securityContext that allows less. With Deny, every violation counts.
	// +optional
	// +kubebuilder:default=Allow
	// +kubebuilder:validation:Enum=Allow;Deny
	ExistingViolations ExistingViolations `json:"existingViolations,omitempty"`
}

// Validation is a rule: a CEL expression, as in upstream's Validation, with a name.
type Validation struct {
	// Name names the rule in messages, as validations[NAME], and in PolicyExceptions.
	// Unlike the index of the rule it stays the same when other rules are inserted. It
	// is unique in the policy. Without a name, the rule is validations[INDEX].
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	admissionregistrationv1.Validation `json:",inline"`
}

// Upstream returns the part of the spec that a ValidatingAdmissionPolicy has, without
// the names of the rules. It shares memory with s.
func (s *AdmissionPolicySpec) Upstream() *admissionregistrationv1.ValidatingAdmissionPolicySpec {
	out := &admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: s.ParamKind, MatchConstraints: s.MatchConstraints, FailurePolicy: s.FailurePolicy,
		AuditAnnotations: s.AuditAnnotations, MatchConditions: s.MatchConditions, Variables: s.Variables,
	}
	for i := range s.Validations {
		out.Validations = append(out.Validations, s.Validations[i].Validation)
	}
	return out
}

// RuleName returns the name of the i-th validation in messages and exceptions.
func (s *AdmissionPolicySpec) RuleName(i int) string {
	if name := s.Validations[i].Name; name != "" {
		return "validations[" + name + "]"
	}
	return IndexedRule(i)
}

// IndexedRule returns the name of the i-th validation of a policy that gives it none.
func IndexedRule(i int) string { return fmt.Sprintf("validations[%d]", i) }

// WorkloadTemplates is whether a policy that matches pods checks pod templates.
type WorkloadTemplates string

// The values of WorkloadTemplates.
const (
	CheckTemplates  WorkloadTemplates = "Check"
	IgnoreTemplates WorkloadTemplates = "Ignore"
)

// ExistingViolations is what happens to the update of an object that already
// violates a policy.
type ExistingViolations string

// The values of ExistingViolations.
const (
	AllowExisting ExistingViolations = "Allow"
	DenyExisting  ExistingViolations = "Deny"
)

// The annotations of a ValidatingAdmissionPolicy for which an AdmissionPolicy has
// fields. Without them, the policy behaves as in the API server.
const (
	// WorkloadTemplatesAnnotation is Check or Ignore.
	WorkloadTemplatesAnnotation = "gatehouse.dev/workload-templates"
	// ExistingViolationsAnnotation is Allow or Deny.
	ExistingViolationsAnnotation = "gatehouse.dev/existing-violations"
)

// ContactAnnotation on a policy or its binding, which goes before, is whom to ask about a denial: a team, a channel or a page, on one line of
// at most 256 bytes. It is appended to the policy's denials.
const ContactAnnotation = "gatehouse.dev/contact"

// What gatehouse compile writes into the documents that it makes for the API server.
const (
	// CompiledFromAnnotation is the kind and name of the source: AdmissionPolicy/images.
	CompiledFromAnnotation = "gatehouse.dev/compiled-from"
	// ManagedByLabel has the value CompileManager.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	CompileManager = "gatehouse-compile"
)

// LintIgnoreAnnotation on a policy, binding or exception is a comma-separated list
// of codes of lint diagnostics to suppress.
const LintIgnoreAnnotation = "gatehouse.dev/lint-ignore"

// PodSecurity names a Pod Security Standard,
// https://kubernetes.io/docs/concepts/security/pod-security-standards/.
type PodSecurity struct {
	// Level is privileged, baseline or restricted.
	// +kubebuilder:validation:Enum=privileged;baseline;restricted
	Level string `json:"level"`
	// Version is the Kubernetes minor version whose rules apply: latest or
	// v1.NN. The default is latest.
	// +optional
	// +kubebuilder:default=latest
	// +kubebuilder:validation:Pattern=`^(latest|v1\.(0|[1-9][0-9]*))$`
	Version string `json:"version,omitempty"`
	// NamespaceLabels is Ignore, the default, or Honor. With Honor, the
	// pod-security.kubernetes.io labels of the namespace apply: enforce replaces
	// level and version, and warn and audit add warnings and audit annotations.
	// +optional
	// +kubebuilder:default=Ignore
	// +kubebuilder:validation:Enum=Ignore;Honor
	NamespaceLabels NamespaceLabels `json:"namespaceLabels,omitempty"`
}

// NamespaceLabels is whether the Pod Security labels of the namespace apply.
type NamespaceLabels string

// The values of NamespaceLabels.
const (
	IgnoreNamespaceLabels NamespaceLabels = "Ignore"
	HonorNamespaceLabels  NamespaceLabels = "Honor"
)

// AdmissionPolicyBinding binds an AdmissionPolicy, as a
// ValidatingAdmissionPolicyBinding binds a ValidatingAdmissionPolicy. It is
// cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghapb,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policyName`
// +kubebuilder:printcolumn:name="Deny",type=string,JSONPath=`.spec.validationActions[?(@=="Deny")]`
// +kubebuilder:printcolumn:name="Warn",type=string,JSONPath=`.spec.validationActions[?(@=="Warn")]`
// +kubebuilder:printcolumn:name="Audit",type=string,JSONPath=`.spec.validationActions[?(@=="Audit")]`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type AdmissionPolicyBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is upstream's ValidatingAdmissionPolicyBindingSpec. policyName is the
	// name of an AdmissionPolicy.
	// +kubebuilder:validation:XValidation:rule="has(self.policyName) && size(self.policyName) > 0",message="is required: name the AdmissionPolicy that is bound",fieldPath=".policyName"
	// +kubebuilder:validation:XValidation:rule="has(self.validationActions) && size(self.validationActions) > 0",message="is required: say what a violation leads to, for example [\"Deny\"]",fieldPath=".validationActions"
	// +kubebuilder:validation:XValidation:rule="!has(self.validationActions) || size(self.validationActions) == ('Deny' in self.validationActions ? 1 : 0) + ('Warn' in self.validationActions ? 1 : 0) + ('Audit' in self.validationActions ? 1 : 0)",message="must be of Deny, Warn and Audit, each at most once",fieldPath=".validationActions"
	// +kubebuilder:validation:XValidation:rule="!has(self.validationActions) || !('Deny' in self.validationActions && 'Warn' in self.validationActions)",message="\"Deny\" and \"Warn\" exclude each other: a denial shows the message already",fieldPath=".validationActions"
	// +kubebuilder:validation:XValidation:rule="!has(self.paramRef) || (has(self.paramRef.name) && size(self.paramRef.name) > 0) != has(self.paramRef.selector)",message="exactly one of name and selector is required: an empty selector selects every param",fieldPath=".paramRef"
	// +kubebuilder:validation:XValidation:rule="!has(self.paramRef) || (has(self.paramRef.parameterNotFoundAction) && self.paramRef.parameterNotFoundAction in ['Allow', 'Deny'])",message="parameterNotFoundAction must be Allow or Deny: \"Deny\" refuses requests while there is no param, \"Allow\" skips the binding",fieldPath=".paramRef"
	Spec admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec `json:"spec"`

	// Status is reported by Gatehouse in a cluster. It is ignored in a directory.
	// +optional
	Status AdmissionPolicyBindingStatus `json:"status,omitzero"`
}

// AdmissionPolicyBindingList is a list of AdmissionPolicyBinding.
//
// +kubebuilder:object:root=true
type AdmissionPolicyBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AdmissionPolicyBinding `json:"items"`
}

// PolicyException exempts objects from policies, with a reason and an optional
// expiry. It is namespaced. PolicyConfiguration defines the namespaces in which
// exceptions take effect.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ghpe,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="For",type=string,priority=1,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type PolicyException struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines which objects are exempt from which policies.
	Spec PolicyExceptionSpec `json:"spec"`

	// Status is reported by Gatehouse in a cluster. It is ignored in a directory.
	// +optional
	Status PolicyExceptionStatus `json:"status,omitzero"`
}

// PolicyExceptionList is a list of PolicyException.
//
// +kubebuilder:object:root=true
type PolicyExceptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PolicyException `json:"items"`
}

// PolicyExceptionSpec defines which objects are exempt from which policies.
type PolicyExceptionSpec struct {
	// Policies are the policies whose violations are allowed. At least one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Policies []ExceptedPolicy `json:"policies"`
	// Match selects the exempt objects. All fields that are set must match; at
	// least one must be set.
	// +kubebuilder:validation:XValidation:rule="(has(self.namespaces) && size(self.namespaces) > 0) || (has(self.names) && size(self.names) > 0) || has(self.namespaceSelector) || has(self.objectSelector) || (has(self.matchConditions) && size(self.matchConditions) > 0) || has(self.containers)",message="is empty: an exception must select objects; to disable a policy, delete its binding"
	Match ExceptionMatch `json:"match"`
	// Reason explains the exception to readers of the audit log. Required.
	// +kubebuilder:validation:XValidation:rule="size(self.trim()) > 0",message="is required: explain the exception to readers of the audit log",reason=FieldValueRequired
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// ExpiresAt is the time at which the exception ends.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// ExceptedPolicy names a policy and, optionally, rules of it.
type ExceptedPolicy struct {
	// Kind is ValidatingAdmissionPolicy or AdmissionPolicy. Empty selects policies
	// of both kinds.
	// +optional
	// +kubebuilder:validation:Enum=ValidatingAdmissionPolicy;AdmissionPolicy
	Kind string `json:"kind,omitempty"`
	// Name is the policy's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Rules are rules of the policy, as in messages: "validations[memory-limit]",
	// "podSecurity.hostPorts". A rule without a name is named by its index:
	// "validations[2]". Empty selects all rules.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Rules []string `json:"rules,omitempty"`
}

// ExceptionMatch selects the exempt objects.
type ExceptionMatch struct {
	// Namespaces are names of namespaces. An exception that is limited to its own
	// namespace can name only that one.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Namespaces []string `json:"namespaces,omitempty"`
	// Names are names of objects. A "*" at the end matches any suffix, as names of
	// pods need: "legacy-*". For an object without a name, patterns with a "*"
	// match its generateName. For a pod template, the name is the workload's.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^*]*[*]?$`
	Names []string `json:"names,omitempty"`
	// NamespaceSelector selects namespaces by labels. It does not select
	// cluster-scoped objects.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || size(self.matchLabels) <= 64",message="has too many labels, allowed are 64",fieldPath=".matchLabels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 64",message="has too many items, allowed are 64",fieldPath=".matchExpressions"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector selects objects by labels. For an update, both the new and the
	// old object must match.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || size(self.matchLabels) <= 64",message="has too many labels, allowed are 64",fieldPath=".matchLabels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 64",message="has too many items, allowed are 64",fieldPath=".matchExpressions"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
	// MatchConditions are CEL expressions over object, oldObject, request and
	// namespaceObject. All must be true; an expression that fails is not true.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.name) <= 317 && size(c.expression) <= 10240)",message="a name may have 317 characters, and an expression 10240"
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
	// Containers limits the exception to some containers of pods and of pod templates, with sidecars that Gatehouse
	// injects. A violation is exempt if the rule holds for the same object without them, so the exception never covers a
	// field outside of containers. A rule that reads both containers and other fields must ask each container by itself,
	// as all and exists do: whether one that counts containers would hold is not known.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.names) && size(self.names) > 0) || (has(self.images) && size(self.images) > 0)",message="is empty: name containers or images"
	Containers *ExceptionContainers `json:"containers,omitempty"`
}

// ExceptionContainers selects containers, init containers and ephemeral containers. If both fields are set, both must match
// a container.
type ExceptionContainers struct {
	// Names are names of containers. A "*" at the end matches any suffix. The author of a pod chooses the names: use images
	// where that matters.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[^*]*[*]?$`
	Names []string `json:"names,omitempty"`
	// Images are patterns of images: "registry.example/legacy/*". An image is completed as by Docker and containerd: nginx is
	// docker.io/library/nginx:latest. Without a tag and a digest, a pattern matches every version; one with a tag matches no
	// image that names a digest, which alone decides what runs. A "*" in the path or the tag matches any characters but "/",
	// "/**" at the end of the path everything below, and "*." at the beginning of the registry one name without a dot.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	Images []string `json:"images,omitempty"`
}

// PolicyBaseline allows the violations that objects of a cluster had when it was
// written, until it expires, so that a strict policy can deny from its first day. It is
// namespaced, and takes effect in the namespaces in which exceptions do.
//
// An entry allows one object to violate one rule, as long as everything that the rule
// reads in the object stays as it is. It covers the pods that controllers make of a
// workload, too. "gatehouse audit --baseline" writes baselines, in several objects if
// there are many entries.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ghpbl,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Entries",type=integer,JSONPath=`.status.entries`
// +kubebuilder:printcolumn:name="For",type=string,priority=1,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type PolicyBaseline struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec lists the violations that are allowed.
	Spec PolicyBaselineSpec `json:"spec"`

	// Status is reported by Gatehouse in a cluster. It is ignored in a directory.
	// +optional
	Status PolicyBaselineStatus `json:"status,omitzero"`
}

// PolicyBaselineList is a list of PolicyBaseline.
//
// +kubebuilder:object:root=true
type PolicyBaselineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PolicyBaseline `json:"items"`
}

// PolicyBaselineSpec lists violations that are allowed.
type PolicyBaselineSpec struct {
	// Reason explains the baseline to readers of the audit log. Required.
	// +kubebuilder:validation:XValidation:rule="size(self.trim()) > 0",message="is required: explain the baseline to readers of the audit log",reason=FieldValueRequired
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// ExpiresAt is the time at which the baseline ends: from then on, every violation
	// counts. Required.
	ExpiresAt metav1.Time `json:"expiresAt"`
	// Rules are the rules of which violations are allowed. All of them together have at
	// most 1,000 entries.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Rules []BaselineRule `json:"rules,omitempty"`
	// NotCovered are rules that were violated when the baseline was written, and whose
	// violations it cannot allow, with the reasons. It is for readers, and has no effect.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	NotCovered []UncoveredRule `json:"notCovered,omitempty"`
}

// BaselineRule lists the objects that may violate a rule.
type BaselineRule struct {
	// Kind is that of the policy: AdmissionPolicy or ValidatingAdmissionPolicy.
	// +kubebuilder:validation:Enum=ValidatingAdmissionPolicy;AdmissionPolicy
	Kind string `json:"kind"`
	// Policy is the policy's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy"`
	// Rule is a rule of the policy, as in messages: "validations[memory-limit]",
	// "podSecurity.hostPorts".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Rule string `json:"rule"`
	// Entries are the violations, as "NAMESPACE/KIND/NAME@sha256:DIGITS", and
	// "KIND/NAME@sha256:DIGITS" for cluster-scoped objects. For pods that a controller
	// makes, kind and name are those of the workload. The 64 digits are the SHA-256 of the
	// rule, of the object's kind, namespace and name, and of all values that the rule reads
	// in the object. They alone count; what stands before them is for readers.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=640
	// +kubebuilder:validation:items:Pattern=`^(.+@)?sha256:[0-9a-f]{64}$`
	Entries []string `json:"entries"`
}

// UncoveredRule is a rule that a baseline cannot cover.
type UncoveredRule struct {
	// Kind is that of the policy: AdmissionPolicy or ValidatingAdmissionPolicy.
	Kind string `json:"kind"`
	// Policy is the policy's name.
	Policy string `json:"policy"`
	// Rule is a rule of the policy, as in messages.
	// +optional
	Rule string `json:"rule,omitempty"`
	// Reason says why its violations cannot be allowed by a baseline.
	Reason string `json:"reason"`
	// Violations is how many objects violated the rule.
	// +optional
	Violations int64 `json:"violations,omitempty"`
}

// PolicyConfiguration applies to all policies. It is a document of the directory,
// at most one, and not a resource of the cluster.
type PolicyConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// CELCompatibilityVersion is the Kubernetes version, such as "1.36", whose CEL
	// functions and rules apply to expressions of policies. The default is "1.36". It
	// needs quotes: YAML reads 1.30 as the number 1.3.
	CELCompatibilityVersion string `json:"celCompatibilityVersion,omitempty"`
	// RequestCostBudget is the maximum CEL cost of all policies together for one
	// request. Evaluations beyond it cannot be decided. The default is 100,000,000,
	// as much as the API server allows for ten bindings.
	RequestCostBudget *int64 `json:"requestCostBudget,omitempty"`
	// Exceptions defines the namespaces in which exceptions and baselines take effect.
	Exceptions ExceptionRules `json:"exceptions,omitzero"`
	// Workloads are further kinds that have a pod template.
	Workloads []WorkloadKind `json:"workloads,omitempty"`
}

// ExceptionRules define the namespaces in which exceptions and baselines take effect. They
// apply to every API version of them, however these were created.
type ExceptionRules struct {
	// Namespaces are those whose exceptions and baselines may be about any object. The
	// default is gatehouse-system.
	Namespaces []string `json:"namespaces,omitempty"`
	// OwnNamespaces are those whose exceptions and baselines may be about objects of the
	// same namespace. "*" means every namespace. The default is none.
	OwnNamespaces []string `json:"ownNamespaces,omitempty"`
	// RequireExpiry ignores exceptions without expiresAt.
	RequireExpiry bool `json:"requireExpiry,omitempty"`
}

// WorkloadKind is a kind whose objects have a pod template.
type WorkloadKind struct {
	// Group is the API group, such as "argoproj.io".
	Group string `json:"group"`
	// Kind is the kind, such as "Rollout".
	Kind string `json:"kind"`
	// Resource is the plural, such as "rollouts".
	Resource string `json:"resource"`
	// Template is the path of the pod template, such as "spec.template".
	Template string `json:"template"`
}
