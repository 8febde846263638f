package v1alpha1

import (
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
	// ParameterDomain is what follows the name of a profile, and a dot is
	// between them, in the prefix of the annotations that set its parameters:
	// "mesh.sidecar.gatehouse.dev/cpu".
	ParameterDomain = "sidecar.gatehouse.dev"
)

// BreakGlassGroup is the group whose members' requests are not sent to Gatehouse by
// the registrations that fail closed. Nobody is in it: a cluster administrator says
// so for one command, kubectl --as-group, which takes the right to impersonate it
// and is in the audit log. No source of identities may give it.
const BreakGlassGroup = "gatehouse.dev:break-glass"

// GroupVersion is the API group and version of every kind in this package.
//
//nolint:gochecknoglobals // the constant that every Kubernetes API package exports under this name
var GroupVersion = schema.GroupVersion{Group: "gatehouse.dev", Version: "v1alpha1"}

// AdmissionPolicy refuses, warns about or notes what the API server is asked
// to do. Its spec is that of a ValidatingAdmissionPolicy and more. It is
// cluster-scoped, and with validationActions of its own it needs no binding.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghap,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="gatehouse.dev/schema-revision=1"
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
// +kubebuilder:printcolumn:name="Actions",type=string,JSONPath=`.spec.validationActions`
// +kubebuilder:printcolumn:name="Evaluations",type=integer,JSONPath=`.status.requests.evaluations`
// +kubebuilder:printcolumn:name="Refusals",type=integer,JSONPath=`.status.requests.refusals`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type AdmissionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what the policy is about and what it asks.
	Spec AdmissionPolicySpec `json:"spec"`

	// Status is what Gatehouse says of the object in a cluster. In a directory it is
	// not looked at.
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

// AdmissionPolicySpec is upstream's ValidatingAdmissionPolicySpec with what
// Gatehouse adds. A policy has podSecurity, or validations, or both.
//
// +kubebuilder:validation:XValidation:rule="has(self.podSecurity) || (has(self.validations) && size(self.validations) > 0) || (has(self.auditAnnotations) && size(self.auditAnnotations) > 0)",message="a policy needs podSecurity, validations or auditAnnotations"
// +kubebuilder:validation:XValidation:rule="has(self.matchConstraints) && has(self.matchConstraints.resourceRules) && size(self.matchConstraints.resourceRules) > 0",message="a policy needs matchConstraints.resourceRules: say which requests it is about",fieldPath=".matchConstraints"
// +kubebuilder:validation:XValidation:rule="!has(self.failurePolicy) || self.failurePolicy in ['Fail', 'Ignore']",message="must be Fail or Ignore",fieldPath=".failurePolicy"
// +kubebuilder:validation:XValidation:rule="!has(self.matchConditions) || size(self.matchConditions) <= 64",message="has too many items, allowed are 64",fieldPath=".matchConditions"
// +kubebuilder:validation:XValidation:rule="!has(self.auditAnnotations) || size(self.auditAnnotations) <= 20",message="has too many items, allowed are 20",fieldPath=".auditAnnotations"
// +kubebuilder:validation:XValidation:rule="!has(self.validationActions) || !('Deny' in self.validationActions && 'Warn' in self.validationActions)",message="\"Deny\" and \"Warn\" exclude each other: a denial shows the message already",fieldPath=".validationActions"
type AdmissionPolicySpec struct {
	admissionregistrationv1.ValidatingAdmissionPolicySpec `json:",inline"`

	// PodSecurity checks pods against a Pod Security Standard, natively.
	// +optional
	PodSecurity *PodSecurity `json:"podSecurity,omitempty"`
	// ValidationActions say what a violation leads to, as in an
	// AdmissionPolicyBinding: Deny, Warn, Audit; Deny and Warn exclude each
	// other. A policy that has them is in force without a binding, for
	// everything that it matches and without params.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Deny;Warn;Audit
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`
	// WorkloadTemplates is Check or Ignore. With Check, the default, a policy
	// that matches the creation of pods checks the pod templates of workloads
	// too, as the pods that they will become.
	// +optional
	// +kubebuilder:default=Check
	// +kubebuilder:validation:Enum=Check;Ignore
	WorkloadTemplates WorkloadTemplates `json:"workloadTemplates,omitempty"`
	// ExistingViolations is Allow or Deny. With Allow, the default, an object
	// that violates a rule already may be updated if the update does not make
	// it worse. With Deny every violation counts.
	// +optional
	// +kubebuilder:default=Allow
	// +kubebuilder:validation:Enum=Allow;Deny
	ExistingViolations ExistingViolations `json:"existingViolations,omitempty"`
}

// WorkloadTemplates says whether a policy about pods checks pod templates.
type WorkloadTemplates string

// The values of WorkloadTemplates.
const (
	CheckTemplates  WorkloadTemplates = "Check"
	IgnoreTemplates WorkloadTemplates = "Ignore"
)

// ExistingViolations says what becomes of the update of an object that violated
// a policy before.
type ExistingViolations string

// The values of ExistingViolations.
const (
	AllowExisting ExistingViolations = "Allow"
	DenyExisting  ExistingViolations = "Deny"
)

// The annotations by which a ValidatingAdmissionPolicy, whose spec is upstream's,
// asks for what an AdmissionPolicy has fields for. Without them it behaves as it
// does in the API server.
const (
	// WorkloadTemplatesAnnotation is Check or Ignore.
	WorkloadTemplatesAnnotation = "gatehouse.dev/workload-templates"
	// ExistingViolationsAnnotation is Allow or Deny.
	ExistingViolationsAnnotation = "gatehouse.dev/existing-violations"
)

// LintIgnoreAnnotation on a policy, binding or exception lists the codes, with commas between them, of
// findings that lint is not to report about it.
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
	// NamespaceLabels is Ignore, the default, or Honor. With Honor the
	// namespace's own pod-security.kubernetes.io labels decide: enforce takes
	// the place of level and version, and what the namespace warns about and
	// audits is a warning and an audit annotation.
	// +optional
	// +kubebuilder:default=Ignore
	// +kubebuilder:validation:Enum=Ignore;Honor
	NamespaceLabels NamespaceLabels `json:"namespaceLabels,omitempty"`
}

// NamespaceLabels says whether a namespace's Pod Security labels count.
type NamespaceLabels string

// The values of NamespaceLabels.
const (
	IgnoreNamespaceLabels NamespaceLabels = "Ignore"
	HonorNamespaceLabels  NamespaceLabels = "Honor"
)

// AdmissionPolicyBinding puts an AdmissionPolicy in force, as a
// ValidatingAdmissionPolicyBinding does with a ValidatingAdmissionPolicy. It is
// cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ghapb,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="gatehouse.dev/schema-revision=1"
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policyName`
// +kubebuilder:printcolumn:name="Actions",type=string,JSONPath=`.spec.validationActions`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type AdmissionPolicyBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is upstream's ValidatingAdmissionPolicyBindingSpec. The policy that it names is
	// an AdmissionPolicy.
	// +kubebuilder:validation:XValidation:rule="has(self.policyName) && size(self.policyName) > 0",message="is required: name the AdmissionPolicy that is bound",fieldPath=".policyName"
	// +kubebuilder:validation:XValidation:rule="has(self.validationActions) && size(self.validationActions) > 0",message="is required: say what a violation leads to, for example [\"Deny\"]",fieldPath=".validationActions"
	// +kubebuilder:validation:XValidation:rule="!has(self.validationActions) || size(self.validationActions) == ('Deny' in self.validationActions ? 1 : 0) + ('Warn' in self.validationActions ? 1 : 0) + ('Audit' in self.validationActions ? 1 : 0)",message="must be of Deny, Warn and Audit, each at most once",fieldPath=".validationActions"
	// +kubebuilder:validation:XValidation:rule="!has(self.validationActions) || !('Deny' in self.validationActions && 'Warn' in self.validationActions)",message="\"Deny\" and \"Warn\" exclude each other: a denial shows the message already",fieldPath=".validationActions"
	// +kubebuilder:validation:XValidation:rule="!has(self.paramRef) || (has(self.paramRef.name) && size(self.paramRef.name) > 0) != has(self.paramRef.selector)",message="exactly one of name and selector is required: an empty selector selects every param",fieldPath=".paramRef"
	// +kubebuilder:validation:XValidation:rule="!has(self.paramRef) || (has(self.paramRef.parameterNotFoundAction) && self.paramRef.parameterNotFoundAction in ['Allow', 'Deny'])",message="parameterNotFoundAction must be Allow or Deny: \"Deny\" refuses requests while there is no param, \"Allow\" skips the binding",fieldPath=".paramRef"
	Spec admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec `json:"spec"`

	// Status is what Gatehouse says of the object in a cluster. In a directory it is
	// not looked at.
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

// PolicyException lets objects violate policies, for a reason and, if it says
// so, until a moment. It is namespaced. Where one may be written is the matter
// of PolicyConfiguration: an exception in any other namespace does nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ghpe,categories=gatehouse
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="gatehouse.dev/schema-revision=1"
// +kubebuilder:metadata:labels="app.kubernetes.io/name=gatehouse"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
// +kubebuilder:printcolumn:name="For",type=string,priority=1,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Compiled")].message`
// +kubebuilder:printcolumn:name="Degraded because",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Degraded")].message`
type PolicyException struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says what is excepted from what.
	Spec PolicyExceptionSpec `json:"spec"`

	// Status is what Gatehouse says of the object in a cluster. In a directory it is
	// not looked at.
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

// PolicyExceptionSpec says what is excepted from what.
type PolicyExceptionSpec struct {
	// Policies are those whose violations are let pass. At least one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Policies []ExceptedPolicy `json:"policies"`
	// Match says which objects are excepted. Every field that is given must
	// match; at least one must be given.
	// +kubebuilder:validation:XValidation:rule="(has(self.namespaces) && size(self.namespaces) > 0) || (has(self.names) && size(self.names) > 0) || has(self.namespaceSelector) || has(self.objectSelector) || (has(self.matchConditions) && size(self.matchConditions) > 0)",message="is empty: an exception must say what it is about; to drop a policy, delete its binding"
	Match ExceptionMatch `json:"match"`
	// Reason says why, for who reads the audit log. Required.
	// +kubebuilder:validation:XValidation:rule="size(self.trim()) > 0",message="is required: say why, for who reads the audit log",reason=FieldValueRequired
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// ExpiresAt is the moment from which the exception does nothing.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// ExceptedPolicy names a policy and, if the exception is not from all of it,
// rules of it.
type ExceptedPolicy struct {
	// Kind is ValidatingAdmissionPolicy or AdmissionPolicy. Without it policies
	// of both kinds are meant.
	// +optional
	// +kubebuilder:validation:Enum=ValidatingAdmissionPolicy;AdmissionPolicy
	Kind string `json:"kind,omitempty"`
	// Name is the policy's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Rules are the rules of the policy that are meant, as answers name them:
	// "validations[2]", "podSecurity.hostPorts". Without any, all are.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Rules []string `json:"rules,omitempty"`
}

// ExceptionMatch says which objects are excepted.
type ExceptionMatch struct {
	// Namespaces are names of namespaces. An exception that holds in its own
	// namespace alone can name no other.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Namespaces []string `json:"namespaces,omitempty"`
	// Names are names of objects. A "*" at the end stands for any rest, as the
	// names of pods need: "legacy-*". Before an object has a name, its
	// generateName counts, for patterns with a "*". Of a pod template it is the
	// workload's name.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^*]*[*]?$`
	Names []string `json:"names,omitempty"`
	// NamespaceSelector selects namespaces by labels. It selects nothing that
	// is not in a namespace.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || size(self.matchLabels) <= 64",message="has too many labels, allowed are 64",fieldPath=".matchLabels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 64",message="has too many items, allowed are 64",fieldPath=".matchExpressions"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector selects objects by labels: of an update the new object and
	// the old one must both be selected.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || size(self.matchLabels) <= 64",message="has too many labels, allowed are 64",fieldPath=".matchLabels"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || size(self.matchExpressions) <= 64",message="has too many items, allowed are 64",fieldPath=".matchExpressions"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
	// MatchConditions are CEL expressions that must all be true, over object,
	// oldObject, request and namespaceObject. One that fails is not true.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(c, size(c.name) <= 317 && size(c.expression) <= 10240)",message="a name may have 317 characters, and an expression 10240"
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
}

// PolicyConfiguration is what holds for all policies. It is a document of the
// directory, one at most, and not a resource of the cluster.
type PolicyConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// CELCompatibilityVersion is the Kubernetes version, such as "1.36", whose
	// functions and rules of CEL hold for expressions of policies.
	CELCompatibilityVersion string `json:"celCompatibilityVersion,omitempty"`
	// RequestCostBudget bounds, in units of CEL cost, what all policies together
	// may spend on one request. An evaluation beyond it is "could not tell".
	RequestCostBudget *int64 `json:"requestCostBudget,omitempty"`
	// Exceptions says where exceptions may be written.
	Exceptions ExceptionRules `json:"exceptions,omitzero"`
	// Workloads are further kinds that hold a pod template.
	Workloads []WorkloadKind `json:"workloads,omitempty"`
}

// ExceptionRules say where exceptions may be written. They are about the
// namespace in which an exception is, so that they hold for every version of the
// API and however it got there.
type ExceptionRules struct {
	// Namespaces are those whose exceptions may be about any object. The default
	// is gatehouse-system alone.
	Namespaces []string `json:"namespaces,omitempty"`
	// OwnNamespaces are those whose exceptions may be about objects of the same
	// namespace. "*" stands for every namespace. The default is none.
	OwnNamespaces []string `json:"ownNamespaces,omitempty"`
	// RequireExpiry makes an exception without expiresAt do nothing.
	RequireExpiry bool `json:"requireExpiry,omitempty"`
}

// WorkloadKind is a kind of objects that hold a pod template.
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
