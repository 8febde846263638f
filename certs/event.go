package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The subjects of events.
const (
	ServingCertificate = "serving certificate"
	// ClientCA is the pool that client certificates are verified against.
	ClientCA = "client CA"
	// SelfSignedCA are the authorities of an OwnCA.
	SelfSignedCA = "self-signed CA"
)

// Event is a state of a certificate or a pool, or an occurrence, for a log line and a
// metric. A state that lasts is reported once, and an occurrence each time.
type Event struct {
	// Subject is what it is about, such as ServingCertificate.
	Subject string
	// NotAfter is the expiry of what is active: of ClientCA that of the certificate that
	// expires next, of SelfSignedCA that of the CA that signs.
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
}

// The reasons of events that administrators should notice.
const (
	// ReasonRotation is a first CA, and a step of a rotation.
	ReasonRotation = "CARotation"
	// ReasonRecovered is a state that was lost, damaged or overwritten, and was written again.
	ReasonRecovered = "CARecovered"
	// ReasonStoreFailed is a state that cannot be read, written or parsed.
	ReasonStoreFailed = "CAStoreFailed"
	// ReasonStoreAvailable is a state that can be read and written again, after a right was missing.
	ReasonStoreAvailable = "CAStoreAvailable"
	// ReasonExpiring is a certificate that expires soon and was not renewed in time.
	ReasonExpiring = "CertificateExpiring"
	// ReasonUntrusted is a registration that does not trust the certificate that is
	// served.
	ReasonUntrusted = "CertificateUntrusted"
	// ReasonTrusted is a registration that trusts it again.
	ReasonTrusted = "CertificateTrusted"
	// ReasonWritten is a registration that was written.
	ReasonWritten = "RegistrationWritten"
	// ReasonOverwritten is a registration that another client changed, and that was restored.
	ReasonOverwritten = "RegistrationOverwritten"
	// ReasonNotIncluded is what policies match and a registration may not send, because the install does not include it.
	ReasonNotIncluded = "RequestsNotIncluded"
	// ReasonWriteFailed is a registration that cannot be written.
	ReasonWriteFailed = "RegistrationWriteFailed"
)

// IsWarning reports whether the event needs attention.
func (e *Event) IsWarning() bool {
	return e.Err != nil || e.Reason == ReasonRecovered || e.Reason == ReasonOverwritten || e.Reason == ReasonNotIncluded
}

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

// reporter passes on every state that differs from the one before it. It is not safe for
// concurrent use.
type reporter struct {
	// notify receives the events. Nil drops them.
	notify func(Event)
	last   []string
}

func (r *reporter) report(e Event) {
	text := ""
	if e.Err != nil {
		text = e.Err.Error()
	}
	key := append([]string{e.Subject, e.SHA256, text, e.Reason, e.Message}, e.Warnings...)
	if slices.Equal(key, r.last) {
		return
	}
	r.last = key
	if r.notify != nil {
		r.notify(e)
	}
}

// Enumerate returns a list for a sentence, of which it names the first three.
func Enumerate(list []string) string {
	const most = 3
	if len(list) > most {
		return strings.Join(list[:most], ", ") + " and more"
	}
	return strings.Join(list, ", ")
}
