// Package certs holds what a TLS server presents and whom it trusts: sources of
// serving certificates (files that somebody else renews, a certificate authority
// that replicas share, cert-manager) and a pool of authorities for client
// certificates, each renewed while the server runs. It knows nothing of what is
// served.
//
// A source never takes away what works: whatever goes wrong with a renewal, the
// last good certificate stays in use and the problem is reported. Starting with
// files that cannot be used is an error, because then there is nothing to fall
// back to; an API server that cannot be reached is none, because that passes.
package certs

import (
	"context"
	"crypto/tls"
)

// Source gives a TLS server its certificate. All methods are safe for
// concurrent use.
type Source interface {
	// GetCertificate is tls.Config.GetCertificate. It reads one pointer: the
	// certificate is parsed when it is loaded, and its Leaf is set. The argument
	// is not used and may be nil.
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	// Run keeps the certificate fresh until the context ends, and returns nil
	// then and not before: no problem with a certificate ends it. It is called
	// once.
	Run(ctx context.Context) error
	// Healthy returns an error if clients cannot accept the certificate in use, because
	// there is none, it has expired or is not valid yet, or if other replicas do not
	// know of this one, or may have gone on without it. A renewal that failed is not
	// unhealthy while the certificate before it is valid: it is reported as an
	// Event. Were it otherwise, one broken file would take every replica out of
	// service at once.
	Healthy() error
}
