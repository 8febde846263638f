package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
)

// fakeKeyring is a Keyring in memory.
type fakeKeyring struct {
	keys map[string]string
	// check and fails are errors of Check and of all other methods.
	check, fails error
	// forgets is a keyring that reports a success and stores nothing.
	forgets bool
	// hangs blocks each call until it is closed.
	hangs chan struct{}
	calls atomic.Int32
}

func newFakeKeyring() *fakeKeyring { return &fakeKeyring{keys: map[string]string{}} }

func (k *fakeKeyring) call() error {
	k.calls.Add(1)
	if k.hangs != nil {
		<-k.hangs
	}
	return k.fails
}

func (k *fakeKeyring) Check() error { return k.check }

func (k *fakeKeyring) Get(account string) (string, error) {
	if err := k.call(); err != nil {
		return "", err
	}
	key, ok := k.keys[account]
	if !ok {
		return "", keyring.ErrNotFound
	}
	return key, nil
}

func (k *fakeKeyring) Set(account, key string) error {
	if err := k.call(); err != nil || k.forgets {
		return err
	}
	k.keys[account] = key
	return nil
}

func (k *fakeKeyring) Delete(account string) error {
	if err := k.call(); err != nil {
		return err
	}
	if _, ok := k.keys[account]; !ok {
		return keyring.ErrNotFound
	}
	delete(k.keys, account)
	return nil
}

const hushed = "hush-hush-hush"

// secretCredential is a credential that is longer than an item of some keyrings may be.
func secretCredential() *Credential {
	c := credential(hushed, noon)
	c.RefreshToken = hushed + strings.Repeat("x", 5000)
	return c
}

// storedText returns what is in the directory of a cache.
func storedText(t *testing.T, c *Cache) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.Dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text += string(data)
	}
	return text
}

// storeOf returns where the login of the zero Identity is.
func storeOf(c *Cache) Store {
	f, err := c.entry(Identity{}).readFile()
	switch {
	case err != nil || f == nil:
		return StoreNone
	case f.KeyringAccount != "":
		return StoreKeyring
	}
	return StoreFile
}

// Each store keeps the secrets in one place, or says why it stores nothing.
func TestStores(t *testing.T) {
	t.Parallel()
	locked := errors.New("it is locked")
	for _, c := range []struct {
		name    string
		store   Store
		keyring *fakeKeyring
		unlock  time.Duration
		want    Store
		says    string
	}{
		{name: "auto", store: StoreAuto, keyring: newFakeKeyring(), want: StoreKeyring},
		{name: "auto, locked", store: StoreAuto, keyring: &fakeKeyring{check: locked}, want: StoreFile},
		{name: "auto, broken", store: StoreAuto, keyring: &fakeKeyring{fails: errors.New("exit status 36")}, want: StoreFile},
		{name: "auto, forgets", store: StoreAuto, keyring: &fakeKeyring{keys: map[string]string{}, forgets: true}, want: StoreFile},
		{name: "auto, too large", store: StoreAuto, keyring: &fakeKeyring{fails: keyring.ErrSetDataTooBig}, want: StoreFile},
		{
			name: "keyring, too large", store: StoreKeyring, keyring: &fakeKeyring{fails: keyring.ErrSetDataTooBig}, want: StoreNone,
			says: "gatehouse: the login is not stored: the OS keyring cannot be used: data passed to Set was too big (hint: unlock the keyring, or --token-store file)\n",
		},
		{name: "unset", keyring: newFakeKeyring(), want: StoreKeyring},
		{name: "keyring", store: StoreKeyring, keyring: newFakeKeyring(), want: StoreKeyring},
		{
			name: "keyring, locked", store: StoreKeyring, keyring: &fakeKeyring{check: locked}, want: StoreNone,
			says: "gatehouse: the login is not stored: the OS keyring cannot be used: it is locked (hint: unlock the keyring, or --token-store file)\n",
		},
		{name: "keyring, a person unlocks it", store: StoreKeyring, keyring: &fakeKeyring{keys: map[string]string{}, check: locked}, unlock: time.Minute, want: StoreKeyring},
		{
			name: "keyring, forgets", store: StoreKeyring, keyring: &fakeKeyring{keys: map[string]string{}, forgets: true}, want: StoreNone,
			says: "gatehouse: the login is not stored: the OS keyring cannot be used: it does not store what it is given (hint: unlock the keyring, or --token-store file)\n",
		},
		{name: "file", store: StoreFile, keyring: newFakeKeyring(), want: StoreFile},
		{name: "none", store: StoreNone, keyring: newFakeKeyring(), want: StoreNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &fake{}
			s := newSession(t, m)
			s.Interactive, s.Cache.Store, s.Cache.Keyring, s.Cache.UnlockTimeout = true, c.store, c.keyring, c.unlock
			want := secretCredential()
			m.login = func(context.Context) (*Credential, error) { return want, nil }
			got, err := s.Get(t.Context())
			if err != nil || *got != *want {
				t.Fatalf("got %+v, %v", got, err)
			}
			if said := fmt.Sprint(s.Remarks); said != c.says {
				t.Errorf("said %q, want %q", said, c.says)
			}
			if store := storeOf(s.Cache); store != c.want {
				t.Errorf("it is in %q, want %q", store, c.want)
			}
			text := storedText(t, s.Cache)
			if strings.Contains(text, hushed) != (c.want == StoreFile) || (text == "") != (c.want == StoreNone) {
				t.Errorf("stored in a file: %s", text)
			}
			for account, key := range c.keyring.keys {
				if !strings.Contains(key, hushed) || !strings.Contains(text, account) {
					t.Errorf("the keyring has %q: %q", account, key)
				}
			}
			if (len(c.keyring.keys) > 0) != (c.want == StoreKeyring) {
				t.Errorf("%d keys in the keyring", len(c.keyring.keys))
			}
			// What is stored is found again.
			if again, err := s.Get(t.Context()); err != nil || *again != *want || (m.logins.Load() == 1) != (c.want != StoreNone) {
				t.Errorf("again: got %+v, %v", again, err)
			}
			// Logging out deletes both.
			if n, err := s.Cache.Remove(m.id); err != nil || (n == 1) != (c.want != StoreNone) {
				t.Errorf("removed %d, %v", n, err)
			}
			if text := storedText(t, s.Cache); text != "" || len(c.keyring.keys) != 0 {
				t.Errorf("left %q and %d keys", text, len(c.keyring.keys))
			}
		})
	}
}

// A renewed login moves to another store without anybody being asked, and leaves nothing behind.
func TestMovingBetweenStores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to, want Store }{
		{StoreFile, StoreAuto, StoreKeyring},
		{StoreKeyring, StoreAuto, StoreKeyring},
		{StoreFile, StoreKeyring, StoreKeyring},
		{StoreKeyring, StoreFile, StoreFile},
	} {
		ring := newFakeKeyring()
		m := &fake{renew: func(*Credential) (*Credential, error) { return credential(hushed+"-2", noon), nil }}
		s := newSession(t, m)
		s.Cache.Keyring, s.Cache.Store = ring, c.from
		if err := s.Cache.entry(m.id).write(credential(hushed, noon.Add(-2*time.Hour))); err != nil {
			t.Fatal(err)
		}
		s.Cache.Store = c.to
		if got, err := s.Get(t.Context()); err != nil || got.Token != hushed+"-2" {
			t.Fatalf("got %+v, %v", got, err)
		}
		if store := storeOf(s.Cache); store != c.want || (len(ring.keys) == 1) != (c.want == StoreKeyring) {
			t.Errorf("from %s to %s: it is in %q with %d keys, want %q", c.from, c.to, store, len(ring.keys), c.want)
		}
		if text := storedText(t, s.Cache); strings.Contains(text, hushed) != (c.want == StoreFile) {
			t.Errorf("stored: %s", text)
		}
	}
}

// A login that cannot be read from the keyring is replaced, unless it must be in the keyring.
func TestItemThatCannotBeRead(t *testing.T) {
	t.Parallel()
	locked := errors.New("it is locked")
	for _, c := range []struct {
		name  string
		store Store
		edit  func(t *testing.T, k *fakeKeyring, e entry)
		err   string
		says  string
		want  Store
	}{
		{
			name: "auto, locked", store: StoreAuto, edit: func(_ *testing.T, k *fakeKeyring, _ entry) { k.check = locked },
			says: "gatehouse: the stored login cannot be read: the OS keyring cannot be used: it is locked\n", want: StoreFile,
		},
		{
			name: "keyring, locked", store: StoreKeyring, edit: func(_ *testing.T, k *fakeKeyring, _ entry) { k.check = locked },
			err: "the stored login cannot be read: the OS keyring cannot be used: it is locked (hint: unlock the keyring, or log in with --token-store file)", want: StoreKeyring,
		},
		{name: "deleted by hand", store: StoreAuto, edit: func(_ *testing.T, k *fakeKeyring, _ entry) { clear(k.keys) }, want: StoreKeyring},
		{name: "another item", store: StoreAuto, edit: func(_ *testing.T, k *fakeKeyring, _ entry) {
			for account := range k.keys {
				k.keys[account] = "{}"
			}
		}, want: StoreKeyring},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ring := newFakeKeyring()
			m := &fake{login: func(context.Context) (*Credential, error) { return credential("new", noon), nil }}
			s := newSession(t, m)
			s.Interactive, s.Cache.Keyring, s.Cache.Store = true, ring, c.store
			e := s.Cache.entry(m.id)
			if err := e.write(credential(hushed, noon)); err != nil {
				t.Fatal(err)
			}
			c.edit(t, ring, e)
			got, err := s.Get(t.Context())
			switch {
			case c.err != "" && (err == nil || err.Error() != c.err):
				t.Errorf("got %+v, %v, want %q", got, err, c.err)
			case c.err == "" && (err != nil || got.Token != "new"):
				t.Errorf("got %+v, %v", got, err)
			}
			if said := fmt.Sprint(s.Remarks); said != c.says {
				t.Errorf("said %q, want %q", said, c.says)
			}
			if store := storeOf(s.Cache); store != c.want {
				t.Errorf("it is in %q, want %q", store, c.want)
			}
		})
	}
}

// Logging out deletes the file even if the keyring is locked, and says what is left.
func TestLogoutWithALockedKeyring(t *testing.T) {
	t.Parallel()
	ring := newFakeKeyring()
	c := &Cache{Dir: filepath.Join(t.TempDir(), "gatehouse"), Keyring: ring}
	if err := c.entry(Identity{}).write(credential(hushed, noon)); err != nil {
		t.Fatal(err)
	}
	ring.check = errors.New("it is locked")
	n, err := c.RemoveAll()
	if n != 1 || err == nil || !strings.HasPrefix(err.Error(), "a deleted login is still in the OS keyring, as account ") ||
		!strings.HasSuffix(err.Error(), " of gatehouse: the OS keyring cannot be used: it is locked") {
		t.Errorf("removed %d, %v", n, err)
	}
	if text := storedText(t, c); text != "" {
		t.Errorf("left %s", text)
	}
}

// A keyring that waits for a dialog which nobody answers blocks nobody for long, and is asked once.
func TestKeyringThatHangs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		store  Store
		unlock time.Duration
		waits  time.Duration
		says   string
		want   Store
	}{
		{"auto", StoreAuto, 0, 3 * time.Second, "", StoreFile},
		{"a person who does not come", StoreKeyring, time.Minute, time.Minute, "gatehouse: the login is not stored: the OS keyring cannot be used: no answer within 1m0s (hint: unlock the keyring, or --token-store file)\n", StoreNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ring := &fakeKeyring{keys: map[string]string{}, hangs: make(chan struct{})}
				defer close(ring.hangs)
				s := &Session{
					Method: &fake{login: func(context.Context) (*Credential, error) { return credential("new", noon), nil }},
					Cache: &Cache{
						Dir: filepath.Join(t.TempDir(), "gatehouse"), Store: c.store, Keyring: ring, UnlockTimeout: c.unlock,
					},
					Interactive: true, LockTimeout: time.Minute, Remarks: &logbuffer.Buffer{}, Now: func() time.Time { return noon },
				}
				began := time.Now()
				if _, err := s.Get(t.Context()); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(began); waited != c.waits || ring.calls.Load() != 1 {
					t.Errorf("waited %s, called %d times", waited, ring.calls.Load())
				}
				if said := fmt.Sprint(s.Remarks); said != c.says {
					t.Errorf("said %q, want %q", said, c.says)
				}
				if store := storeOf(s.Cache); store != c.want {
					t.Errorf("it is in %q, want %q", store, c.want)
				}
			})
		})
	}
}
