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

// sendHeartbeat tells the other replicas what is served, when that changes and from
// time to time.
func (k *reconciler) sendHeartbeat(ctx context.Context, now time.Time) error {
	cert := k.serving()
	if cert == nil {
		return nil
	}
	r := rotation.Report{Replica: k.replica, Version: k.version, SHA256: certs.EventOf("", cert.Leaf).SHA256, NotAfter: cert.Leaf.NotAfter}
	if issuer := issuerOf(cert, k.state.Load()); issuer != nil {
		r.Issuer = issuer.ID()
	} else {
		r.Issuer = store.UnreadableIssuer // of none that is known here, and so waited for
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

// issuerOf is the authority of a state to which a certificate leads, nil if it
// leads to none.
func issuerOf(cert *tls.Certificate, s *rotation.State) *rotation.Authority {
	for _, a := range s.Authorities() {
		if leadsTo(a.Cert, cert) {
			return a
		}
	}
	return nil
}

// isRefusal tells whether an error is what an API server said, a refusal say, and
// not that there was none to be reached.
func isRefusal(err error) bool {
	_, foreign := errors.AsType[*store.ForeignError](err)
	return foreign || kube.IsAnswer(err)
}

// checkIsolated is an error if the other replicas may have gone on without this one:
// it cannot read what they share, and they wait no longer than until the end of
// the certificate that they know of. It is none where the store refuses to be read
// and registrations are seen to trust what is served; or where nobody can tell
// that, because then it is taken to refuse that to all of them.
func (k *reconciler) checkIsolated(now time.Time) error {
	until := k.awaitedUntil.Load()
	if k.object().Kind == "" || !k.unreachable.Load() || until == nil || !now.After(*until) {
		return nil
	}
	if cert := k.serving(); k.forbidden.Load() && (k.trust == nil || cert != nil && k.trust.Fresh() && k.trust.Verify(cert, now) == nil) {
		return nil
	}
	return fmt.Errorf("%s has not been read since before %s: the other replicas may have had the CA forgotten that this one uses", k.store, clock.Stamp(*until))
}

// Leave takes back what the other replicas were told of this one, which Run does at its
// end: it is for whoever does not come to call Run. It takes two seconds at most, whatever
// has become of the context of the caller.
func (k *reconciler) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = k.replicas.Leave(ctx) // a report that stays is waited for until its certificate ends
}
