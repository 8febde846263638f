package store

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/internal/pki"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// The files that WriteDir writes.
const (
	// CAFile holds the CAs that clients must trust, and that the server verifies client
	// certificates against.
	CAFile = "ca.crt"
	// ClientCertFile and ClientKeyFile hold a client certificate for the API
	// server.
	ClientCertFile = "apiserver-client.crt"
	ClientKeyFile  = "apiserver-client.key"
)

// WriteDir writes the CAs of a state, and a client certificate for the API server, into
// a directory that belongs to the state. It keeps files that are still good.
func WriteDir(dir string, state *rotation.State, now time.Time) error {
	if err := os.MkdirAll(dir, sharedDir); err != nil {
		return fileError("directory "+dir, "write", err)
	}
	// The CA first, so that the server accepts the certificate before anybody
	// can show it.
	bundle := rotation.Bundle(state.Trusted(now))
	name := filepath.Join(dir, CAFile)
	if there, err := os.ReadFile(name); err != nil || !bytes.Equal(there, bundle) { //nolint:gosec // in a directory that whoever starts the program names
		if err := replaceFile(name, bundle, 0o644); err != nil {
			return fileError("file "+name, "write", err)
		}
	}
	if there, err := pki.ReadPair(filepath.Join(dir, ClientCertFile), filepath.Join(dir, ClientKeyFile)); err == nil &&
		there.Leaf.CheckSignatureFrom(pki.Newest(state).Cert) == nil && pki.CheckValidity(there.Leaf, now) == nil && !rotation.IsDue(there.Leaf, now) {
		return nil
	}
	cert, key, err := pki.ClientCertificate(state, now)
	if err != nil {
		return err
	}
	var problems []error
	for _, file := range []struct {
		name    string
		content []byte
		mode    fs.FileMode
	}{{ClientKeyFile, key, privateFile}, {ClientCertFile, cert, 0o644}} {
		name := filepath.Join(dir, file.name)
		if err := replaceFile(name, file.content, file.mode); err != nil {
			problems = append(problems, fileError("file "+name, "write", err))
		}
	}
	return errors.Join(problems...)
}
