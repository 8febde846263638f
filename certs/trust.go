package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrUnread means that not all registrations have been read yet.
var ErrUnread = errors.New("not read from the API server yet")

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
	// Fresh reports whether everything was read, and can be read now.
	Fresh() bool
	// Changed is closed with the next change of what was read.
	Changed() <-chan struct{}
}

// Authorities are the CAs that registrations should trust.
type Authorities interface {
	// Bundle reads the certificates that should be trusted from the store, not from
	// memory, so that a replica never publishes an older bundle than another replica did.
	// After an error nothing is published.
	Bundle(ctx context.Context) ([]*x509.Certificate, error)
	// Certificate returns the serving certificate, nil if there is none. No bundle is
	// published that does not verify it.
	Certificate() *tls.Certificate
	// Changed is closed when Bundle or Certificate may have changed.
	Changed() <-chan struct{}
}

// DistrustError is why webhooks of a registration do not accept a certificate.
// Trust.Verify joins one for each registration and reason.
type DistrustError struct {
	// Registration is the webhook configuration with its kind, and Webhooks the names of
	// the entries in it.
	Registration string
	Webhooks     []string
	// Err is why. It wraps an x509.HostnameError if the certificate lacks the name that the
	// webhooks call.
	Err error
}

func (e *DistrustError) Error() string {
	quoted := make([]string, len(e.Webhooks))
	for i, name := range e.Webhooks {
		quoted[i] = strconv.Quote(name)
	}
	word := ", webhook "
	if len(quoted) > 1 {
		word = ", webhooks "
	}
	return e.Registration + word + Enumerate(quoted) + ": " + e.Err.Error()
}

// Unwrap returns Err.
func (e *DistrustError) Unwrap() error { return e.Err }

// Enumerate returns a list for a sentence, of which it names the first three.
func Enumerate(list []string) string {
	const most = 3
	switch n := len(list); {
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), n-most)
	case n > 1:
		return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
	default:
		return strings.Join(list, "")
	}
}
