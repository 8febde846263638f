package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The types of conditions that every kind has, but for Native. A new object has none until
// Gatehouse reports on it.
const (
	// CompiledCondition is True if the current version of the object is valid, and
	// False if it has errors. The message lists them.
	CompiledCondition = "Compiled"
	// ReadyCondition is True if the current version of the object is active in
	// every running replica.
	ReadyCondition = "Ready"
	// DegradedCondition is True if the object is active with a problem, or if an
	// earlier version is active instead.
	DegradedCondition = "Degraded"
	// NativeCondition is True if the API server itself enforces the whole
	// AdmissionPolicy, by the documents of gatehouse compile, whether the webhook is
	// called or not. A policy without such documents in the cluster does not have it.
	NativeCondition = "Native"
)

// The reasons of conditions.
const (
	// CompiledReason is a reason of Compiled: there are no errors.
	CompiledReason = "Compiled"
	// WarningsReason is a reason of Compiled and Degraded: the object is valid and
	// has warnings.
	WarningsReason = "Warnings"
	// InvalidReason is a reason of Compiled: the object has errors.
	InvalidReason = "Invalid"
	// InUseReason is a reason of Ready: the object is active in every replica.
	InUseReason = "InUse"
	// NoEffectReason is a reason of Ready: the object is valid and does nothing, such as a
	// binding that matches nothing that its policy matches, or an exception that has expired.
	NoEffectReason = "NoEffect"
	// WaitingReason is a reason of Ready: not every replica has reported that the
	// object is active.
	WaitingReason = "WaitingForReplicas"
	// PreviousVersionReason is a reason of Ready and Degraded: the object has
	// errors, and the last valid version is active.
	PreviousVersionReason = "PreviousVersionInUse"
	// NotUsedReason is a reason of Ready and Degraded: the object has errors, and
	// no version of it is active. For a policy with invalid expressions,
	// failurePolicy decides the requests that it matches; a policy with invalid
	// match constraints is ignored.
	NotUsedReason = "NotUsed"
	// NotSentReason is a reason of Degraded: the webhook configurations do not send
	// all requests that the object matches.
	NotSentReason = "NotSent"
	// ParamsNotFoundReason is a reason of Degraded of policies and bindings: there are
	// no params, and parameterNotFoundAction is Deny, so that all requests that the
	// policy matches are denied.
	ParamsNotFoundReason = "ParamsNotFound"
	// ConfigurationRejectedReason is a reason of Degraded of all objects: the documents
	// of the directory, or the objects together with them, have errors, and the
	// previous configuration stays active.
	ConfigurationRejectedReason = "ConfigurationRejected"
	// HealthyReason is a reason of Degraded: there is no problem.
	HealthyReason = "Healthy"
	// EnforcedReason is a reason of Native: the compiled documents are what compiling
	// gives now, and nothing is left to Gatehouse.
	EnforcedReason = "Enforced"
	// PartlyEnforcedReason is a reason of Native: the compiled documents are what compiling
	// gives now, and Gatehouse decides some of the policy alone, or otherwise.
	PartlyEnforcedReason = "PartlyEnforced"
	// OutOfDateReason is a reason of Native: the compiled documents are not, or not all,
	// what compiling gives now.
	OutOfDateReason = "OutOfDate"
	// ExceptionEndedReason is a reason of Native: an exception in the compiled documents
	// has ended, which the API server does not see.
	ExceptionEndedReason = "ExceptionEnded"
	// NotReadReason is a reason of Native: Gatehouse cannot read the compiled documents
	// any more.
	NotReadReason = "NotRead"
)

// The reasons of Events about Grants.
const (
	// GrantStartedReason is the reason of the Event when a Grant begins to give its groups.
	GrantStartedReason = "GrantStarted"
	// GrantEndedReason is the reason of the Event when a Grant ends, or becomes invalid.
	GrantEndedReason = "GrantEnded"
)

// ObjectStatus is the common part of the status of all kinds.
type ObjectStatus struct {
	// ObservedGeneration is the metadata.generation that the conditions refer to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Compiled, Ready and Degraded, and of an AdmissionPolicy that
	// was compiled Native.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SidecarProfileStatus is the observed state of a SidecarProfile.
type SidecarProfileStatus struct {
	ObjectStatus `json:",inline"`

	// Pods counts the pods that the profile selects. It is absent until an audit
	// has counted them.
	// +optional
	Pods *SidecarPodCounts `json:"pods,omitempty"`
}

// SidecarPodCounts are numbers of pods that have not terminated.
type SidecarPodCounts struct {
	// Matched is the number of pods that would be injected if they were created
	// now.
	Matched int32 `json:"matched"`
	// Injected is the number of pods with the profile.
	Injected int32 `json:"injected"`
	// Stale is the number of pods with an earlier version of the profile.
	Stale int32 `json:"stale"`
	// CountedAt is when these numbers were first counted. Each audit counts
	// anew.
	CountedAt metav1.Time `json:"countedAt"`
}

// AdmissionPolicyStatus is the observed state of an AdmissionPolicy.
type AdmissionPolicyStatus struct {
	ObjectStatus `json:",inline"`

	// Audit is what the audit of existing objects found. It is absent until there is
	// an audit, and without serve --audit-every.
	// +optional
	Audit *PolicyAudit `json:"audit,omitempty"`
}

// PolicyAudit counts objects that exist in the cluster, as the policy would decide their
// creation now. Reports have the objects.
type PolicyAudit struct {
	// Violations is the number of results that would deny a request.
	Violations int64 `json:"violations"`
	// Warnings is the number of results that warn or are audited.
	Warnings int64 `json:"warnings"`
	// Errors is the number of results that cannot be decided.
	Errors int64 `json:"errors"`
	// Exempted is the number of violations that exceptions and baselines exempt.
	Exempted int64 `json:"exempted"`
	// NotAudited is what the audit has not evaluated, with the reasons: rules that depend on
	// the request, and resources that were not read.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	NotAudited []string `json:"notAudited,omitempty"`
	// AuditedAt is the start of an audit with these numbers. While they stay the same it is
	// updated once a day: the metrics have the time of the last audit.
	AuditedAt metav1.Time `json:"auditedAt"`
}

// MaxNotAudited is how many entries NotAudited has at most.
const MaxNotAudited = 20

// AdmissionPolicyBindingStatus is the observed state of an AdmissionPolicyBinding.
type AdmissionPolicyBindingStatus struct {
	ObjectStatus `json:",inline"`
}

// PolicyExceptionStatus is the observed state of a PolicyException.
type PolicyExceptionStatus struct {
	ObjectStatus `json:",inline"`
}

// PolicyBaselineStatus is the observed state of a PolicyBaseline.
type PolicyBaselineStatus struct {
	ObjectStatus `json:",inline"`

	// Entries is the number of violations that the baseline allows.
	// +optional
	Entries *int32 `json:"entries,omitempty"`
}

// AccessTokenStatus is the observed state of an AccessToken.
type AccessTokenStatus struct {
	ObjectStatus `json:",inline"`

	// LastUsed is when the token was last used, accurate to one hour.
	// +optional
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}

// TokenRevocationStatus is the observed state of a TokenRevocation.
type TokenRevocationStatus struct {
	ObjectStatus `json:",inline"`
}

// GrantStatus is the observed state of a Grant.
type GrantStatus struct {
	ObjectStatus `json:",inline"`

	// Phase is NotYet, Active or Expired, by the clock of the replica that writes it. It
	// is absent if the Grant has errors: then it gives nothing.
	// +optional
	Phase GrantPhase `json:"phase,omitempty"`
}
