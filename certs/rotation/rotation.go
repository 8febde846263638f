// Package rotation replaces one certificate authority by another without a failed
// handshake. It is a pure state machine, without a clock and a client: the caller stores
// each state, in a Secret for example, and any process can continue from it.
//
// In this order no handshake fails: API servers trust an authority long before they see a
// certificate of it, and until no replica serves one.
//
//	Stable    one authority is trusted, and signs
//	Publish   a second one is stored; it is written into every registration
//	Hold      every registration has it; the slowest API server has time to notice
//	Activate  the second one signs; replicas switch, and report it
//	Stable    the first one is removed
//
// All values are immutable and safe for concurrent use.
package rotation

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"time"
)

// The usual lives of certificates.
const (
	DefaultCALife   = 365 * 24 * time.Hour
	DefaultLeafLife = 7 * 24 * time.Hour
)

// Authority is a certificate authority.
type Authority struct {
	Cert *x509.Certificate
	// Key signs. It is nil for one that signed before, and if the stored key was lost.
	Key crypto.Signer
}

// ID returns the SHA-256 of the authority's certificate in lower-case hexadecimal.
func (a *Authority) ID() string { return ID(a.Cert) }

// hasExpired reports whether the authority has expired.
func (a *Authority) hasExpired(now time.Time) bool { return now.After(a.Cert.NotAfter) }

// ID returns that of the authority with the certificate.
func ID(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// Phase is a step of a rotation.
type Phase string

// The phases, see the package.
const (
	Stable   Phase = "Stable"
	Publish  Phase = "Publish"
	Hold     Phase = "Hold"
	Activate Phase = "Activate"
)

// Cause is why a rotation takes place. The zero value stands for none.
type Cause string

// The causes.
const (
	// Due is a CA that has used up two thirds of its life.
	Due Cause = "Due"
	// Requested is a request of an administrator.
	Requested Cause = "Requested"
	// Emergency is a request of an administrator to remove a CA whose key may be known to
	// others: the hold is short, and the wait for unreachable replicas is bounded.
	Emergency Cause = "Emergency"
	// Recovery is the replacement of a CA that was lost or has expired, and the merge of
	// two that were made independently of each other.
	Recovery Cause = "Recovery"
)

// Request is an administrator's request for a new CA.
type Request struct {
	// ID identifies it.
	ID string `json:"id"`
	// At is when it was made, by the administrator's clock.
	At        time.Time `json:"at"`
	Emergency bool      `json:"emergency,omitempty"`
}

// Absorbed is another lineage that was merged up to a generation.
type Absorbed struct {
	Lineage    string `json:"lineage"`
	Generation int64  `json:"generation"`
}

// State is everything that replicas must agree on.
type State struct {
	// Lineage is a random name from when the first CA was made, and Created that time. A
	// State of another lineage was made without knowledge of this one.
	Lineage string
	Created time.Time
	// Generation grows with every change.
	Generation int64

	Phase Phase
	// Since is when the phase began.
	Since time.Time
	// Cause is that of the rotation, or of the last one.
	Cause Cause
	// Request is a pending request. Done is the ID of the request of the last rotation.
	Request *Request
	Done    string

	// Absorbed are the lineages that gave way to this one, the last of them last.
	Absorbed []Absorbed

	// Current signs. Pending will sign, and exists in the phases Publish and Hold.
	// Previous signed before, and has no key: it exists in Activate, and in Publish and
	// Hold if it did when another lineage was merged.
	Current, Pending, Previous *Authority
}

// Authorities returns the previous, the current and the pending one, without nil.
func (s *State) Authorities() []*Authority {
	return slices.DeleteFunc([]*Authority{s.Previous, s.Current, s.Pending}, func(a *Authority) bool { return a == nil })
}

// Trusted returns the certificates that clients must trust, without expired ones. The
// current one is always among them: this clock may be wrong, and an empty bundle would
// break all calls. See Bundle for the order.
func (s *State) Trusted(now time.Time) []*x509.Certificate {
	var certs []*x509.Certificate
	for _, a := range s.Authorities() {
		if !a.hasExpired(now) || a == s.Current {
			certs = append(certs, a.Cert)
		}
	}
	return ordered(certs)
}

// Bundle returns certificates in PEM, each once, in an order that depends on the
// certificates alone: the same set gives the same bytes, because every change of a caBundle
// makes API servers reconnect.
func Bundle(certs []*x509.Certificate) []byte {
	var bundle []byte
	for _, cert := range ordered(certs) {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})...)
	}
	return bundle
}

// ordered returns the certificates from the oldest to the newest, each once.
func ordered(certs []*x509.Certificate) []*x509.Certificate {
	certs = slices.Clone(certs)
	slices.SortFunc(certs, func(a, b *x509.Certificate) int {
		if c := a.NotBefore.Compare(b.NotBefore); c != 0 {
			return c
		}
		return slices.Compare(a.Raw, b.Raw)
	})
	return slices.CompactFunc(certs, (*x509.Certificate).Equal)
}

// has reports whether an authority is one of the state's.
func (s *State) has(a *Authority) bool {
	return a != nil && slices.ContainsFunc(s.Authorities(), func(b *Authority) bool { return b.Cert.Equal(a.Cert) })
}

// next returns a copy of the state with the next generation.
func (s *State) next() *State {
	n := *s
	n.Generation++
	return &n
}

// enter returns a copy of the state in another phase.
func (s *State) enter(p Phase, now time.Time) *State {
	n := s.next()
	n.Phase, n.Since = p, now
	return n
}
