package server

import (
	"slices"
	"strings"
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

// failedHandshake is why a handshake failed, told by the line that net/http writes
// about it: it says so nowhere else. Of what it writes of other things, ok is
// false.
func failedHandshake(line string) (why HandshakeFailure, ok bool) {
	text, ok := strings.CutPrefix(line, "http: TLS handshake error from ")
	if !ok {
		return "", false
	}
	// In front there is an address, and behind it ": ", of which an address has none.
	_, text, _ = strings.Cut(text, ": ")
	text = strings.TrimSpace(text)
	if alert, ok := strings.CutPrefix(text, "remote error: tls: "); ok {
		// crypto/tls says "bad certificate" whatever is wrong with it, others are more
		// exact.
		if slices.Contains([]string{
			"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate",
			"unknown certificate", "unknown certificate authority",
		}, alert) {
			return Untrusted, true
		}
		return Protocol, true
	}
	has := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case strings.HasPrefix(text, "tls: ") && slices.ContainsFunc([]string{"client certificate", "client sent certificate", "client didn't provide a certificate", "failed to verify certificate"}, has):
		return ClientCertificate, true
	case strings.HasPrefix(text, "tls: "), text == "client sent an HTTP request to an HTTPS server":
		return Protocol, true
	case text == "EOF", slices.ContainsFunc([]string{"unexpected EOF", "i/o timeout", "connection reset", "broken pipe", "use of closed network connection"}, has):
		return Abandoned, true
	default:
		return OtherFailure, true
	}
}
