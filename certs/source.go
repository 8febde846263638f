// Package certs has the sources of a server's certificates: Files, which another program renews, and OwnCA, a CA of
// Gatehouse's own that any number of replicas share in a Store. ClientCAs is the pool against which client certificates
// are verified.
//
// If a renewal fails, the last valid certificate stays active, and the problem is reported as an Event. A server does not
// start with invalid files, because it would have nothing to fall back to; it does start while the API server cannot be
// reached.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"
)

// Source gives a TLS server its certificate. All methods are safe for
// concurrent use.
type Source interface {
	// GetCertificate is tls.Config.GetCertificate. It reads one pointer: the
	// certificate is parsed when it is loaded, and its Leaf is set. The argument
	// is not used and may be nil.
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run renews the certificate until the context ends, and returns nil then and not
	// before. It is called once.
	Run(ctx context.Context) error
	// Healthy returns an error if there is no valid certificate. A failed renewal is
	// reported as an Event and not here while the certificate before it is valid:
	// otherwise one broken file would take every replica out of service at once.
	Healthy() error
}

// Trust is what clients trust, read back from the webhook configurations of an API
// server. While the API server is unreachable it is what was read last. All methods are
// safe for concurrent use and read memory only.
type Trust interface {
	// Verify returns nil if every registration's bundle verifies the certificate for the
	// name that the API server calls. Otherwise the error names each that does not, and
	// why. It wraps ErrUnread until all have been read once.
	Verify(cert *tls.Certificate, now time.Time) error
	// Holds returns nil if the CA is in the bundle of every registration. Otherwise the
	// error names those that lack it, or wraps ErrUnread as with Verify.
	Holds(ca *x509.Certificate) error
	// Changed is closed with the next change of what was read.
	Changed() <-chan struct{}
}

// ErrUnread means that not all registrations have been read yet.
var ErrUnread = errors.New("not read from the API server yet")

// wall returns the time by the wall clock, without its monotonic part: that stands
// still while a machine is suspended, and certificates expire all the same. now may be
// nil, for time.Now.
func wall(now func() time.Time) time.Time { return monotonic(now).Round(0) }

// monotonic returns a time to measure how much time has passed, which setting the clock
// does not change. now may be nil, for time.Now.
func monotonic(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// stamp formats a time for messages.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
