package sidecar

// Reason says what became of one profile for one pod.
type Reason string

// The reasons, in the order in which they are looked for. The first that holds
// is given.
const (
	// NamespaceNotSelected: the profile's namespaceSelector does not match.
	NamespaceNotSelected Reason = "namespace-not-selected"
	// ObjectNotSelected: the profile's objectSelector does not match.
	ObjectNotSelected Reason = "object-not-selected"
	// StaticPod: the kubelet runs it whatever the API server says.
	StaticPod Reason = "static-pod"
	// Declined: the pod declines.
	Declined Reason = "declined"
	// DeclinedByNamespace: the namespace declines, and the pod says nothing.
	DeclinedByNamespace Reason = "declined-by-namespace"
	// NotAsked: the profile is OptIn and nobody asks.
	NotAsked Reason = "not-asked"
	// NotInRollout: the workload is not in the profile's share.
	NotInRollout Reason = "not-in-rollout"
	// HostNetwork: a sidecar's ports would be the node's.
	HostNetwork Reason = "host-network"
	// HostProcess: a container of a Windows host process pod is no container.
	HostProcess Reason = "host-process"
	// OtherSystem: the pod is for an operating system that what the profile adds
	// does not suit.
	OtherSystem Reason = "operating-system"
	// MustEnd: a container of the profile would keep the pod from ending.
	MustEnd Reason = "must-end"
	// ConditionFalse: one of the profile's match conditions does not hold.
	ConditionFalse Reason = "condition-false"
	// Replaced: a profile in its rollout takes the place of this one.
	Replaced Reason = "replaced"
	// NamespaceUnknown: nothing but the labels of a namespace that is not known
	// could tell. The decision has an error.
	NamespaceUnknown Reason = "namespace-unknown"
	// Unknown: it could not be told for another reason. The decision has an
	// error.
	Unknown Reason = "unknown"
	// InvalidParameter: a parameter is not what is allowed, and the profile is
	// left out then.
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

// Reasons returns all reasons, in their order. The caller may change the copy that it
// gets.
func Reasons() []Reason {
	return []Reason{
		NamespaceNotSelected, ObjectNotSelected, StaticPod, Declined, DeclinedByNamespace, NotAsked, NotInRollout,
		HostNetwork, HostProcess, OtherSystem, MustEnd, ConditionFalse, Replaced, NamespaceUnknown, Unknown, InvalidParameter,
		Conflict, PodSecurity, Refused, AlreadyThere, Applied,
	}
}

// Selected reports whether the profile is about the pod at all.
func (r Reason) Selected() bool {
	return r != NamespaceNotSelected && r != ObjectNotSelected && r != NotAsked
}

// Text returns the reason for people: what comes behind "is not applied:".
func (r Reason) Text() string {
	switch r {
	case NamespaceNotSelected:
		return "it does not select the namespace"
	case ObjectNotSelected:
		return "it does not select the pod's labels"
	case StaticPod:
		return "the pod mirrors a static pod, which the kubelet runs as it is"
	case Declined:
		return "the pod declines"
	case DeclinedByNamespace:
		return "the namespace declines"
	case NotAsked:
		return "nobody asks for it"
	case NotInRollout:
		return "the workload is not in the share of its rollout"
	case HostNetwork:
		return "the pod has hostNetwork: true, so that the ports of a sidecar would be the node's"
	case HostProcess:
		return "the pod is a Windows host process pod"
	case OtherSystem:
		return "the pod is for another operating system"
	case MustEnd:
		return "the pod must end, and a container of the profile would keep it from ending"
	case ConditionFalse:
		return "one of its match conditions does not hold"
	case Replaced:
		return "another profile takes its place"
	case NamespaceUnknown:
		return "the namespace is not known"
	case Unknown:
		return "it could not be told"
	case InvalidParameter:
		return "a parameter is not what is allowed"
	case Conflict:
		return "the pod has something else in its place"
	case PodSecurity:
		return "the namespace's Pod Security level would not admit the pod"
	case Refused:
		return "the pod is refused"
	case AlreadyThere:
		return "it is there already"
	case Applied:
		return "it is applied"
	default:
		return string(r)
	}
}
