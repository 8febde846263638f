package source

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

// isBundleCurrent tells whether the bundle that is stored for people is the state's. A
// CA that has ended may be in it or not: replicas do not agree to the second.
func isBundleCurrent(data map[string][]byte, s *rotation.State, now time.Time) bool {
	var all []*x509.Certificate
	for _, a := range s.Authorities() {
		all = append(all, a.Cert)
	}
	stored := data[rotation.KeyBundle]
	return bytes.Equal(stored, rotation.Bundle(s.Trusted(now))) || bytes.Equal(stored, rotation.Bundle(all))
}

// recoveryMessage says why what is stored is replaced by what is remembered.
func (k *reconciler) recoveryMessage(found *rotation.State, damage error) string {
	switch {
	case found != nil:
		return "somebody wrote another CA, or an older state: the one that clients trust was put back"
	case errors.Is(damage, rotation.ErrEmpty):
		return "the CA was deleted: it was written again from memory"
	default:
		return "the CA was damaged, and was written again from memory: " + damage.Error()
	}
}

// errNotOffered tells that somebody else has to act first, who is watched by
// others.
var errNotOffered = errors.New("there is no CA yet: the issuer has not issued a certificate")

// errAwaitingRecovery tells that somebody else should write.
var errAwaitingRecovery = fmt.Errorf("waiting %s at most for a replica that remembers what was there", recoveryTime)

// errOlder tells that what is stored is older than what is remembered, and that
// this may be right.
var errOlder = errors.New("what is there is not what was there")

// waitForRecovery is an error while another replica should be waited for before
// something is written: one that lives has in memory what was lost, and serves
// what whoever remembers nothing, or something old, does not know. Nobody is waited
// for longer than rescueTime, and that one lives who cannot be seen not to.
func (k *reconciler) waitForRecovery(ctx context.Context, want *rotation.State) error {
	if k.lostSince.IsZero() {
		k.lostSince = k.monotonic()
	}
	if k.elapsed(k.lostSince) >= recoveryTime {
		return nil
	}
	list, err := k.replicas.List(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errAwaitingRecovery, err)
	}
	now := clock.Wall(k.now)
	if slices.ContainsFunc(list, func(r rotation.Report) bool {
		if r.Replica == k.replica || r.Issuer == "" || now.Sub(r.Seen) >= 2*store.ReportInterval {
			return false
		}
		return want == nil || !slices.ContainsFunc(want.Authorities(), func(a *rotation.Authority) bool { return a.ID() == r.Issuer })
	}) {
		return errAwaitingRecovery
	}
	return nil
}

// newState is the first state, of what can be used of a damaged one if there is
// anything.
func (k *reconciler) newState(usable *rotation.State, damage error, now time.Time) (*rotation.State, string, error) {
	lineage := make([]byte, 16)
	_, _ = rand.Read(lineage) // it never fails
	s := &rotation.State{
		Lineage: hex.EncodeToString(lineage), Created: now, Generation: 1, Phase: rotation.Stable, Since: now, Cause: rotation.Recovery,
	}
	if usable != nil && !now.After(usable.Current.Cert.NotAfter) {
		s.Current = usable.Current
		return s, "the state was damaged, and begins anew with the CA that is there: " + damage.Error(), nil
	}
	if k.policy.New != nil {
		authority, err := k.policy.New(now)
		if err != nil {
			return nil, "", err
		}
		s.Current = authority
		if errors.Is(damage, rotation.ErrEmpty) {
			s.Cause = ""
			return s, "a CA was made: there was none", nil
		}
		return s, "a CA was made in the place of a damaged one: calls fail until all clients have been given the new one: " + damage.Error(), nil
	}
	offered := k.offered()
	if offered == nil {
		return nil, "", errNotOffered
	}
	s.Current, s.Cause = &rotation.Authority{Cert: offered}, rotation.Offered
	return s, "the issuer's CA is the first", nil
}
