package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

// place is a Store and a Replicas that a test can break.
type place struct {
	store.MemoryStore
	store.MemoryReplicas

	mu     sync.Mutex
	broken error
	// silent lets nobody report or read reports.
	silent error
	saves  int
}

func (p *place) set(broken, silent error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.silent = broken, silent
}

func (p *place) errs() (broken, silent error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken, p.silent
}

func (p *place) Load(ctx context.Context) (store.Record, error) {
	if broken, _ := p.errs(); broken != nil {
		return store.Record{}, broken
	}
	return p.MemoryStore.Load(ctx)
}

func (p *place) Save(ctx context.Context, old store.Record, data map[string][]byte) error {
	if broken, _ := p.errs(); broken != nil {
		return broken
	}
	p.saves++
	return p.MemoryStore.Save(ctx, old, data)
}

func (p *place) Report(ctx context.Context, r *rotation.Report) error {
	if _, silent := p.errs(); silent != nil {
		return silent
	}
	return p.MemoryReplicas.Report(ctx, r)
}

func (p *place) List(ctx context.Context) ([]rotation.Report, error) {
	if _, silent := p.errs(); silent != nil {
		return nil, silent
	}
	return p.MemoryReplicas.List(ctx)
}

// Object makes it a place in a cluster.
func (p *place) Object() corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Secret", Name: "ca"}
}

func (p *place) put(t *testing.T, change func(data map[string][]byte) map[string][]byte) {
	t.Helper()
	record, err := p.MemoryStore.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.MemoryStore.Save(t.Context(), record, change(maps.Clone(record.Data))); err != nil {
		t.Fatal(err)
	}
}

// site is replicas that share a place and a clock.
type site struct {
	t      *testing.T
	clock  *certstest.Clock
	place  *place
	trust  *trusted
	events []certs.Event
}

func newSite(t *testing.T) *site {
	s := &site{t: t, clock: certstest.NewClock(), place: &place{}, trust: newTrusted()}
	s.trust.call("localhost")
	s.place.Now = s.clock.Now
	return s
}

// replica starts another one.
func (s *site) replica(name string) *SelfSigned {
	s.t.Helper()
	r, err := NewSelfSigned(s.t.Context(), SelfSignedConfig{
		Hosts: []string{"localhost"}, Store: s.place, Replicas: s.place, Replica: name, Trust: s.trust, Now: s.clock.Now,
		Notify: func(e certs.Event) { s.events = append(s.events, e) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// look makes all look, and the registrations trust what should be trusted.
func (s *site) look(publish bool, replicas ...*SelfSigned) {
	s.t.Helper()
	for _, r := range replicas {
		r.rotation.reconcile(s.t.Context())
		if publish {
			bundle, err := r.Bundle(s.t.Context())
			if err != nil {
				s.t.Fatal(err)
			}
			s.trust.set(bundle...)
		}
		for _, o := range replicas {
			cert, err := o.GetCertificate(nil)
			if err == nil {
				err = s.trust.Verify(cert, s.clock.Now())
			}
			if err != nil {
				s.t.Fatalf("%s in phase %s: %v", o.rotation.replica, o.State().Phase, err)
			}
		}
	}
}

// stored is the state that is stored.
func (s *site) stored() *rotation.State {
	s.t.Helper()
	record, err := s.place.MemoryStore.Load(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	state, err := rotation.Decode(record.Data)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

func (s *site) phase(want rotation.Phase) {
	s.t.Helper()
	if got := s.stored().Phase; got != want {
		s.t.Fatalf("phase %s, want %s", got, want)
	}
}

// saw reports whether there was an event of which a text is a part.
func (s *site) saw(text string) bool {
	return slices.ContainsFunc(s.events, func(e certs.Event) bool {
		return strings.Contains(e.Reason+": "+e.Message, text) || e.Err != nil && strings.Contains(e.Reason+": "+e.Err.Error(), text)
	})
}

// Whatever happens to what is stored, the CA is the same afterwards, and what is
// served is trusted all the time.
func TestHeal(t *testing.T) {
	foreign := newSite(t)
	foreign.replica("foreign")
	other, err := foreign.place.MemoryStore.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string][]byte) map[string][]byte{
		"deleted": func(map[string][]byte) map[string][]byte { return nil },
		"emptied": func(map[string][]byte) map[string][]byte { return map[string][]byte{} },
		"another state": func(map[string][]byte) map[string][]byte {
			return other.Data
		},
		"another CA": func(data map[string][]byte) map[string][]byte {
			data[rotation.KeyCurrentCert], data[rotation.KeyCurrentKey] = other.Data[rotation.KeyCurrentCert], other.Data[rotation.KeyCurrentKey]
			return data
		},
		"another certificate": func(data map[string][]byte) map[string][]byte {
			data[rotation.KeyCurrentCert] = other.Data[rotation.KeyCurrentCert]
			return data
		},
		"no key": func(data map[string][]byte) map[string][]byte {
			delete(data, rotation.KeyCurrentKey)
			return data
		},
		"another bundle": func(data map[string][]byte) map[string][]byte {
			data[rotation.KeyBundle] = other.Data[rotation.KeyBundle]
			return data
		},
		"no state": func(data map[string][]byte) map[string][]byte {
			delete(data, rotation.KeyState)
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			a, b := s.replica("a"), s.replica("b")
			s.trust.set(s.stored().Trusted(certstest.Noon)...)
			s.look(true, a, b)
			before, served := s.stored().Current.ID(), a.Certificate()
			s.clock.Advance(time.Minute) // the other lineage is the older one
			s.place.put(t, change)
			s.look(false, b, a)
			s.look(true, a, b)
			s.clock.Advance(time.Hour)
			for range 6 {
				s.look(true, a, b)
				s.clock.Advance(rotation.DefaultHold)
			}
			s.phase(rotation.Stable)
			if name != "another state" && (s.stored().Current.ID() != before || a.Certificate() != served) {
				t.Error("the CA or the leaf changed")
			}
			if !s.saw(certs.ReasonRecovered) {
				t.Errorf("nobody was told: %+v", s.events)
			}
			saves := s.place.saves
			s.look(true, a, b)
			if s.place.saves != saves {
				t.Error("what is right is written again")
			}
		})
	}
}

// A replica that remembers nothing leaves it to those that do.
func TestRecovery(t *testing.T) {
	s := newSite(t)
	a := s.replica("a")
	before := s.stored().Current.ID()
	s.place.put(t, func(map[string][]byte) map[string][]byte { return nil })
	b := s.replica("b")
	if b.Certificate() != nil || b.Healthy() == nil || !strings.Contains(b.Healthy().Error(), "waiting at most 15s for a replica that has the previous state") {
		t.Errorf("b serves, or does not say what it waits for: %v", b.Healthy())
	}
	a.rotation.reconcile(t.Context())
	b.rotation.reconcile(t.Context())
	if s.stored().Current.ID() != before || b.State().Current.ID() != before {
		t.Error("the CA is not the one that a remembers")
	}

	s.place.put(t, func(map[string][]byte) map[string][]byte { return nil })
	c := s.replica("c")
	s.clock.Advance(recoveryTime + time.Second) // a and b hang
	c.rotation.reconcile(t.Context())
	if c.Healthy() != nil || s.stored().Current.ID() == before {
		t.Errorf("c waits for ever: %v", c.Healthy())
	}
}

func TestStartsWhileTheStoreIsAway(t *testing.T) {
	s := newSite(t)
	s.place.set(errors.New("the API server cannot be reached"), nil)
	a := s.replica("a")
	if _, err := a.GetCertificate(nil); err == nil {
		t.Error("there is a certificate")
	}
	if err := a.Healthy(); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("Healthy: %v", err)
	}
	s.place.set(nil, errors.New("may not write Leases"))
	a.rotation.reconcile(t.Context())
	if a.Certificate() != nil {
		t.Error("a CA was made although nobody can tell who lives")
	}
	s.clock.Advance(recoveryTime)
	a.rotation.reconcile(t.Context())
	if err := a.Healthy(); err == nil || !strings.Contains(err.Error(), "may not write Leases") {
		t.Errorf("ready before anybody was told of it: %v", err)
	}
	s.place.set(nil, nil)
	a.rotation.reconcile(t.Context())
	if err := a.Healthy(); err != nil {
		t.Error(err)
	}
}

// Any number of replicas that begin at once with nothing come to have one CA.
func TestColdStart(t *testing.T) {
	for round := range 5 {
		s := &place{}
		var group sync.WaitGroup
		all := make([]*SelfSigned, 5)
		for i := range all {
			group.Go(func() {
				var err error
				all[i], err = NewSelfSigned(t.Context(), SelfSignedConfig{Hosts: []string{"localhost"}, Store: &s.MemoryStore, Replicas: &s.MemoryReplicas, Replica: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for i, r := range all {
			if err := r.Healthy(); err != nil {
				t.Fatalf("round %d, replica %d: %v", round, i, err)
			}
			if r.State().Current.ID() != all[0].State().Current.ID() {
				t.Fatalf("round %d: there are two CAs", round)
			}
		}
	}
}

// Nobody can tell whether clients trust a new CA that came up by itself, so it
// signs as late as possible.
func TestHoldWithoutTrust(t *testing.T) {
	c := certstest.NewClock()
	s, err := NewSelfSigned(t.Context(), SelfSignedConfig{Hosts: []string{"localhost"}, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	first := s.State().Current.ID()
	c.Advance(300 * day)
	s.rotation.reconcile(t.Context())
	c.Advance(57 * day)
	s.rotation.reconcile(t.Context())
	if got := s.State(); got.Phase != rotation.Hold || got.Current.ID() != first {
		t.Fatalf("after 357 days: %s", got.Phase)
	}
	c.Advance(2 * day)
	s.rotation.reconcile(t.Context())
	if s.State().Current.ID() == first {
		t.Error("a CA that ends in a week signs for a week")
	}
}

// A damaged state that no replica remembers is replaced by a new CA, which is an error:
// clients must be given it.
func TestReplaced(t *testing.T) {
	s := newSite(t)
	s.replica("a")
	before := s.stored().Current.ID()
	if err := s.place.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.place.put(t, func(data map[string][]byte) map[string][]byte {
		delete(data, rotation.KeyState)
		return data
	})
	if got := s.replica("b").State().Current.ID(); got == before {
		t.Error("a CA of the damaged state is used")
	}
	if i := slices.IndexFunc(s.events, func(e certs.Event) bool { return e.Reason == certs.ReasonReplaced }); i < 0 || s.events[i].Err == nil {
		t.Errorf("no error is reported: %+v", s.events)
	}
}
