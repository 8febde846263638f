package podtext

// List is one of the lists of a pod's spec that a profile adds to.
type List uint8

const (
	InitContainers List = iota
	Containers
	Volumes
	NumLists // how many there are
	// EphemeralContainers is a list that nothing is added to, but whose elements
	// share the containers' names.
	EphemeralContainers = NumLists
)

// String returns the list's name in a pod's spec.
func (l List) String() string {
	switch l {
	case InitContainers:
		return "initContainers"
	case Containers:
		return "containers"
	case Volumes:
		return "volumes"
	case EphemeralContainers:
		return "ephemeralContainers"
	default:
		return "unknown"
	}
}

// Pointer returns the list's JSON pointer in a pod, and its field path.
func (l List) Pointer() string {
	return [...]string{"/spec/initContainers", "/spec/containers", "/spec/volumes"}[l]
}

// EndPointer returns the JSON pointer behind the list's last element.
func (l List) EndPointer() string {
	return [...]string{"/spec/initContainers/-", "/spec/containers/-", "/spec/volumes/-"}[l]
}

func ListNamed(name string) (List, bool) {
	for l := range NumLists {
		if l.String() == name {
			return l, true
		}
	}
	return 0, false
}
