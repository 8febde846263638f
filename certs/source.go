// Package certs has what the sources of certificates of a TLS server share. Sources are
// files, a certificate authority that replicas share, and cert-manager; all renew
// certificates while the server runs.
//
// If a renewal fails, the last valid certificate stays active and the problem is reported.
// Starting with invalid files is an error, because there is nothing to fall back to;
// starting while the API server is unreachable is none.
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
	// Run renews the certificate until the context ends, and returns nil then and not
	// before. It is called once.
	Run(ctx context.Context) error
	// Healthy returns an error if there is no valid certificate, if the other replicas do
	// not know of this one, or if they may have rotated without it. A failed renewal is
	// reported as an Event and not here while the certificate before it is valid:
	// otherwise one broken file would take every replica out of service at once.
	Healthy() error
}
