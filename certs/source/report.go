package source

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// reportProblem reports the problem of a round, once as long as it lasts.
func (k *reconciler) reportProblem(now time.Time, err error) {
	cert := k.serving()
	event := certs.Event{Subject: certs.SelfSignedCA, Object: k.object()}
	switch expiring := k.checkExpiry(cert, now); {
	case err != nil && !errors.Is(err, context.Canceled):
		event.Reason, event.Err = certs.ReasonStoreFailed, err
	case expiring != nil:
		event.Reason, event.Err = certs.ReasonExpiring, expiring
	}
	if s := k.state.Load(); s != nil {
		trusted := certs.EventOf(certs.SelfSignedCA, s.Trusted(now)...)
		event.NotAfter, event.SHA256 = s.Current.Cert.NotAfter, trusted.SHA256
	}
	k.problems.Report(event)
}

// checkExpiry returns an error if a certificate ends soon that should have been renewed.
func (k *reconciler) checkExpiry(cert *tls.Certificate, now time.Time) error {
	if cert != nil {
		life := cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore.Add(rotation.Backdate))
		if left := cert.Leaf.NotAfter.Sub(now); left < life/6 {
			return fmt.Errorf("the serving certificate expires at %s and was not renewed", clock.Stamp(cert.Leaf.NotAfter))
		}
	}
	s := k.state.Load()
	if s == nil {
		return nil
	}
	if left := s.Current.Cert.NotAfter.Sub(now); left < 2*k.policy.LeafLife && s.Phase != rotation.Activate {
		return fmt.Errorf("the CA expires at %s, and not every registration trusts the next one", clock.Stamp(s.Current.Cert.NotAfter))
	}
	return nil
}

// reportChange reports a change of the state, with its CAs.
func (k *reconciler) reportChange(reason, what string, s *rotation.State) {
	event := certs.EventOf(certs.SelfSignedCA, s.Current.Cert)
	event.Reason, event.Object = reason, k.object()
	event.Generation, event.Phase = s.Generation, s.Phase
	const short = 12 // characters, of which no two CAs have the same
	names := []string{"current " + s.Current.ID()[:short]}
	if s.Pending != nil {
		names = append(names, "pending "+s.Pending.ID()[:short])
	}
	if s.Previous != nil {
		names = append(names, "previous "+s.Previous.ID()[:short])
	}
	event.Message = what + " (" + strings.Join(names, ", ") + ")"
	if reason == certs.ReasonReplaced {
		event.Err = errors.New(event.Message)
	}
	k.steps.Report(event)
}

// object returns the reference of the Secret of the state, empty if there is none.
func (k *reconciler) object() corev1.ObjectReference {
	if in, ok := k.store.(interface{ Object() corev1.ObjectReference }); ok {
		return in.Object()
	}
	return corev1.ObjectReference{}
}
