package certificates

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	certstore "github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

const crowd = 5

// Five replicas that start at once, twenty times, without a Secret and with one that was made in advance without data,
// agree on one CA: none is ever made beside it.
func TestColdStart(t *testing.T) {
	const rounds, atOnce = 20, 5
	for round := 0; round < rounds; round += atOnce {
		var starting sync.WaitGroup
		for i := range atOnce {
			h := newHook(t)
			if i%2 == 0 {
				h.createSecret(t, &corev1.Secret{})
			}
			starting.Go(func() {
				made, rs, err := h.startCrowd(t.Context(), nil)
				defer rs.stop()
				if err != nil {
					t.Errorf("round %d: %v", round+i, err)
					return
				}
				_, err = within(t.Context(), support.Deadline, func() error { return errors.Join(rs.ready(), h.agreed(t.Context(), rs)) })
				if err != nil {
					t.Errorf("round %d: %v", round+i, err)
				}
				if len(made) > 1 {
					t.Errorf("round %d: %d CAs were in use, want 1", round+i, len(made))
				}
			})
		}
		starting.Wait()
	}
}

// TestColdStart sees it if replicas do not compare before they swap.
func TestColdStartSeesStoreThatDoesNotCompare(t *testing.T) {
	most := 0
	for range 5 {
		h := newHook(t)
		made, rs, err := h.startCrowd(t.Context(), func(s certstore.Store) certstore.Store { return overwriting{s} })
		rs.stop()
		must(t, err)
		most = max(most, len(made))
	}
	if most < 2 {
		t.Errorf("%d CA was in use at most, want several", most)
	}
}

// startCrowd starts replicas at one moment and returns the CAs of the certificates that they begin with, by the keys.
func (h *hook) startCrowd(ctx context.Context, store func(certstore.Store) certstore.Store) (map[string]bool, replicas, error) {
	var (
		starting sync.WaitGroup
		mu       sync.Mutex
		made     = map[string]bool{}
		rs       replicas
		errs     []error
	)
	begin := make(chan struct{})
	for i := range crowd {
		config := h.replicaConfig(fmt.Sprintf("replica-%d", i))
		config.store = store
		starting.Go(func() {
			<-begin
			r, err := startReplica(ctx, config)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			rs = append(rs, r)
			if cert := r.source.Certificate(); cert != nil { // else it waits for another replica
				made[string(cert.Leaf.AuthorityKeyId)] = true
			}
		})
	}
	close(begin)
	starting.Wait()
	return made, rs, errors.Join(errs...)
}

func (rs replicas) stop() {
	for _, r := range rs {
		r.stop()
	}
}

// agreed reports whether all replicas serve what the registration trusts, which is the only CA that was ever written.
func (h *hook) agreed(ctx context.Context, rs replicas) error {
	bundle, err := h.bundle(ctx)
	if err != nil {
		return err
	}
	s, err := h.state(ctx)
	if err != nil {
		return err
	}
	errs := []error{h.trusts(ctx, s)}
	if s.Generation != 1 || len(s.Authorities()) != 1 {
		errs = append(errs, fmt.Errorf("the state was written %d times and has %d CAs, want 1", s.Generation, len(s.Authorities())))
	}
	for _, r := range rs {
		errs = append(errs, trustedBy(bundle, r.source.Certificate().Leaf, h.host()))
	}
	return errors.Join(errs...)
}

// createSecret makes the hook's Secret in the place of Gatehouse.
func (h *hook) createSecret(t *testing.T, s *corev1.Secret) {
	t.Helper()
	s.Name = secret
	_, err := h.Client().CoreV1().Secrets(h.name).Create(t.Context(), s, metav1.CreateOptions{})
	must(t, err)
}

// overwriting is a store that writes whatever has happened since it was read.
type overwriting struct{ certstore.Store }

// Save implements certs.Store.
func (s overwriting) Save(ctx context.Context, old certstore.Record, data map[string][]byte) error {
	for {
		err := s.Store.Save(ctx, old, data)
		if !errors.Is(err, certstore.ErrConflict) {
			return err
		}
		old, err = s.Load(ctx)
		if err != nil {
			return err
		}
	}
}
