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

// isBundleCurrent reports whether the stored bundle is the state's. A CA that has
// expired may be in it or not: the clocks of replicas differ.
func isBundleCurrent(data map[string][]byte, s *rotation.State, now time.Time) bool {
	var all []*x509.Certificate
	for _, a := range s.Authorities() {
		all = append(all, a.Cert)
	}
	stored := data[rotation.KeyBundle]
	return bytes.Equal(stored, rotation.Bundle(s.Trusted(now))) || bytes.Equal(stored, rotation.Bundle(all))
}

// recoveryMessage says why the stored state is replaced by the remembered one.
func (k *reconciler) recoveryMessage(found *rotation.State, damage error) string {
	switch {
	case found != nil:
		return "another client wrote another CA, or an older state: Gatehouse restored the CA that clients trust"
	case errors.Is(damage, rotation.ErrEmpty):
		return "the CA was deleted: Gatehouse restored it from memory"
	default:
		return "the CA was damaged: Gatehouse restored it from memory: " + damage.Error()
	}
}

// errAwaitingRecovery means that another replica should repair the state.
var errAwaitingRecovery = fmt.Errorf("waiting at most %s for a replica that has the previous state in memory", recoveryTime)

// errOlder means that the stored state is older than the remembered one.
var errOlder = errors.New("the stored state is older than the state in memory")

// waitForRecovery returns an error while another replica may still repair a state that
// was lost: one that is alive has it in memory, and serves a certificate of a CA that
// this replica does not know. It waits for recoveryTime at most.
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

// newState returns the first state. One that is damaged, and that no replica remembers, is
// replaced: a CA of it might not be the one that clients trust.
func (k *reconciler) newState(damage error, now time.Time) (*rotation.State, string, error) {
	lineage := make([]byte, 16)
	_, _ = rand.Read(lineage) // it never fails
	s := &rotation.State{
		Lineage: hex.EncodeToString(lineage), Created: now, Generation: 1, Phase: rotation.Stable, Since: now, Cause: rotation.Recovery,
	}
	var err error
	if s.Current, err = k.policy.New(now); err != nil {
		return nil, "", err
	}
	if errors.Is(damage, rotation.ErrEmpty) {
		s.Cause = ""
		return s, "a CA was created, because there was none", nil
	}
	return s, "a CA was created in place of a damaged one: calls fail until all clients trust the new one: " + damage.Error(), nil
}
