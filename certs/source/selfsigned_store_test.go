package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/store"
	"github.com/gatehouse-dev/gatehouse/test/support/certstest"
)

// A replica that starts where nothing can be written goes on with the CA that it can
// read, as one that runs would, and says what it could not write.
func TestStartsWhereNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), certstest.NewClock()
	var events []certs.Event
	start := func() *SelfSigned {
		s, err := NewSelfSigned(t.Context(), SelfSignedConfig{
			Hosts: []string{"localhost"}, Store: store.NewDirStore(dir), Now: c.Now,
			Notify: func(e certs.Event) { events = append(events, e) },
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := start()
	if err := errors.Join(first.Healthy(), first.WriteDir(dir)); err != nil {
		t.Fatal(err)
	}
	first.Leave(t.Context())
	// A directory in the place of a file lets nothing be written for root either.
	key := filepath.Join(dir, store.ClientKeyFile)
	certstest.Remove(t, key)
	if err := os.Mkdir(key, 0o700); err != nil {
		t.Fatal(err)
	}
	second := start()
	if err := second.Healthy(); err != nil {
		t.Errorf("Healthy: %v", err)
	}
	if second.State().Current.ID() != first.State().Current.ID() {
		t.Error("the CA is another one")
	}
	if err := second.WriteDir(dir); !errors.Is(err, store.ErrUnwritten) || !strings.Contains(err.Error(), store.ClientKeyFile+": cannot write it: ") {
		t.Errorf("WriteDir: %v", err)
	}
	events = nil
	second.rotation.reconcile(t.Context())
	if err := second.Healthy(); err != nil || second.IsReconciled() || !slices.ContainsFunc(events, func(e certs.Event) bool {
		return e.Reason == certs.ReasonStoreFailed && errors.Is(e.Err, store.ErrUnwritten)
	}) {
		t.Errorf("Healthy: %v, and the events are %+v", err, events)
	}
	// What could not be written is tried again.
	certstest.Remove(t, key)
	second.rotation.reconcile(t.Context())
	if _, err := pki.ReadPair(filepath.Join(dir, store.ClientCertFile), key); err != nil || !second.IsReconciled() {
		t.Errorf("what can be written again is not: %v, %v", err, second.rotation.lastError())
	}

	// Without a CA to read there is nothing to serve.
	empty := t.TempDir()
	if err := os.Mkdir(filepath.Join(empty, ".lock"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir = empty
	if err := start().Healthy(); err == nil {
		t.Error("a replica without a CA is healthy")
	}
}
