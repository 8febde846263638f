package source

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

// sendHeartbeat reports to the other replicas what is served, when that changes and
// every store.ReportInterval.
func (k *reconciler) sendHeartbeat(ctx context.Context, now time.Time) error {
	cert := k.serving()
	if cert == nil {
		return nil
	}
	r := rotation.Report{Replica: k.replica, Version: k.version, SHA256: certs.EventOf("", cert.Leaf).SHA256, NotAfter: cert.Leaf.NotAfter}
	if issuer := issuerOf(cert, k.state.Load()); issuer != nil {
		r.Issuer = issuer.ID()
	} else {
		r.Issuer = store.UnreadableIssuer // unknown here, so the others wait for it
	}
	if r == k.lastReport && now.Sub(k.lastHeartbeat) < store.ReportInterval && !now.Before(k.lastHeartbeat) {
		return nil
	}
	if err := k.replicas.Report(ctx, &r); err != nil {
		return err
	}
	k.lastReport, k.lastHeartbeat = r, now
	k.awaitedUntil.Store(&r.NotAfter)
	return nil
}

// issuerOf returns the CA of a state that issued a certificate, nil if none did.
func issuerOf(cert *tls.Certificate, s *rotation.State) *rotation.Authority {
	for _, a := range s.Authorities() {
		if cert.Leaf.CheckSignatureFrom(a.Cert) == nil {
			return a
		}
	}
	return nil
}

// isRefusal reports whether an error is the answer of an API server, and not the lack
// of one.
func isRefusal(err error) bool {
	_, foreign := errors.AsType[*store.ForeignError](err)
	return foreign || kube.IsAnswer(err)
}

// checkIsolated returns an error if the other replicas may have rotated without this
// one: it cannot read the store, and they wait no longer than until the end of the
// certificate in its last heartbeat. If the store refuses to be read, it returns nil
// where registrations are seen to trust what is served, and where that cannot be seen:
// the refusal is then taken to concern all replicas.
func (k *reconciler) checkIsolated(now time.Time) error {
	until := k.awaitedUntil.Load()
	if k.object().Kind == "" || !k.unreachable.Load() || until == nil || !now.After(*until) {
		return nil
	}
	if cert := k.serving(); k.forbidden.Load() && (k.trust == nil || cert != nil && k.trust.Fresh() && k.trust.Verify(cert, now) == nil) {
		return nil
	}
	return fmt.Errorf("%s has not been read since before %s: the other replicas may have removed the CA that this replica uses", k.store, clock.Stamp(*until))
}

// leave removes the heartbeat of this replica. It takes two seconds at most, even if the
// context has ended.
func (k *reconciler) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = k.replicas.Leave(ctx) // a report that stays is waited for until its certificate ends
}
