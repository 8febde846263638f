package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// ErrUnread means that the registrations have not been read yet.
var ErrUnread = errors.New("not read from the API server yet")

// Trust is what clients have been told to trust, read back from where they are
// told: the webhook configurations of an API server. Once read, it is what was
// read last while the API server is away. All methods are safe for concurrent
// use and look at memory only.
type Trust interface {
	// Verify returns nil if every registration's bundle verifies the certificate for the
	// name that the API server calls. Otherwise the error names each that does not, and
	// why. It wraps ErrUnread until all have been read once.
	Verify(cert *tls.Certificate, now time.Time) error
	// Holds returns nil if the CA is in the bundle of every registration. Otherwise the
	// error names those that lack it, or wraps ErrUnread as with Verify.
	Holds(ca *x509.Certificate) error
	// Fresh reports whether what was read is what there is, as far as can be known:
	// everything was read, and nothing keeps it from being read now.
	Fresh() bool
	// Changed is closed with the next change of what was read.
	Changed() <-chan struct{}
}

// Authorities are the CAs that registrations should trust.
type Authorities interface {
	// Bundle reads the certificates that should be trusted from where they are
	// kept, not from memory: what is published by it is never older than what
	// another replica published before. An error means that nobody knows, and that
	// nothing is to be published.
	Bundle(ctx context.Context) ([]*x509.Certificate, error)
	// Certificate is what is served now, nil if nothing is. Nothing is published
	// that does not verify it.
	Certificate() *tls.Certificate
	// Changed is closed when Bundle or Certificate may have changed.
	Changed() <-chan struct{}
}

// DistrustError is why one webhook of a registration does not accept a
// certificate. What Trust.Verify returns joins one of them for each such webhook,
// so that a text for people can say once what is the same for many.
type DistrustError struct {
	// Registration is the webhook configuration with its kind, and Webhook the name
	// of the entry in it.
	Registration, Webhook string
	// Err is why. It wraps an x509.HostnameError if the certificate is not for the
	// name that the webhook calls.
	Err error
}

func (e *DistrustError) Error() string {
	return fmt.Sprintf("%s, webhook %q: %s", e.Registration, e.Webhook, e.Err)
}

// Unwrap is Err.
func (e *DistrustError) Unwrap() error { return e.Err }
