package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// HandshakeFailure is why a TLS handshake failed.
type HandshakeFailure string

// The reasons.
const (
	// Untrusted is a client that does not accept the certificate that is served: it
	// does not know its CA, finds another name in it, or finds that it has ended.
	Untrusted HandshakeFailure = "untrusted"
	// ClientCertificate is a client whose own certificate was refused.
	ClientCertificate HandshakeFailure = "client-certificate"
	// Protocol is a client that speaks no TLS, or none that is spoken here.
	Protocol HandshakeFailure = "protocol"
	// Abandoned is a connection that ended, or on which nothing came in time.
	Abandoned HandshakeFailure = "abandoned"
	// OtherFailure is none of these. That there is no certificate to serve is
	// among them.
	OtherFailure HandshakeFailure = "other"
)

// HandshakeFailures are all reasons.
func HandshakeFailures() []HandshakeFailure {
	return []HandshakeFailure{Untrusted, ClientCertificate, Protocol, Abandoned, OtherFailure}
}

// errHTTP is a handshake's error if the client speaks HTTP without TLS.
var errHTTP = errors.New("client sent an HTTP request to an HTTPS server")

// failureOf is why a handshake failed. crypto/tls has types for few of its errors, so
// that the others are told apart by their text.
func failureOf(err error) HandshakeFailure {
	text := err.Error()
	has := func(part string) bool { return strings.Contains(text, part) }
	if alert, ok := strings.CutPrefix(text, "remote error: tls: "); ok {
		// crypto/tls says "bad certificate" whatever is wrong with it, others are more
		// exact.
		if slices.Contains([]string{
			"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate",
			"unknown certificate", "unknown certificate authority",
		}, alert) {
			return Untrusted
		}
		return Protocol
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return ClientCertificate
	}
	switch {
	case strings.HasPrefix(text, "tls: ") && slices.ContainsFunc([]string{"client certificate", "client sent certificate", "client didn't provide a certificate"}, has):
		return ClientCertificate
	case strings.HasPrefix(text, "tls: "), errors.Is(err, errHTTP):
		return Protocol
	case slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, context.DeadlineExceeded, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}, func(one error) bool { return errors.Is(err, one) }):
		return Abandoned
	default:
		return OtherFailure
	}
}
