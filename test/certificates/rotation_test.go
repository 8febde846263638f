package certificates

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// One CA takes the place of another, and no call fails: because the old one has used up its life, because somebody wants
// it, and in an emergency too, as long as every replica can be reached. What goes wrong without the order of steps is
// seen by TestLoadSeesRotationWithoutOverlap and TestLoadSeesCAForgottenTooEarly.
func TestRotation(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(int, *replicaConfig)
		// begin starts the rotation, if it does not come by itself.
		begin func(*testing.T, *hook) (id string)
		cause rotation.Cause
	}{
		{
			"due",
			func(_ int, c *replicaConfig) { c.Life, c.LeafLife, c.Interval = 30*time.Second, 6*time.Second, lag/4 },
			func(*testing.T, *hook) string { return "" },
			rotation.Due,
		},
		{
			"requested",
			func(int, *replicaConfig) {},
			func(t *testing.T, h *hook) string { return h.requestRotation(t, false) },
			rotation.Requested,
		},
		{
			"emergency",
			func(int, *replicaConfig) {},
			func(t *testing.T, h *hook) string { return h.requestRotation(t, true) },
			rotation.Emergency,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHook(t)
			rs := h.replicate(t, 3, test.edit)
			before := h.inPhase(t, rotation.Stable)
			l := h.load(t, rs.work)
			l.more(t, enough/10)

			id := test.begin(t, h)
			h.inPhase(t, rotation.Hold)
			after := h.rotated(t, id)
			if after.Cause != test.cause || after.Current.Cert.Equal(before.Current.Cert) {
				t.Errorf("there was a rotation because of %s, want %s", after.Cause, test.cause)
			}
			l.last(t, lag)
			l.noneFailed(t, enough)
			served(t, rs, before.Current, after.Current)
		})
	}
}

// A replica that is cut off from the API server through a whole rotation goes on with what it has, and is waited for.
func TestRotationWaitsForReplicaThatIsCutOff(t *testing.T) {
	h := newHook(t)
	far := newNetwork(t, "127.0.0.1", strings.TrimPrefix(h.Config().Host, "https://"), 0)
	rs := h.replicate(t, 3, func(i int, c *replicaConfig) {
		if i == 0 {
			c.Server = far.url()
		}
	})
	before := h.inPhase(t, rotation.Stable)
	l := h.load(t, rs.work)
	l.more(t, enough/10)

	far.cut()
	id := h.requestRotation(t, false)
	h.inPhase(t, rotation.Activate)
	presented := rs[0].of(before.Current.Cert)
	l.last(t, 3*lag)
	during := h.inPhase(t, rotation.Activate)
	if rs[0].of(during.Current.Cert) > 0 || rs[0].of(before.Current.Cert) == presented {
		t.Error("the replica that is cut off has not been called with its old certificate: this test has not seen what it is about")
	}
	served(t, rs[1:], during.Current)
	if bundle, err := h.bundle(t.Context()); err != nil || !bytes.Equal(bundle, bundleOf(before.Current, during.Current)) {
		t.Errorf("the registration does not trust both CAs while a replica is waited for: %v", err)
	}

	far.mend()
	after := h.rotated(t, id)
	l.last(t, lag)
	l.noneFailed(t, enough)
	served(t, rs, after.Current)
}
