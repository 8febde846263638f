package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The model has replicas that share a CA and are elected in turn, API servers that notice a registration late, and a store that is
// deleted, damaged and out of reach of some replicas. No replica may ever serve a certificate of a CA that an API server does not
// trust.

const (
	modelHold, modelLeaf, modelLife = 10 * time.Minute, 2 * time.Hour, 9 * time.Hour
	modelTick                       = time.Minute
)

// model is one run.
type model struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	store  memoryStore
	// bundles are what the registration had, with the time from which on.
	bundles []modelBundle
	// lags are how late API servers notice.
	lags     []time.Duration
	replicas []*modelReplica
	leader   int
	// requests reports whether administrators ask for rotations, between which no replica is out of reach for long.
	requests bool
	rotated  int
}

type modelBundle struct {
	from  time.Time
	certs []*x509.Certificate
}

// modelReplica is a process, which cannot reach the store before a time.
type modelReplica struct {
	*OwnCA
	m     *model
	reach time.Time
}

// Verify, Holds and Changed implement Trust.
func (m *model) Verify(*tls.Certificate, time.Time) error { return nil }

func (m *model) Changed() <-chan struct{} { return nil }

func (m *model) Holds(ca *x509.Certificate) error {
	if len(m.bundles) == 0 || !slices.ContainsFunc(m.bundles[len(m.bundles)-1].certs, ca.Equal) {
		return errors.New("it is not there")
	}
	return nil
}

// modelStore is a replica's way to the store.
type modelStore struct {
	*memoryStore

	of *modelReplica
}

func (s modelStore) Load(ctx context.Context) (Record, error) {
	if s.of.m.now.Before(s.of.reach) {
		return Record{}, errors.New("out of reach")
	}
	return s.memoryStore.Load(ctx)
}

// start starts the process of a replica, which remembers nothing.
func (m *model) start() *modelReplica {
	r := &modelReplica{m: m}
	own, err := NewOwnCA(m.t.Context(), OwnCAConfig{
		Hosts: []string{"a"}, Store: modelStore{&m.store, r}, Trust: m, Life: modelLife, LeafLife: modelLeaf, Hold: modelHold, Now: func() time.Time { return m.now },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	r.OwnCA = own
	return r
}

// step lets a minute pass.
func (m *model) step() {
	m.now = m.now.Add(modelTick)
	switch chance := m.random.IntN(1000); {
	case chance < 20: // another replica is elected
		if i := m.random.IntN(len(m.replicas)); !m.now.Before(m.replicas[i].reach) {
			m.leader = i
		}
	case chance < 30: // a process ends, and another starts
		m.replicas[m.random.IntN(len(m.replicas))] = m.start()
	case chance < 35: // somebody deletes the CA
		m.store.record.Data = nil
		m.replicas[m.leader].lead(m)
	case chance < 40: // or damages it
		data := map[string][]byte{KeyState: []byte("{}")}
		m.store.record.Data = data
		m.replicas[m.leader].lead(m)
	case chance < 60: // a replica cannot read it
		longest := 5 * time.Hour
		if m.requests {
			longest = modelHold / 4
		}
		if i := m.random.IntN(len(m.replicas)); i != m.leader { // which would not stay elected
			m.replicas[i].reach = m.now.Add(time.Duration(m.random.Int64N(int64(longest))))
		}
	case chance < 65 && m.requests:
		m.store.record.Request = m.now.String()
	}
	for i, r := range m.replicas {
		if i == m.leader {
			r.lead(m)
		} else {
			r.leads.Store(false)
			r.reconcile(m.t.Context())
		}
	}
	m.check()
}

// lead is a round of the replica that is elected, which writes the registration sooner or later.
func (r *modelReplica) lead(m *model) {
	r.leads.Store(true)
	before := r.State()
	r.reconcile(m.t.Context())
	if after := r.State(); before != nil && after != nil && before.Phase() != Stable && after.Phase() == Stable {
		m.rotated++
	}
	if m.random.IntN(3) > 0 {
		return
	}
	if list, err := r.Bundle(m.t.Context()); err == nil {
		m.bundles = append(m.bundles, modelBundle{m.now, list})
	}
}

// check fails the test if an API server does not trust what a replica serves.
func (m *model) check() {
	for _, lag := range m.lags {
		var trusted []*x509.Certificate
		for _, b := range slices.Backward(m.bundles) {
			if !b.from.After(m.now.Add(-lag)) {
				trusted = b.certs
				break
			}
		}
		if trusted == nil {
			continue // it is the first start, and no replica is ready
		}
		for i, r := range m.replicas {
			leaf := r.leaf.Load()
			if leaf == nil || m.now.After(leaf.Leaf.NotAfter) {
				if !m.now.Before(r.reach) {
					m.t.Fatalf("%s: replica %d has no valid certificate", m.now, i)
				}
				continue
			}
			if !slices.ContainsFunc(trusted, func(ca *x509.Certificate) bool { return (&Authority{Cert: ca}).signed(leaf) }) {
				m.t.Fatalf("%s: replica %d serves a certificate until %s that an API server with a lag of %s does not trust; the state is %s since %s",
					m.now, i, leaf.Leaf.NotAfter, lag, m.replicas[m.leader].State().Phase(), m.replicas[m.leader].State().Since)
			}
		}
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := &model{t: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), requests: seed%2 == 1}
			for range 3 {
				m.lags = append(m.lags, time.Duration(m.random.Int64N(int64(modelHold-2*modelTick))))
				m.replicas = append(m.replicas, m.start())
			}
			for range 2 * 24 * 60 {
				m.step()
			}
			if m.rotated < 3 {
				t.Errorf("the CA was rotated %d times: this run shows nothing", m.rotated)
			}
		})
	}
}

// Each step waits for what it depends on.
func TestStep(t *testing.T) {
	t.Parallel()
	state := &State{Generation: 1, Hold: modelHold}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var err error
	if state.Active, err = NewAuthority(now, modelLife); err != nil {
		t.Fatal(err)
	}
	policy := &Policy{New: func(now time.Time) (*Authority, error) { return NewAuthority(now, modelLife) }, LeafLife: modelLeaf, Hold: modelHold}
	trusted, ok := time.Duration(0), false
	o := &Observation{Now: now, Request: "1", Trusted: func(*x509.Certificate) (time.Duration, bool) { return trusted, ok }}
	step := func(want Phase) {
		t.Helper()
		next, _, err := Step(state, o, policy)
		if err != nil {
			t.Fatal(err)
		}
		if next != nil {
			state = next
		}
		if state.Phase() != want {
			t.Fatalf("the phase is %s, want %s", state.Phase(), want)
		}
	}
	step(Published)
	first := state.Active
	o.Watched, trusted = time.Hour, time.Hour
	step(Published) // a registration does not have it
	ok, trusted = true, modelHold-1
	step(Published) // not for long enough
	trusted = modelHold
	step(Activated)
	if state.Retired.Key != nil || !state.Retired.Cert.Equal(first.Cert) {
		t.Error("the old CA keeps its key")
	}
	o.Watched = modelHold - 1
	step(Activated)
	o.Watched, ok = modelHold, false
	step(Activated) // somebody took the new one away
	ok = true
	step(Stable)
	if state.Done != "1" {
		t.Errorf("the request that is done is %q", state.Done)
	}
	step(Stable)

	// One that is due is removed when the last certificate of the old CA has expired.
	o.Now = DueAt(state.Active.Cert)
	step(Published)
	step(Activated)
	o.Now, o.Watched = o.Now.Add(modelLeaf), time.Hour
	step(Activated)
	o.Now = o.Now.Add(modelHold)
	step(Stable)
}
