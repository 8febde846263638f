package sidecar

// scratch is the memory that one decision needs while it is made.
type scratch struct {
	pod    pod
	reader reader
	maker  maker
	// about has room for the profiles that are looked at.
	about [fewProfiles]int
}

// maxKeptItems bounds the memory that a scratch keeps from one decision to the
// next. A pod of 60 KB has 5 to 40 containers and volumes.
const maxKeptItems = 128

// clear forgets the pod. It keeps the memory of the items, but not that of a
// large pod's.
func (s *scratch) clear() {
	items := s.pod.items
	clear(items)
	if cap(items) > maxKeptItems {
		items = nil
	}
	*s = scratch{}
	s.pod.items = items[:0]
}
