package sidecar

import "github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"

// scratch is the memory that one decision needs. It is used again for the next.
type scratch struct {
	podtext.Buffer
	request   request
	messages  messages
	selection selection
	injector  injector
	// about is a buffer for the profiles that are looked at.
	about [fewProfiles]int
}

// clear removes every reference to the request.
func (s *scratch) clear() {
	s.Clear()
	*s = scratch{Buffer: s.Buffer}
}
