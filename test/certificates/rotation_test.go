package certificates

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// One CA takes the place of another because somebody wants it, and in an emergency too, and no call fails as long as every
// replica can be reached.
func TestRotation(t *testing.T) {
	for name, emergency := range map[string]bool{"requested": false, "emergency": true} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t)
			rs := h.replicate(t, 3)
			before := h.inPhase(t, rotation.Stable)
			l := h.load(t, rs.work)
			l.more(t, enough/10)
			id := h.requestRotation(t, emergency)
			h.inPhase(t, rotation.Hold)
			after := h.rotated(t, id)
			if after.Current.Cert.Equal(before.Current.Cert) {
				t.Error("the CA is the same")
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
