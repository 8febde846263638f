package certificates

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// Replicas whose clocks are two hours ahead and behind make certificates that the API server accepts, and get through a
// rotation with the others. The control is TestLoadSeesClockAhead.
func TestClocksTwoHoursOff(t *testing.T) {
	h := newHook(t)
	offsets := []time.Duration{2 * time.Hour, 0, -2 * time.Hour}
	rs := h.replicate(t, len(offsets), func(i int, c *replicaConfig) { c.clock.set(offsets[i]) })
	before := h.inPhase(t, rotation.Stable)
	l := h.load(t, rs.work)
	l.more(t, enough/10)
	id := h.requestRotation(t, false)
	after := h.rotated(t, id)
	l.last(t, lag)
	l.noneFailed(t, enough)
	served(t, rs, before.Current, after.Current)
}
