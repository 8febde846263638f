package status

import (
	"net/http"
	"sync/atomic"
)

// mortal is the connection of a process that can be killed.
type mortal struct {
	roundTripper

	dead *atomic.Bool
}

func (m mortal) RoundTrip(req *http.Request) (*http.Response, error) {
	if m.dead.Load() {
		return nil, errAway
	}
	return m.roundTripper.RoundTrip(req)
}
