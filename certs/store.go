package certs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// ErrConflict means that the record has changed since it was loaded. The remedy is to
// load it again.
var ErrConflict = errors.New("another client has changed it")

// Record is what a Store holds.
type Record struct {
	// Data has the keys of Keys, and others that other clients wrote. It is empty if nothing is stored.
	Data map[string][]byte
	// Request is the last request for a new CA, "" if there was none.
	Request string

	// secret is the object that was read, nil if it does not exist.
	secret *corev1.Secret
}

// Store keeps a State. All methods are safe for concurrent use. An error names the place, the problem and
// the remedy.
type Store interface {
	// Load reads the record, not from a cache.
	Load(ctx context.Context) (Record, error)
	// Save replaces the record that Load returned, or returns ErrConflict if it has changed.
	// It removes keys of a State that the data lacks; other keys stay.
	Save(ctx context.Context, old Record, data map[string][]byte) error
	// Request asks for a new CA, under a name that no request before had.
	Request(ctx context.Context, request string) error
	// Object returns the object, of no kind if there is none.
	Object() corev1.ObjectReference
	// String returns the place for messages: "Secret gatehouse-system/gatehouse-ca".
	String() string
}

// foreignError returns an error if the place of a Store holds something that Gatehouse did not write, which it
// leaves unchanged. A Secret without data is no problem: it may be made in advance.
func foreignError(place string, data map[string][]byte) error {
	for _, key := range Keys() {
		if _, ok := data[key]; ok && key != KeyBundle { // which others use too
			return nil
		}
	}
	if len(data) == 0 {
		return nil
	}
	return fmt.Errorf("%s: it holds %.200q and no CA of Gatehouse, so Gatehouse does not change it (hint: use another place, or move it away if it is not needed)",
		place, strings.Join(slices.Sorted(maps.Keys(data)), ", "))
}

// memoryStore is a Store of this process alone.
type memoryStore struct {
	mu     sync.Mutex
	record Record
}

func (m *memoryStore) Load(context.Context) (Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record, nil
}

func (m *memoryStore) Save(_ context.Context, _ Record, data map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record.Data = data
	return nil
}

func (m *memoryStore) Request(_ context.Context, request string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.record.Request = request
	return nil
}

func (*memoryStore) Object() corev1.ObjectReference { return corev1.ObjectReference{} }
func (*memoryStore) String() string                 { return "memory" }
