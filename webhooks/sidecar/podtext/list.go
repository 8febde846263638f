package podtext

// List is one of the lists of a pod's spec that a profile adds to.
type List uint8

// The lists.
const (
	InitContainers List = iota
	Containers
	Volumes
	NumLists // how many there are
	// EphemeralContainers is a list that nothing is added to, but whose elements
	// share the containers' names.
	EphemeralContainers = NumLists
)

// String returns the name of the list in a pod's spec.
func (l List) String() string {
	return [...]string{"initContainers", "containers", "volumes", "ephemeralContainers"}[l]
}

// Pointer returns the JSON pointer of the list in a pod, which is its field path too.
func (l List) Pointer() string {
	return [...]string{"/spec/initContainers", "/spec/containers", "/spec/volumes"}[l]
}

// EndPointer returns the JSON pointer to append an element to the list.
func (l List) EndPointer() string {
	return [...]string{"/spec/initContainers/-", "/spec/containers/-", "/spec/volumes/-"}[l]
}

// ListNamed returns the list of this name in a pod's spec, of those that a profile adds to.
func ListNamed(name string) (List, bool) {
	for l := range NumLists {
		if l.String() == name {
			return l, true
		}
	}
	return 0, false
}
