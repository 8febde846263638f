package sidecar

// Reason is the reason for the outcome of one profile for one pod.
type Reason string

// The reasons, in the order in which they are checked. The first that holds is given. Text says
// what each means.
const (
	NamespaceNotSelected Reason = "namespace-not-selected"
	ObjectNotSelected    Reason = "object-not-selected"
	StaticPod            Reason = "static-pod"
	Declined             Reason = "declined"
	// DeclinedByNamespace: the namespace declines, and the pod says nothing.
	DeclinedByNamespace Reason = "declined-by-namespace"
	// NotAsked: the profile is OptIn, and neither the pod nor its namespace asks for it.
	NotAsked       Reason = "not-asked"
	NotInRollout   Reason = "not-in-rollout"
	HostNetwork    Reason = "host-network"
	HostProcess    Reason = "host-process"
	OtherSystem    Reason = "operating-system"
	MustEnd        Reason = "must-end"
	ConditionFalse Reason = "condition-false"
	Replaced       Reason = "replaced"
	// NamespaceUnknown: it depends on the labels of a namespace that is not known. The
	// decision has an error.
	NamespaceUnknown Reason = "namespace-unknown"
	// Unknown: it cannot be decided for another reason. The decision has an error.
	Unknown Reason = "unknown"
	// InvalidParameter: a parameter is invalid, and the profile is left out then.
	InvalidParameter Reason = "invalid-parameter"
	// Conflict: the pod has something else where the profile adds something,
	// and the profile is left out then.
	Conflict Reason = "conflict"
	// PodSecurity: the namespace's Pod Security level admits the pod, but not
	// with what the profile adds, and the profile is left out then.
	PodSecurity Reason = "pod-security"
	// Refused: the profile would be applied, but the pod is refused. The
	// decision says why.
	Refused Reason = "refused"
	// AlreadyThere: an earlier call applied the profile.
	AlreadyThere Reason = "already-there"
	// Applied: the patch adds what the profile adds, or what was missing of it.
	Applied Reason = "applied"
)

// describedReason is a reason and its text for people, which follows "is not applied:".
type describedReason struct {
	reason Reason
	text   string
}

func describedReasons() []describedReason {
	return []describedReason{
		{NamespaceNotSelected, "its namespaceSelector does not match the namespace"},
		{ObjectNotSelected, "its objectSelector does not match the pod"},
		{StaticPod, "the pod is the mirror of a static pod, which webhooks cannot change"},
		{Declined, "the pod's annotation declines it"},
		{DeclinedByNamespace, "the namespace's annotation declines it"},
		{NotAsked, "it is OptIn, and neither the pod nor its namespace requests it"},
		{NotInRollout, "its rollout does not include the workload"},
		{HostNetwork, "the pod has hostNetwork: true, and the sidecar's ports would be ports of the node"},
		{HostProcess, "the pod is a Windows HostProcess pod"},
		{OtherSystem, "the API server refuses its fields for the pod's operating system"},
		{MustEnd, "its container would keep the pod from completing"},
		{ConditionFalse, "one of its match conditions is false"},
		{Replaced, "another profile replaces it"},
		{NamespaceUnknown, "the namespace is not known"},
		{Unknown, "Gatehouse cannot decide"},
		{InvalidParameter, "a parameter is invalid"},
		{Conflict, "the pod has a conflicting value"},
		{PodSecurity, "the pod would violate the Pod Security level of its namespace"},
		{Refused, "the pod is refused"},
		{AlreadyThere, "it is already applied"},
		{Applied, "it is applied"},
	}
}

// Reasons returns all reasons in their order.
func Reasons() []Reason {
	var all []Reason
	for _, d := range describedReasons() {
		all = append(all, d.reason)
	}
	return all
}

// Selected reports whether the profile selects the pod.
func (r Reason) Selected() bool {
	return r != NamespaceNotSelected && r != ObjectNotSelected && r != NotAsked
}

// Text returns the reason for people, which follows "is not applied:".
func (r Reason) Text() string {
	for _, d := range describedReasons() {
		if d.reason == r {
			return d.text
		}
	}
	return string(r)
}
