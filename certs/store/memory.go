package store

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// MemoryStore is a Store in memory, for a single replica. Its zero value is empty and ready
// for use.
type MemoryStore struct {
	mu      sync.Mutex
	data    map[string][]byte
	version int
	changed chan struct{}
}

// Load implements Store.
func (s *MemoryStore) Load(context.Context) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Record{Exists: s.data != nil, Data: maps.Clone(s.data), Version: strconv.Itoa(s.version)}, nil
}

// Save implements Store.
func (s *MemoryStore) Save(_ context.Context, old Record, data map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old.Version != strconv.Itoa(s.version) {
		return ErrConflict
	}
	s.data = maps.Clone(data)
	s.version++
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	return nil
}

// Watch implements Store.
func (s *MemoryStore) Watch(ctx context.Context, changed func()) {
	for {
		s.mu.Lock()
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		wait := s.changed
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-wait:
			changed()
		}
	}
}

// String implements Store.
func (s *MemoryStore) String() string { return "memory" }

// MemoryReplicas is a Replicas for the replicas of one process, each with its own name.
// Leave removes the reports of all. Its zero value is ready for use.
type MemoryReplicas struct {
	// Now returns the time at which the replica is seen; nil is time.Now.
	Now func() time.Time
	// Release is called by Leave; nil does nothing.
	Release func()

	mu   sync.Mutex
	list []rotation.Report
}

// Report implements Replicas.
func (m *MemoryReplicas) Report(_ context.Context, r *rotation.Report) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := *r
	seen.Seen = clock.Wall(m.Now)
	m.list = slices.DeleteFunc(slices.Clone(m.list), func(o rotation.Report) bool { return o.Replica == r.Replica })
	m.list = append(m.list, seen)
	return nil
}

// List implements Replicas.
func (m *MemoryReplicas) List(context.Context) ([]rotation.Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list, nil
}

// Leave implements Replicas.
func (m *MemoryReplicas) Leave(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = nil
	if m.Release != nil {
		m.Release()
	}
	return nil
}
