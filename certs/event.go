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
	// ServingCertificate is what the server presents.
	ServingCertificate = "serving certificate"
	// ClientCA is the pool that client certificates are verified against.
	ClientCA = "client CA"
	// SelfSignedCA is the authorities of a SelfSigned.
	SelfSignedCA = "self-signed CA"
	// IssuerCA is the authorities of an issuer such as cert-manager.
	IssuerCA = "issuer's CA"
)

// Event is what happened to a certificate or a pool, for a log line and a
// metric. A state that lasts is reported once, and what happens again is each time.
type Event struct {
	// Subject says what the event is about: ServingCertificate, ClientCA,
	// SelfSignedCA, IssuerCA, the Subject of package cabundle, or a SecretStore by
	// its name.
	Subject string
	// NotAfter is the end of what is in use now: of ClientCA that of the certificate
	// that ends first among those that have not ended, of SelfSignedCA and IssuerCA
	// that of the CA that signs, of a CA bundle that of the certificate that lasts
	// longest.
	NotAfter time.Time
	// SHA256 is the fingerprint of what is in use now: of a certificate as
	// openssl x509 -fingerprint shows it, of a pool over all of its certificates
	// one after the other. Lower-case hexadecimal.
	SHA256 string
	// Err says why what was found is not used, or what keeps a source from
	// doing its work well. It is nil if something new came into use, or if what
	// is in use turned out to be all right after all.
	Err error
	// Warnings are remarks about what is in use.
	Warnings []string
	// Reason is one word for what happened, as in Events of Kubernetes:
	// "CARotation". It is "" for what is no news to anybody but the log.
	Reason string
	// Message says what happened, for an administrator, where Err does not.
	Message string
	// Object is what it happened to in the cluster: a Secret, a webhook
	// configuration. Its kind is "" where there is none.
	Object corev1.ObjectReference
	// Phase and Generation are those of the state that was written, with
	// ReasonCreated, ReasonRotation, ReasonRecovered and ReasonReplaced.
	Phase      rotation.Phase
	Generation int64
}

// Why an Event is reported, where people should notice.
const (
	// ReasonRotation is a step of a rotation.
	ReasonRotation = "CARotation"
	// ReasonCreated is a first CA.
	ReasonCreated = "CACreated"
	// ReasonRecovered is a state that was lost, damaged or overwritten by somebody
	// else, and was written again from memory.
	ReasonRecovered = "CARecovered"
	// ReasonReplaced is a state that was damaged, and that nobody remembered:
	// clients have to be told of a new CA.
	ReasonReplaced = "CAReplaced"
	// ReasonStoreFailed is a state that cannot be read, written or understood.
	ReasonStoreFailed = "CAStoreFailed"
	// ReasonPublished is a bundle that was written into a registration.
	ReasonPublished = "CABundlePublished"
	// ReasonOverwritten is a bundle in a registration that somebody else changed,
	// and that was repaired.
	ReasonOverwritten = "CABundleOverwritten"
	// ReasonPublishFailed is a bundle that cannot be written into a registration.
	ReasonPublishFailed = "CABundlePublishFailed"
	// ReasonUntrusted is a registration that does not trust the certificate that is
	// served.
	ReasonUntrusted = "CertificateUntrusted"
	// ReasonTrusted is a registration that trusts it again.
	ReasonTrusted = "CertificateTrusted"
	// ReasonExpiring is a certificate that ends soon and was not renewed in time.
	ReasonExpiring = "CertificateExpiring"
	// ReasonIssuerFailed is an issuer, such as cert-manager, that cannot be told
	// what is wanted, or does not do it.
	ReasonIssuerFailed = "CertificateNotIssued"
)

// EventOf is the part of an event that says what is in use. Of several
// certificates NotAfter is the end of the one that lasts longest.
func EventOf(subject string, inUse ...*x509.Certificate) Event {
	e := Event{Subject: subject}
	hash := sha256.New()
	for _, cert := range inUse {
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
