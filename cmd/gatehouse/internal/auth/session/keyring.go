package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zalando/go-keyring"
)

// Store is where the secrets of a login are stored.
type Store string

const (
	// StoreAuto is the OS keyring if it can be used without asking anybody, and files otherwise.
	StoreAuto Store = "auto"
	// StoreKeyring is the OS keyring only.
	StoreKeyring Store = "keyring"
	// StoreFile is files that only their owner can read.
	StoreFile Store = "file"
	// StoreNone stores nothing, and reads nothing that was stored before.
	StoreNone Store = "none"
)

// Stores returns all stores, the default first.
func Stores() []string {
	return []string{string(StoreAuto), string(StoreKeyring), string(StoreFile), string(StoreNone)}
}

// ParseStore returns the store of this name; the empty name is StoreAuto.
func ParseStore(name string) (Store, error) {
	switch {
	case name == "":
		return StoreAuto, nil
	case !slices.Contains(Stores(), name):
		return "", fmt.Errorf("%q: must be %s", printable(name), strings.Join(Stores(), ", "))
	}
	return Store(name), nil
}

// Keyring stores the keys that files with logins are encrypted with. Files keep the logins themselves: Windows
// limits an item of its keyring to 2560 bytes and macOS to about 3000, and the tokens of an issuer are longer.
// Its methods may block for as long as a dialog is open.
type Keyring interface {
	// Check returns an error if the keyring is locked or missing. It opens no dialog.
	Check() error
	// Get returns the key of an account, or keyring.ErrNotFound.
	Get(account string) (string, error)
	Set(account, key string) error
	// Delete returns keyring.ErrNotFound if there is no such account.
	Delete(account string) error
}

// OSKeyring is the keyring of the operating system: the Keychain of macOS, the Credential Manager of Windows, or
// the Secret Service of a Linux desktop.
type OSKeyring struct{}

// keyringService names Gatehouse's items, as people see them in the keyring.
const keyringService = "gatehouse"

// Get implements Keyring.
func (OSKeyring) Get(account string) (string, error) { return keyring.Get(keyringService, account) }

// Set implements Keyring.
func (OSKeyring) Set(account, key string) error { return keyring.Set(keyringService, account, key) }

// Delete implements Keyring.
func (OSKeyring) Delete(account string) error { return keyring.Delete(keyringService, account) }

// keyringTimeout bounds a call to a keyring that opens no dialog.
const keyringTimeout = 3 * time.Second

// askKeyring calls the keyring. The call is abandoned after a time: a keyring that waits for a dialog which nobody
// sees, as in an SSH session, would block kubectl forever. After an error, other than that there is no such
// account, the keyring is not asked again.
func askKeyring[T any](c *Cache, ask func(Keyring) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	switch {
	case c.Keyring == nil:
		return result{}.value, errors.New("the OS keyring cannot be used: there is none")
	case c.keyringErr != nil:
		return result{}.value, c.keyringErr
	}
	timeout := max(c.UnlockTimeout, keyringTimeout)
	done := make(chan result, 1)
	go func() {
		var r result
		if c.UnlockTimeout == 0 {
			r.err = c.Keyring.Check()
		}
		if r.err == nil {
			r.value, r.err = ask(c.Keyring)
		}
		done <- r
	}()
	const quiet = time.Second
	var r result
	select {
	case r = <-done:
	case <-time.After(quiet):
		if c.Waiting != nil {
			c.Waiting()
		}
		select {
		case r = <-done:
		case <-time.After(timeout - quiet):
			r.err = fmt.Errorf("no answer within %s", timeout)
		}
	}
	if r.err != nil && !errors.Is(r.err, keyring.ErrNotFound) {
		r.err = fmt.Errorf("the OS keyring cannot be used: %s", printable(r.err.Error()))
		c.keyringErr = r.err
	}
	return r.value, r.err
}

// deleteKey deletes the key of a file from the keyring, if it is there.
func (c *Cache) deleteKey(account string) error {
	_, err := askKeyring(c, func(k Keyring) (struct{}, error) { return struct{}{}, k.Delete(account) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil
	}
	return err
}

// seal returns the file with the credential encrypted. Account is that of the key of the file before, which is used
// again, and empty if there is none.
func (e entry) seal(c *Credential, account string) (*file, error) {
	key, err := "", keyring.ErrNotFound
	if account != "" {
		key, err = askKeyring(e.cache, func(k Keyring) (string, error) { return k.Get(account) })
	}
	if errors.Is(err, keyring.ErrNotFound) {
		account = rand.Text()
		key, err = askKeyring(e.cache, func(k Keyring) (string, error) { return createKey(k, account) })
	}
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil, fmt.Errorf("the OS keyring cannot be used: %w", err)
	}
	plain, err := json.Marshal(c) //nolint:gosec // encrypted below
	if err != nil {
		return nil, err
	}
	return &file{
		Version: fileVersion, Credential: Credential{Source: c.Source},
		KeyringAccount: account, Sealed: aead.Seal(nil, nil, plain, []byte(e.name)), // #nosec G407 -- the AEAD makes the nonce
	}, nil
}

// createKey stores a new key and reads it back: some keyrings report a success and store nothing.
func createKey(k Keyring, account string) (string, error) {
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // never fails
	key := base64.StdEncoding.EncodeToString(secret)
	if err := k.Set(account, key); err != nil {
		return "", err
	}
	stored, err := k.Get(account)
	if err != nil || stored != key {
		return "", errors.New("it does not store what it is given")
	}
	return key, nil
}

// unseal returns the credential of a file whose key is in the keyring, or nil if the key was deleted or does not fit.
func (e entry) unseal(f *file) (*Credential, error) {
	key, err := askKeyring(e.cache, func(k Keyring) (string, error) { return k.Get(f.KeyringAccount) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil, nil //nolint:nilerr // a login replaces it
	}
	plain, err := aead.Open(nil, nil, f.Sealed, []byte(e.name))
	var c Credential
	if err != nil || json.Unmarshal(plain, &c) != nil || c.Token == "" {
		return nil, nil //nolint:nilerr // a login replaces it
	}
	return &c, nil
}

// keyBytes is the length of a key of AES-256.
const keyBytes = 32

func newAEAD(key string) (cipher.AEAD, error) {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(secret) != keyBytes {
		return nil, errors.New("what it stores for Gatehouse is not a key")
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
