package certs

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
)

func newOwnCA(t *testing.T, store Store, c *clock, change func(*OwnCAConfig)) *OwnCA {
	t.Helper()
	config := OwnCAConfig{Hosts: []string{"gatehouse.example", "127.0.0.1"}, Store: store, Now: c.now, Hold: time.Minute}
	if change != nil {
		change(&config)
	}
	o, err := NewOwnCA(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOwnCAIssues(t *testing.T) {
	t.Parallel()
	c := newClock()
	o := newOwnCA(t, nil, c, nil)
	first, err := o.GetCertificate(nil)
	if err != nil || o.Healthy() != nil {
		t.Fatal(err, o.Healthy())
	}
	for _, host := range []string{"gatehouse.example", "127.0.0.1"} {
		if err := first.Leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if !first.Leaf.NotBefore.Equal(noon.Add(-Backdate)) || !first.Leaf.NotAfter.Equal(noon.Add(DefaultLeafLife)) || !o.State().Active.signed(first) {
		t.Errorf("valid from %s until %s", first.Leaf.NotBefore, first.Leaf.NotAfter)
	}
	c.advance(DefaultLeafLife * 2 / 3)
	o.reconcile(t.Context())
	if again, _ := o.GetCertificate(nil); again == first {
		t.Error("it is not renewed after two thirds of its life")
	}
	for _, host := range []string{"", "https://a", "a:443", "1.2.3", "[::1]", "a_b"} {
		if _, err := NewOwnCA(t.Context(), OwnCAConfig{Hosts: []string{host}}); err == nil || !strings.Contains(err.Error(), "is neither a DNS name nor an IP address") {
			t.Errorf("host %q: %v", host, err)
		}
	}
}

// brokenStore fails while broken is set.
type brokenStore struct {
	memoryStore
	broken error
}

func (b *brokenStore) Load(ctx context.Context) (Record, error) {
	if b.broken != nil {
		return Record{}, b.broken
	}
	return b.memoryStore.Load(ctx)
}

// A replica that cannot read the store keeps its certificate until that ends, and issues none that lasts longer.
func TestOwnCAWithoutStore(t *testing.T) {
	t.Parallel()
	c, store := newClock(), &brokenStore{broken: errors.New("away")}
	o := newOwnCA(t, store, c, nil)
	if err := o.Healthy(); err == nil || !strings.Contains(err.Error(), "there is none yet: away") {
		t.Errorf("got %v", err)
	}
	store.broken = nil
	o.reconcile(t.Context())
	first, err := o.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	store.broken = errors.New("away")
	for range 6 {
		c.advance(day)
		o.reconcile(t.Context())
		if now, _ := o.GetCertificate(nil); o.Healthy() != nil || now != first || o.IsReconciled() {
			t.Fatalf("at %s: %v", c, o.Healthy())
		}
	}
	c.advance(2 * day)
	if o.reconcile(t.Context()); o.Healthy() == nil {
		t.Error("it is healthy with an expired certificate")
	}
	store.broken = nil
	if o.reconcile(t.Context()); o.Healthy() != nil || !o.IsReconciled() {
		t.Error(o.Healthy())
	}
}

// TestMissingRightIsReported: once, from the second round on, because an install may be about to grant it, and once when it is there.
func TestMissingRightIsReported(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "gatehouse-ca", errors.New("no"))
	for name, test := range map[string]struct {
		rounds []error
		want   []string
	}{
		"never missing":  {[]error{nil, nil}, nil},
		"granted soon":   {[]error{forbidden, nil, nil}, nil},
		"granted late":   {[]error{forbidden, forbidden, nil, nil}, []string{ReasonStoreFailed, ReasonStoreAvailable}},
		"granted later":  {[]error{forbidden, forbidden, forbidden, forbidden, nil, nil}, []string{ReasonStoreFailed, ReasonStoreAvailable}},
		"missing twice":  {[]error{forbidden, forbidden, nil, forbidden, nil, forbidden, forbidden}, []string{ReasonStoreFailed, ReasonStoreAvailable, ReasonStoreFailed}},
		"something else": {[]error{errors.New("away"), nil}, []string{ReasonStoreFailed}},
	} {
		c, store := newClock(), &brokenStore{}
		var got []string
		o := newOwnCA(t, store, c, func(cfg *OwnCAConfig) {
			cfg.Notify = func(e Event) {
				if e.Reason == ReasonStoreFailed || e.Reason == ReasonStoreAvailable {
					got = append(got, e.Reason)
				}
			}
		})
		for _, err := range test.rounds {
			store.broken = err
			c.advance(time.Second)
			o.reconcile(t.Context())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: it reports %q, want %q", name, got, test.want)
		}
	}
}

// Only the elected replica writes, but for the first CA. It restores what it remembers.
func TestOwnCARecovers(t *testing.T) {
	t.Parallel()
	c, store := newClock(), &memoryStore{}
	var reasons []string
	notify := func(e Event) {
		if e.Reason != "" {
			reasons = append(reasons, e.Reason+": "+e.Message)
		}
	}
	leader := newOwnCA(t, store, c, func(cfg *OwnCAConfig) { cfg.Notify = notify })
	other := newOwnCA(t, store, c, nil)
	first := leader.State().Active
	if !other.State().Active.Cert.Equal(first.Cert) {
		t.Fatal("the second replica made a CA of its own")
	}
	leader.leads.Store(true)
	good := store.record.Data
	for says, data := range map[string]map[string][]byte{
		"the CA was deleted": nil, "the CA was damaged: state.json: is missing or damaged": {KeyState: []byte("{}")},
		"another client wrote another CA": dataOf(t, &State{Generation: 1, Active: newCA(t)}),
	} {
		store.record.Data = data
		other.reconcile(t.Context())
		if !maps.EqualFunc(store.record.Data, data, bytes.Equal) || other.IsReconciled() {
			t.Errorf("%s: a replica that is not elected wrote it, or is content", says)
		}
		reasons = nil
		leader.reconcile(t.Context())
		other.reconcile(t.Context())
		if !leader.State().Active.Cert.Equal(first.Cert) || !other.IsReconciled() || len(reasons) != 1 || !strings.HasPrefix(reasons[0], ReasonRecovered+": "+says) {
			t.Errorf("%s: it was not restored, or %q", says, reasons)
		}
	}
	// What a process remembers from before it was away restores nothing.
	store.record.Data = good
	c.advance(2 * staleTime)
	store.record.Data = dataOf(t, &State{Generation: 1, Active: newCA(t)})
	leader.reconcile(t.Context())
	if leader.State().Active.Cert.Equal(first.Cert) {
		t.Error("an old CA was restored")
	}
	// A damaged CA that nobody remembers is replaced by the elected replica alone.
	store.record.Data = map[string][]byte{KeyState: []byte("{}")}
	stranger := newOwnCA(t, store, c, nil)
	if err := stranger.Healthy(); err == nil || !strings.Contains(err.Error(), "state.json: is missing or damaged") {
		t.Errorf("got %v", err)
	}
	stranger.leads.Store(true)
	if stranger.reconcile(t.Context()); stranger.Healthy() != nil {
		t.Error(stranger.Healthy())
	}
}

func dataOf(t *testing.T, s *State) map[string][]byte {
	t.Helper()
	data, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestStateCodec(t *testing.T) {
	t.Parallel()
	active, next := newCA(t), newCA(t)
	for _, s := range []*State{
		{Generation: 1, Since: noon, Active: active},
		{Generation: 7, Since: noon, Requested: true, Done: "x", Active: active, Next: next},
		{Generation: 8, Since: noon, Active: next, Retired: &Authority{Cert: active.Cert}},
	} {
		data := dataOf(t, s)
		got, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if again := dataOf(t, got); !maps.EqualFunc(data, again, bytes.Equal) {
			t.Errorf("%s: got %q, want %q", s.Phase(), again, data)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if key == KeyBundle {
				continue
			}
			for name, broken := range map[string][]byte{"missing": nil, "cut": data[key][:len(data[key])/2], "another": []byte("hunter2")} {
				damaged := maps.Clone(data)
				damaged[key] = broken
				if _, err := Decode(damaged); err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%s: %s %s: %v", s.Phase(), key, name, err)
				}
			}
		}
	}
	swapped := dataOf(t, &State{Generation: 1, Active: active})
	swapped["active.key"] = dataOf(t, &State{Generation: 1, Active: next})["active.key"]
	if _, err := Decode(swapped); err == nil || err.Error() != "active.key: is not the key of active.crt" {
		t.Errorf("got %v", err)
	}
	if _, err := Decode(map[string][]byte{"other": []byte("x")}); !errors.Is(err, ErrEmpty) {
		t.Errorf("got %v", err)
	}
}

func TestDirStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "certs")
	store, c := NewDirStore(dir), newClock()
	release, err := store.Occupy()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewDirStore(dir).Occupy(); err == nil || !strings.Contains(err.Error(), "another server uses it") {
		t.Errorf("got %v", err)
	}
	o := newOwnCA(t, store, c, func(cfg *OwnCAConfig) { cfg.Alone = true })
	if err := o.Healthy(); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{AuthorityFile: 0o600, ClientKeyFile: 0o600, ClientCertFile: 0o644, CAFile: 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	client := func() []byte {
		text, err := os.ReadFile(filepath.Join(dir, ClientCertFile))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := client()
	if o.reconcile(t.Context()); !bytes.Equal(client(), before) {
		t.Error("the client certificate is issued again without a need")
	}

	// A rotation that is requested: without registrations to read, the new CA signs after the hold.
	if err := store.Request(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Phase{Published, Activated, Stable} {
		if o.reconcile(t.Context()); o.State().Phase() != want {
			t.Fatalf("the phase is %s, want %s", o.State().Phase(), want)
		}
		c.advance(2 * time.Minute)
	}
	if bytes.Equal(client(), before) {
		t.Error("the client certificate is still of the old CA")
	}
	if again := newOwnCA(t, NewDirStore(dir), c, nil); !again.State().Active.Cert.Equal(o.State().Active.Cert) {
		t.Error("the CA is another one after a restart")
	}
	release()

	for says, spoil := range map[string]func(dir string) error{
		"its mode is 0644, so other users can read":       func(dir string) error { return os.Chmod(filepath.Join(dir, AuthorityFile), 0o644) },
		"every user of this machine can write a CA there": func(dir string) error { return os.Chmod(dir, 0o777) },
		"is missing or damaged":                           func(dir string) error { return os.WriteFile(filepath.Join(dir, AuthorityFile), []byte("{"), 0o600) },
		"it holds \"a\" and no CA of Gatehouse": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, AuthorityFile), []byte(`{"a":"b"}`), 0o600)
		},
		"it is not a regular file of at most 1048576 bytes": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, AuthorityFile)), os.Mkdir(filepath.Join(dir, AuthorityFile), 0o700))
		},
	} {
		dir := t.TempDir()
		_ = newOwnCA(t, NewDirStore(dir), c, nil)
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if err := newOwnCA(t, NewDirStore(dir), c, nil).Healthy(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	foreign := t.TempDir()
	write(t, filepath.Join(foreign, CAFile), []byte("x"))
	if _, err := NewDirStore(foreign).Occupy(); err == nil || !strings.Contains(err.Error(), "it has ca.crt and no authority.json") {
		t.Errorf("got %v", err)
	}
}

func TestSecretStore(t *testing.T) {
	t.Parallel()
	api := fakeapi.New()
	api.Serve(fakeapi.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret", Namespaced: true})
	client, err := kubernetes.NewForConfig(api.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets("system")
	store := &SecretStore{Client: client, Namespace: "system", Name: "ca"}
	empty, err := store.Load(t.Context())
	if err != nil || empty.Data != nil {
		t.Fatal(empty, err)
	}
	data := dataOf(t, &State{Generation: 1, Active: newCA(t)})
	if err := store.Save(t.Context(), empty, data); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), empty, data); !errors.Is(err, ErrConflict) {
		t.Errorf("the second who creates it gets %v", err)
	}
	first, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Request(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), first, data); !errors.Is(err, ErrConflict) {
		t.Errorf("a stale writer gets %v", err)
	}
	second, err := store.Load(t.Context())
	if err != nil || second.Request != "1" {
		t.Fatal(second.Request, err)
	}
	second.secret.Data["other"] = []byte("stays")
	if err := store.Save(t.Context(), second, map[string][]byte{KeyState: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	found, err := secrets.Get(t.Context(), "ca", metav1.GetOptions{})
	if err != nil || len(found.Data) != 2 || string(found.Data["other"]) != "stays" || found.Annotations[RotateAnnotation] != "1" {
		t.Errorf("got %v, %v", found, err)
	}
	for name, secret := range map[string]*corev1.Secret{
		"tls": {Type: corev1.SecretTypeTLS}, "foreign": {Data: map[string][]byte{"password": []byte("hunter2")}},
	} {
		secret.Name = name
		if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		one := &SecretStore{Client: client, Namespace: "system", Name: name}
		if _, err := one.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "so Gatehouse does not change it") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
