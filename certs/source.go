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
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
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
	// Healthy is an error if clients cannot accept the certificate in use, because
	// there is none, it has expired or is not valid yet, or if other replicas do not
	// know of this one, or may have gone on without it. A renewal that failed is not
	// unhealthy while the certificate before it is valid: it is reported as an
	// Event. Were it otherwise, one broken file would take every replica out of
	// service at once.
	Healthy() error
}

var (
	_ Source = (*Files)(nil)
	_ Source = (*SelfSigned)(nil)
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

// wall is the time by the clock on the wall. Without its monotonic part,
// because that stands still while a machine is suspended, and certificates
// expire all the same.
func wall(now func() time.Time) time.Time {
	if now == nil {
		return time.Now().Round(0)
	}
	return now().Round(0)
}

// checkValidity is an error if the certificate is not valid at the time.
func checkValidity(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(cert.NotBefore):
		return fmt.Errorf("not valid before %s: check the clock, or wait", stamp(cert.NotBefore))
	case now.After(cert.NotAfter):
		return fmt.Errorf("expired at %s: renew it", stamp(cert.NotAfter))
	}
	return nil
}

// checkPair is an error if clients cannot accept a certificate at the time: it is not
// valid, the one behind it that signed it has expired, or one that follows in the chain
// is not valid yet. What else has expired in the chain clients may have in a newer
// version, and remarks tells of it.
func checkPair(pair *tls.Certificate, now time.Time) error {
	if err := checkValidity(pair.Leaf, now); err != nil {
		return err
	}
	for i, cert := range chainOf(pair) {
		isRoot := bytes.Equal(cert.RawSubject, cert.RawIssuer)
		if now.Before(cert.NotBefore) || now.After(cert.NotAfter) && i == 0 && !isRoot {
			return fmt.Errorf("certificate %d of the chain, %q, is %w", i+2, cert.Subject.String(), checkValidity(cert, now))
		}
	}
	return nil
}

// chainOf returns the certificates behind the first one, as far as each signed the one
// before it.
func chainOf(pair *tls.Certificate) []*x509.Certificate {
	var chain []*x509.Certificate
	signed := pair.Leaf
	for _, der := range pair.Certificate[1:] {
		issuer, err := x509.ParseCertificate(der)
		if err != nil || signed.CheckSignatureFrom(issuer) != nil {
			break
		}
		chain, signed = append(chain, issuer), issuer
	}
	return chain
}

// eventOf is the part of an event that says what is in use. Of several
// certificates NotAfter is the end of the one that lasts longest.
func eventOf(subject string, inUse ...*x509.Certificate) Event {
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

// unwatched is the event of what is so, with the remark that changes are not
// noticed at once. That is no error: files are read from time to time as well.
func (e *Event) unwatched(err error) Event {
	remarked := *e
	remarked.Warnings = append(slices.Clone(e.Warnings), err.Error())
	return remarked
}

// happened tells whether the event is something that happens, and not a state
// that lasts.
func (e *Event) happened() bool {
	switch e.Reason {
	case ReasonRotation, ReasonCreated, ReasonRecovered, ReasonReplaced:
		return true
	default:
		return false
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// reporter passes on what happens, and of states each that differs from the one
// before it. It is not safe for concurrent use.
type reporter struct {
	notify func(Event)
	last   string
}

func (r *reporter) report(e Event) {
	if !e.happened() {
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
	if r.notify != nil {
		r.notify(e)
	}
}
