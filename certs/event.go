package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// The subjects of events.
const (
	ServingCertificate = "serving certificate"
	// ClientCA is the pool that client certificates are verified against.
	ClientCA = "client CA"
	// SelfSignedCA are the authorities of a SelfSigned.
	SelfSignedCA = "self-signed CA"
)

// Event is a state of a certificate or a pool, or an occurrence, for a log line and a
// metric. A state that lasts is reported once, and an occurrence each time.
type Event struct {
	// Subject is ServingCertificate, ClientCA, SelfSignedCA, the Subject of
	// package cabundle, or the name of a SecretStore.
	Subject string
	// NotAfter is the expiry of what is active: of ClientCA that of the certificate that
	// expires next, of SelfSignedCA that of the CA that signs, of a CA bundle
	// that of the certificate that lasts longest.
	NotAfter time.Time
	// SHA256 is the fingerprint of what is active, in lower-case hexadecimal: of a
	// certificate as openssl x509 -fingerprint shows it, of a pool over all of its
	// certificates in order.
	SHA256 string
	// Err is why a new certificate or pool is not active, or another problem. It is nil if a
	// new one was activated, and when a problem is over.
	Err error
	// Warnings are about what is active.
	Warnings []string
	// Reason is that of an Event of Kubernetes, such as "CARotation". It is "" for the log
	// alone.
	Reason string
	// Message says what happened, for an administrator, if Err does not.
	Message string
	// Object is a Secret or a webhook configuration. Its kind is "" if there is none.
	Object corev1.ObjectReference
	// Phase and Generation are those of the state that was stored, with ReasonCreated,
	// ReasonRotation, ReasonRecovered and ReasonReplaced.
	Phase      rotation.Phase
	Generation int64
}

// The reasons of events that administrators should notice.
const (
	// ReasonRotation is a step of a rotation.
	ReasonRotation = "CARotation"
	// ReasonCreated is a first CA.
	ReasonCreated = "CACreated"
	// ReasonRecovered is a state that was lost, damaged or overwritten, and was restored
	// from memory.
	ReasonRecovered = "CARecovered"
	// ReasonReplaced is a new state in place of a damaged one that no replica remembered.
	ReasonReplaced = "CAReplaced"
	// ReasonStoreFailed is a state that cannot be read, written or parsed.
	ReasonStoreFailed = "CAStoreFailed"
	// ReasonPublished is a bundle that was written into a registration.
	ReasonPublished = "CABundlePublished"
	// ReasonOverwritten is a bundle that another client changed, and that was restored.
	ReasonOverwritten = "CABundleOverwritten"
	// ReasonPublishFailed is a bundle that cannot be written into a registration.
	ReasonPublishFailed = "CABundlePublishFailed"
	// ReasonUntrusted is a registration that does not trust the certificate that is
	// served.
	ReasonUntrusted = "CertificateUntrusted"
	// ReasonTrusted is a registration that trusts it again.
	ReasonTrusted = "CertificateTrusted"
	// ReasonExpiring is a certificate that expires soon and was not renewed in time.
	ReasonExpiring = "CertificateExpiring"
	// ReasonIssuerFailed is an issuer, such as cert-manager, that cannot be configured or
	// does not issue.
	ReasonIssuerFailed = "CertificateNotIssued"
)

// EventOf returns an event about active certificates. NotAfter is the expiry of the one
// that lasts longest.
func EventOf(subject string, active ...*x509.Certificate) Event {
	e := Event{Subject: subject}
	hash := sha256.New()
	for _, cert := range active {
		hash.Write(cert.Raw)
		if cert.NotAfter.After(e.NotAfter) {
			e.NotAfter = cert.NotAfter
		}
	}
	e.SHA256 = hex.EncodeToString(hash.Sum(nil))
	return e
}

// WithWarning returns a copy of the event with one more warning.
func (e *Event) WithWarning(err error) Event {
	warned := *e
	warned.Warnings = append(slices.Clone(e.Warnings), err.Error())
	return warned
}

// isOccurrence reports whether the event is an occurrence, and not a state that lasts.
func (e *Event) isOccurrence() bool {
	switch e.Reason {
	case ReasonRotation, ReasonCreated, ReasonRecovered, ReasonReplaced:
		return true
	default:
		return false
	}
}

// Reporter passes on every occurrence, and every state that differs from the one before
// it. It is not safe for concurrent use.
type Reporter struct {
	// Notify receives the events. Nil drops them.
	Notify func(Event)
	last   string
}

// HasState reports whether a state was reported.
func (r *Reporter) HasState() bool { return r.last != "" }

// Report reports an event.
func (r *Reporter) Report(e Event) {
	if !e.isOccurrence() {
		text := ""
		if e.Err != nil {
			text = e.Err.Error()
		}
		key := strings.Join(append([]string{e.Subject, e.SHA256, text, e.Reason, e.Message, strconv.FormatInt(e.Generation, 10)}, e.Warnings...), "\x00")
		if key == r.last {
			return
		}
		r.last = key
	}
	if r.Notify != nil {
		r.Notify(e)
	}
}
