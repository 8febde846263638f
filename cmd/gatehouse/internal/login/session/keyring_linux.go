package session

import (
	"errors"
	"os"
	"path/filepath"

	ss "github.com/zalando/go-keyring/secret_service"
)

// Check implements Keyring. Reading a locked collection would open a dialog.
func (OSKeyring) Check() error {
	// Without a session bus, the library would start one that nothing else uses.
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		dir := os.Getenv("XDG_RUNTIME_DIR")
		if _, err := os.Stat(filepath.Join(dir, "bus")); dir == "" || err != nil { // #nosec G703 -- the user's own environment
			return errors.New("there is no D-Bus session")
		}
	}
	service, err := ss.NewSecretService()
	if err != nil {
		return err
	}
	locked, err := service.GetLoginCollection().GetProperty("org.freedesktop.Secret.Collection.Locked")
	if err != nil {
		return err
	}
	if locked.Value() != false {
		return errors.New("it is locked")
	}
	return nil
}
