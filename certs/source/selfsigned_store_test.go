package source

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/certstest"
	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
	"github.com/gatehouse-dev/gatehouse/certs/store"
)

// A replica that starts where nothing can be written goes on with the CA that it can
// read, as one that runs would, and says what it could not write.
func TestStartsWhereNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), certstest.NewClock()
	var events []certs.Event
	start := func() *SelfSigned {
		s, err := NewSelfSigned(t.Context(), SelfSignedConfig{
			Hosts: []string{"localhost"}, Store: store.NewDirStore(dir), Replicas: store.NewDirReplicas(dir, "one", c.Now), Replica: "one", Now: c.Now,
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
	// What is in the place of the files lets nothing be written for root either.
	for _, name := range []string{"replicas", store.ClientKeyFile} {
		certstest.Remove(t, filepath.Join(dir, name))
	}
	certstest.Write(t, filepath.Join(dir, "replicas"), nil)
	if err := os.Mkdir(filepath.Join(dir, store.ClientKeyFile), 0o700); err != nil {
		t.Fatal(err)
	}
	events = nil
	second := start()
	if err := second.Healthy(); err != nil {
		t.Errorf("Healthy: %v", err)
	}
	if second.State().Current.ID() != first.State().Current.ID() || second.IsReconciled() {
		t.Errorf("the CA is another one, or all is reported to be reconciled: %v", second.IsReconciled())
	}
	if !slices.ContainsFunc(events, func(e certs.Event) bool {
		return e.Reason == certs.ReasonStoreFailed && errors.Is(e.Err, store.ErrUnwritten) && strings.Contains(e.Err.Error(), "replicas") && strings.Contains(e.Err.Error(), ": cannot write it: not a directory")
	}) {
		t.Errorf("the events are %+v", events)
	}
	if err := second.WriteDir(dir); !errors.Is(err, store.ErrUnwritten) || !strings.Contains(err.Error(), store.ClientKeyFile+": cannot write it: ") {
		t.Errorf("WriteDir: %v", err)
	}
	// What WriteDir could not write is tried again.
	certstest.Remove(t, filepath.Join(dir, store.ClientKeyFile))
	certstest.Remove(t, filepath.Join(dir, "replicas"))
	c.Advance(store.ReportInterval)
	second.rotation.reconcile(t.Context())
	if _, err := pki.ReadPair(filepath.Join(dir, store.ClientCertFile), filepath.Join(dir, store.ClientKeyFile)); err != nil || !second.IsReconciled() {
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

// Two processes of one name, of which one is cut off while the CA is replaced, is
// what nobody should do, and takes nothing from anybody.
func TestLeasesOfOneNameThroughARotation(t *testing.T) {
	t.Parallel()
	api, c := certstest.NewAPIServer(t), certstest.NewClock()
	api.Now = c.Now
	cut := certstest.NewAPIServer(t)
	cut.Objects, cut.Now = api.Objects, c.Now
	start := func(api *certstest.APIServer) *SelfSigned {
		s, err := NewSelfSigned(t.Context(), SelfSignedConfig{
			Hosts: []string{"a"}, Replica: "node", Now: c.Now, Store: store.NewSecretStore(store.SecretStoreConfig{Client: api.Client(), Namespace: "system", Name: "ca"}), Replicas: store.NewLeases(store.LeasesConfig{Client: api.Client(), Namespace: "system", Group: "ca", Replica: "node", LeafLife: certstest.Week, Now: c.Now}),
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two := start(api), start(cut)
	cut.Set(certstest.Refuses(503, "no", "get"))
	if _, err := store.RequestRotation(t.Context(), one.rotation.store, false, c.Now()); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		c.Advance(20 * time.Second)
		one.rotation.reconcile(t.Context())
	}
	if s := one.State(); s.Phase != rotation.Activate || !leadsTo(s.Previous.Cert, two.Certificate()) {
		t.Errorf("the CA of one that serves is forgotten in phase %s", s.Phase)
	}
}
