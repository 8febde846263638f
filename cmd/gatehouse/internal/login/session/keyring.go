package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
		return "", fmt.Errorf("%q: must be auto, keyring, file or none", printable(name))
	}
	return Store(name), nil
}

// Keyring stores credentials. Its methods may block for as long as a dialog is open.
type Keyring interface {
	// Check returns an error if the keyring is locked or missing. It opens no dialog.
	Check() error
	// Get returns the item of an account, or keyring.ErrNotFound.
	Get(account string) (string, error)
	// Set returns keyring.ErrSetDataTooBig for an item that is too large: Windows takes 2560 bytes, and macOS about 3000.
	Set(account, item string) error
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
func (OSKeyring) Set(account, item string) error { return keyring.Set(keyringService, account, item) }

// Delete implements Keyring.
func (OSKeyring) Delete(account string) error { return keyring.Delete(keyringService, account) }

// keyringTimeout bounds a call to a keyring that opens no dialog.
const keyringTimeout = 3 * time.Second

// askKeyring calls the keyring. The call is abandoned after a time: a keyring that waits for a dialog which nobody
// sees, as in an SSH session, would block kubectl forever. After an error, other than those about one account, the
// keyring is not asked again.
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
	var r result
	select {
	case r = <-done:
	case <-time.After(timeout):
		r.err = fmt.Errorf("no answer within %s", timeout)
	}
	if r.err != nil && !errors.Is(r.err, keyring.ErrNotFound) {
		tooBig := errors.Is(r.err, keyring.ErrSetDataTooBig)
		r.err = fmt.Errorf("the OS keyring cannot be used: %s", printable(r.err.Error()))
		if !tooBig {
			c.keyringErr = r.err
		}
	}
	return r.value, r.err
}

// getItem returns the credential of an account, or nil if it was deleted or cannot be understood.
func (c *Cache) getItem(account string) (*Credential, error) {
	item, err := askKeyring(c, func(k Keyring) (string, error) { return k.Get(account) })
	var credential Credential
	switch {
	case errors.Is(err, keyring.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case json.Unmarshal([]byte(item), &credential) != nil || credential.Token == "":
		return nil, nil //nolint:nilerr // a login replaces it
	}
	return &credential, nil
}

// setItem stores a credential and reads it back: some keyrings report a success and store nothing.
func (c *Cache) setItem(account string, credential *Credential) error {
	data, err := json.Marshal(credential) //nolint:gosec // for the keyring
	if err != nil {
		return err
	}
	_, err = askKeyring(c, func(k Keyring) (struct{}, error) {
		err := k.Set(account, string(data))
		if err != nil {
			return struct{}{}, err
		}
		if stored, err := k.Get(account); err != nil || stored != string(data) {
			return struct{}{}, errors.New("it does not store what it is given")
		}
		return struct{}{}, nil
	})
	return err
}

// deleteItem deletes the item of an account, if there is one.
func (c *Cache) deleteItem(account string) error {
	if account == "" {
		return nil
	}
	_, err := askKeyring(c, func(k Keyring) (struct{}, error) { return struct{}{}, k.Delete(account) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil
	}
	return err
}
