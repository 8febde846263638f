package session

import (
	"bufio"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	ss "github.com/zalando/go-keyring/secret_service"
)

// Names of the Secret Service API: https://specifications.freedesktop.org/secret-service-spec/latest/
const (
	secretsName    = "org.freedesktop.secrets"
	secretsPath    = "/org/freedesktop/secrets"
	collectionPath = secretsPath + "/collection/login"
	secretsPrefix  = "org.freedesktop.Secret."
)

// secretService is a Secret Service on a bus: one collection in memory.
type secretService struct {
	bus *dbus.Conn

	mu     sync.Mutex
	locked bool
	// unlocks is what a person does with the dialog: true unlocks, false leaves it open.
	unlocks bool
	prompts int
	items   map[dbus.ObjectPath]*secretItem
	next    int
}

// secretItem is an item of the collection.
type secretItem struct {
	service    *secretService
	path       dbus.ObjectPath
	attributes map[string]string
	value      []byte
}

const noPrompt = dbus.ObjectPath("/")

// serve exports the service on the bus and takes its name.
func (s *secretService) serve(t *testing.T) {
	t.Helper()
	for path, names := range map[dbus.ObjectPath][]string{
		secretsPath:              {secretsPrefix + "Service", "org.freedesktop.DBus.Properties"},
		collectionPath:           {secretsPrefix + "Collection", "org.freedesktop.DBus.Properties"},
		secretsPath + "/session": {secretsPrefix + "Session"},
		secretsPath + "/prompt":  {secretsPrefix + "Prompt"},
	} {
		for _, name := range names {
			if err := s.bus.Export(s, path, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if reply, err := s.bus.RequestName(secretsName, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v, %v", reply, err)
	}
}

// Get is the method of org.freedesktop.DBus.Properties.
func (s *secretService) Get(_, property string) (dbus.Variant, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if property == "Locked" {
		return dbus.MakeVariant(s.locked), nil
	}
	return dbus.MakeVariant([]dbus.ObjectPath{collectionPath}), nil
}

func (s *secretService) OpenSession(string, dbus.Variant) (dbus.Variant, dbus.ObjectPath, *dbus.Error) {
	return dbus.MakeVariant(""), secretsPath + "/session", nil
}

func (s *secretService) Close() *dbus.Error { return nil }

func (s *secretService) Unlock(objects []dbus.ObjectPath) ([]dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked {
		return []dbus.ObjectPath{}, secretsPath + "/prompt", nil
	}
	return objects, noPrompt, nil
}

func (s *secretService) Prompt(string) *dbus.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompts++
	if !s.unlocks {
		return nil
	}
	s.locked = false
	if err := s.bus.Emit(secretsPath+"/prompt", secretsPrefix+"Prompt.Completed", false, dbus.MakeVariant([]dbus.ObjectPath{collectionPath})); err != nil {
		return dbus.MakeFailedError(err)
	}
	return nil
}

func (s *secretService) SearchItems(attributes map[string]string) ([]dbus.ObjectPath, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []dbus.ObjectPath{}
	for path, item := range s.items {
		if maps.Equal(item.attributes, attributes) {
			found = append(found, path)
		}
	}
	return found, nil
}

func (s *secretService) CreateItem(properties map[string]dbus.Variant, secret ss.Secret, _ bool) (item, prompt dbus.ObjectPath, failed *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	created := &secretItem{service: s, path: dbus.ObjectPath(fmt.Sprintf("%s/%d", collectionPath, s.next)), value: secret.Value}
	if err := properties[secretsPrefix+"Item.Attributes"].Store(&created.attributes); err != nil {
		return noPrompt, noPrompt, dbus.MakeFailedError(err)
	}
	if err := s.bus.Export(created, created.path, secretsPrefix+"Item"); err != nil {
		return noPrompt, noPrompt, dbus.MakeFailedError(err)
	}
	s.items[created.path] = created
	return created.path, noPrompt, nil
}

func (i *secretItem) GetSecret(session dbus.ObjectPath) (ss.Secret, *dbus.Error) {
	secret := ss.NewSecret(session, string(i.value))
	return secret, nil
}

func (i *secretItem) Delete() (dbus.ObjectPath, *dbus.Error) {
	i.service.mu.Lock()
	defer i.service.mu.Unlock()
	delete(i.service.items, i.path)
	return noPrompt, nil
}

// lock locks the service; unlocks is what a person does with a dialog.
func (s *secretService) lock(locked, unlocks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked, s.unlocks = locked, unlocks
}

// prompted returns how many dialogs there were.
func (s *secretService) prompted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prompts
}

// values returns what the service stores.
func (s *secretService) values() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var values []string
	for _, item := range s.items {
		values = append(values, string(item.value))
	}
	slices.Sort(values)
	return values
}

// startBus starts a D-Bus daemon that starts no services, and makes it the session bus of this process.
func startBus(t *testing.T) {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed")
	}
	config := filepath.Join(t.TempDir(), "bus.conf")
	write(t, config, `<busconfig><type>session</type><listen>unix:dir=`+t.TempDir()+`</listen>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>`)
	cmd := exec.CommandContext(t.Context(), program, "--config-file="+config, "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", strings.TrimSpace(address))
}

// The keyring of Linux over a real bus: the library keeps one connection for each process, so this is one test.
func TestSecretService(t *testing.T) {
	startBus(t)
	login := func(t *testing.T, store Store, unlock time.Duration) (c *Cache, err error) {
		t.Helper()
		c = &Cache{Dir: filepath.Join(t.TempDir(), "gatehouse"), Store: store, Keyring: OSKeyring{}, UnlockTimeout: unlock}
		return c, c.entry(Identity{}).write(secretCredential())
	}
	roundTrip := func(t *testing.T, c *Cache) {
		t.Helper()
		again := &Cache{Dir: c.Dir, Keyring: OSKeyring{}} // of another process
		if got, err := again.entry(Identity{}).read(); err != nil || got == nil || *got != *secretCredential() || storeOf(c) != StoreKeyring {
			t.Errorf("stored %+v in %q, %v", got, storeOf(c), again.unreadable)
		}
		if text := storedText(t, c); strings.Contains(text, hushed) {
			t.Errorf("stored: %s", text)
		}
		if n, err := again.RemoveAll(); n != 1 || err != nil {
			t.Errorf("removed %d, %v", n, err)
		}
	}
	t.Run("none", func(t *testing.T) {
		if c, err := login(t, StoreAuto, 0); err != nil || storeOf(c) != StoreFile {
			t.Errorf("stored in %q, %v", storeOf(c), err)
		}
		_, err := login(t, StoreKeyring, 0)
		if err == nil || !strings.Contains(err.Error(), "the OS keyring cannot be used: The name org.freedesktop.secrets was not provided") {
			t.Errorf("got %v", err)
		}
	})
	bus, err := dbus.ConnectSessionBus()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bus.Close() }()
	service := &secretService{bus: bus, items: map[dbus.ObjectPath]*secretItem{}}
	t.Run("unlocked", func(t *testing.T) {
		service.serve(t)
		c, err := login(t, StoreAuto, 0)
		if err != nil || len(service.values()) != 1 {
			t.Fatalf("%v; the keyring has %q", err, service.values())
		}
		if key := service.values()[0]; strings.Contains(storedText(t, c), key) {
			t.Error("the key is in the file too")
		}
		roundTrip(t, c)
		if left := service.values(); len(left) != 0 {
			t.Errorf("left %q", left)
		}
	})
	t.Run("locked", func(t *testing.T) {
		c, err := login(t, StoreAuto, 0)
		if err != nil {
			t.Fatal(err)
		}
		service.lock(true, false)
		again := &Cache{Dir: c.Dir, Keyring: OSKeyring{}}
		if got, err := again.entry(Identity{}).read(); err != nil || got != nil || again.unreadable == nil || !strings.HasSuffix(again.unreadable.Error(), "it is locked") {
			t.Errorf("stored %+v, %v", got, again.unreadable)
		}
		if c, err := login(t, StoreAuto, 0); err != nil || storeOf(c) != StoreFile {
			t.Errorf("stored in %q, %v", storeOf(c), err)
		}
		if _, err := login(t, StoreKeyring, 0); err == nil || service.prompted() != 0 {
			t.Errorf("%v, %d dialogs", err, service.prompted())
		}
		service.lock(true, true)
		c, err = login(t, StoreKeyring, time.Minute)
		if err != nil || service.prompted() == 0 {
			t.Fatalf("%v, %d dialogs", err, service.prompted())
		}
		roundTrip(t, c)
	})
}
