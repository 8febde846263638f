package sidecar

// list is one of the lists of a pod's spec that a profile adds to.
type list uint8

const (
	initContainers list = iota
	containers
	volumes
	lists // how many there are
	// ephemeralContainers is a list that nothing is added to, but whose elements
	// share the containers' names.
	ephemeralContainers = lists
)

// String is the list's name in a pod's spec.
func (l list) String() string {
	switch l {
	case initContainers:
		return "initContainers"
	case containers:
		return "containers"
	case volumes:
		return "volumes"
	case ephemeralContainers:
		return "ephemeralContainers"
	default:
		return "unknown"
	}
}

// path is the list's JSON pointer in a pod, and its trail.
func (l list) path() string {
	return [...]string{"/spec/initContainers", "/spec/containers", "/spec/volumes"}[l]
}

// end is the JSON pointer behind the list's last element.
func (l list) end() string {
	return [...]string{"/spec/initContainers/-", "/spec/containers/-", "/spec/volumes/-"}[l]
}

func listNamed(name string) (list, bool) {
	for l := range lists {
		if l.String() == name {
			return l, true
		}
	}
	return 0, false
}
