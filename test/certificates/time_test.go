package certificates

import (
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/test/support"
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

// A clock that has been wrong by more than a certificate's life is set right, and the next handshake is good: there is no
// waiting for the next look at the clock, which is an hour away.
func TestClockJumpsPastExpiry(t *testing.T) {
	h := newHook(t)
	rs := h.replicate(t, 1, func(_ int, c *replicaConfig) {
		c.clock.set(-8 * 24 * time.Hour)
		c.Interval = time.Hour
	})
	caller := h.caller(t)
	support.Eventually(t, "the API server refuses a certificate that has ended", func() error {
		err := caller.call(t.Context())
		if err == nil {
			t.Fatal("a call succeeded")
		}
		if !strings.Contains(err.Error(), "certificate has expired") {
			return err
		}
		return nil
	})
	rs[0].config.clock.set(0)
	must(t, caller.call(t.Context()))
}
