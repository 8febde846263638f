package certificates

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

const unknownAuthority = "certificate signed by unknown authority"

// byHand is two servers with a certificate of a CA made by hand, which the API server trusts and calls.
func (h *hook) byHand(t *testing.T) (ca *rotation.Authority, servers pair) {
	t.Helper()
	now := time.Now()
	ca = newCA(t, "old", now.AddDate(0, 0, -1))
	for i := range servers {
		servers[i] = h.serveByHand(t, h.issue(t, ca, now.Add(-time.Hour), now.AddDate(0, 0, 7)))
	}
	h.trust(t, bundleOf(ca))
	h.endpoints(t, servers[0].port(), servers[1].port())
	return ca, servers
}

// The load sees a rotation without overlap, in which the bundle is replaced, and certificates as fast as replicas can.
func TestLoadSeesRotationWithoutOverlap(t *testing.T) {
	h := newHook(t)
	_, servers := h.byHand(t)
	now := time.Now()
	next := newCA(t, "new", now.AddDate(0, 0, -1))
	leaf := h.issue(t, next, now.Add(-time.Hour), now.AddDate(0, 0, 7))
	l := h.load(t, servers.work)
	l.last(t, lag)

	h.trust(t, bundleOf(next))
	for _, s := range servers {
		s.cert.Store(leaf)
		l.more(t, enough/20)
	}
	l.last(t, lag)
	l.someFailed(t, unknownAuthority)
}

// The load sees that a CA is forgotten while one of two replicas still serves its certificate.
func TestLoadSeesCAForgottenTooEarly(t *testing.T) {
	h := newHook(t)
	old, servers := h.byHand(t)
	now := time.Now()
	next := newCA(t, "new", now.AddDate(0, 0, -1))
	l := h.load(t, servers.work)
	h.trust(t, bundleOf(old, next))
	l.last(t, lag)
	servers[0].cert.Store(h.issue(t, next, now.Add(-time.Hour), now.AddDate(0, 0, 7)))
	l.last(t, lag)
	if failed := l.Failed(); failed > 0 {
		t.Errorf("%d calls failed before the CA was forgotten: %s", failed, l.Why())
	}

	h.trust(t, bundleOf(next))
	l.last(t, 2*lag)
	l.someFailed(t, unknownAuthority)
}

// The load sees a certificate that was made by a clock two hours ahead, unless it is back-dated by more than that.
func TestLoadSeesClockAhead(t *testing.T) {
	for _, test := range []struct {
		name string
		back time.Duration
		want string
	}{
		{"back-dated by an hour", time.Hour, "is not yet valid"},
		{"back-dated by a day", 24 * time.Hour, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHook(t)
			ca, servers := h.byHand(t)
			l := h.load(t, servers.work)
			now := time.Now().Add(2 * time.Hour)
			servers[0].cert.Store(h.issue(t, ca, now.Add(-test.back), now.AddDate(0, 0, 7)))
			l.last(t, lag)
			if test.want != "" {
				l.someFailed(t, test.want)
			} else {
				l.noneFailed(t, enough/10)
			}
		})
	}
}
