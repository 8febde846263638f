package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The types of conditions that every kind has. Of an object that nobody has looked
// at yet there are none.
const (
	// CompiledCondition is True if the object as it is now can be used, and False
	// if it has errors, which its message names.
	CompiledCondition = "Compiled"
	// ReadyCondition is True if the object as it is now is in use in every replica
	// that runs.
	ReadyCondition = "Ready"
	// DegradedCondition is True if something is wrong that does not keep the object
	// from being used, or if an earlier version is used in its place.
	DegradedCondition = "Degraded"
)

// The reasons of conditions.
const (
	// CompiledReason is of Compiled: there are no errors.
	CompiledReason = "Compiled"
	// WarningsReason is of Compiled and Degraded: it can be used, and there is
	// something that its author should know.
	WarningsReason = "Warnings"
	// InvalidReason is of Compiled: the object has errors.
	InvalidReason = "Invalid"
	// InUseReason is of Ready: every replica uses the object.
	InUseReason = "InUse"
	// WaitingReason is of Ready: not every replica has reported that it uses the
	// object.
	WaitingReason = "WaitingForReplicas"
	// PreviousVersionReason is of Ready and Degraded: the object has errors, and the
	// last version without any is used in its place.
	PreviousVersionReason = "PreviousVersionInUse"
	// NotUsedReason is of Ready and Degraded: the object has errors, and no version of
	// it is used. Of a policy whose expressions do not compile, its failurePolicy
	// decides what it matches; one whose match constraints have errors is left out.
	NotUsedReason = "NotUsed"
	// NotSentReason is of Degraded: the webhook configurations do not send all that an
	// object is about.
	NotSentReason = "NotSent"
	// OutdatedReason is of Degraded: the CustomResourceDefinition in the cluster is
	// not that of this version of Gatehouse.
	OutdatedReason = "DefinitionOutdated"
	// HealthyReason is of Degraded: there is nothing wrong.
	HealthyReason = "Healthy"
)

// ObjectStatus is what the status of every kind has.
type ObjectStatus struct {
	// ObservedGeneration is the metadata.generation that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Compiled, Ready and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SidecarProfileStatus is what became of a SidecarProfile.
type SidecarProfileStatus struct {
	ObjectStatus `json:",inline"`

	// Pods are the pods that the profile is about. It is absent until they are
	// counted.
	// +optional
	Pods *SidecarPodCounts `json:"pods,omitempty"`
}

// SidecarPodCounts are numbers of pods that have not ended.
type SidecarPodCounts struct {
	// Matched are those that would get the profile if they were created now.
	Matched int32 `json:"matched"`
	// Injected are those that have it.
	Injected int32 `json:"injected"`
	// Stale are those that have it as an earlier version made it.
	Stale int32 `json:"stale"`
	// CountedAt is when these numbers were counted first. They are counted again every
	// few minutes.
	CountedAt metav1.Time `json:"countedAt"`
}

// AdmissionPolicyStatus is what became of an AdmissionPolicy.
type AdmissionPolicyStatus struct {
	ObjectStatus `json:",inline"`

	// Requests are what the policy was asked about. It is absent until it was asked.
	// +optional
	Requests *PolicyCounts `json:"requests,omitempty"`
}

// PolicyCounts are numbers of requests, dry runs left out, that the replicas that
// run have counted since they started. Metrics have more.
type PolicyCounts struct {
	// Evaluations is how often the policy was evaluated, once for each binding.
	Evaluations int64 `json:"evaluations"`
	// Refusals is how many of its rules were not kept where that refuses a request.
	Refusals int64 `json:"refusals"`
	// Since is when the first of these replicas started.
	Since metav1.Time `json:"since"`
}

// AdmissionPolicyBindingStatus is what became of an AdmissionPolicyBinding.
type AdmissionPolicyBindingStatus struct {
	ObjectStatus `json:",inline"`
}

// PolicyExceptionStatus is what became of a PolicyException.
type PolicyExceptionStatus struct {
	ObjectStatus `json:",inline"`
}

// AccessTokenStatus is what became of an AccessToken.
type AccessTokenStatus struct {
	ObjectStatus `json:",inline"`

	// LastUsed is when the token was last used, to the hour: it may have been used
	// up to an hour later.
	// +optional
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}

// TokenRevocationStatus is what became of a TokenRevocation.
type TokenRevocationStatus struct {
	ObjectStatus `json:",inline"`
}
