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

// HandshakeFailure is the reason why a TLS handshake failed.
type HandshakeFailure string

// The reasons.
const (
	// Untrusted is a client that rejects the serving certificate: the CA is unknown, the
	// name is another one, or the certificate has expired.
	Untrusted HandshakeFailure = "untrusted"
	// ClientCertificate is a client whose own certificate was rejected.
	ClientCertificate HandshakeFailure = "client-certificate"
	// Protocol is a client without TLS, or without a supported version of it.
	Protocol HandshakeFailure = "protocol"
	// Abandoned is a connection that was closed, or that timed out.
	Abandoned HandshakeFailure = "abandoned"
	// OtherFailure is any other, such as that there is no serving certificate yet.
	OtherFailure HandshakeFailure = "other"
)

// HandshakeFailures returns all reasons.
func HandshakeFailures() []HandshakeFailure {
	return []HandshakeFailure{Untrusted, ClientCertificate, Protocol, Abandoned, OtherFailure}
}

// classifyHandshakeError returns why a handshake failed. crypto/tls has types for few of
// its errors; the others are recognized by their text.
func classifyHandshakeError(err error) HandshakeFailure {
	text := err.Error()
	has := func(part string) bool { return strings.Contains(text, part) }
	if alert, ok := strings.CutPrefix(text, "remote error: tls: "); ok {
		// crypto/tls sends "bad certificate" whatever is wrong, others are more exact.
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
	case strings.HasPrefix(text, "tls: "):
		return Protocol
	case slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, context.DeadlineExceeded, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}, func(one error) bool { return errors.Is(err, one) }):
		return Abandoned
	default:
		return OtherFailure
	}
}
