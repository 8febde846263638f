// Package rotation is how certificate authorities take each other's place
// without a failed handshake: a state machine that is pure. It has no clock and
// no client; what it decides is kept by somebody else, in a Secret say, from
// which any process can go on at any point.
//
// The order is the only one in which no handshake fails. An API server is told
// of an authority long before it meets a certificate of it, and forgets one only
// after nobody serves a certificate of it:
//
//	Stable    one authority is trusted, and signs
//	Publish   a second one is written down; every client is being told of it
//	Hold      every client has been told; time passes for the last to notice
//	Activate  the second one signs; replicas change over, and say so
//	Stable    the first one is forgotten
//
// Everything here is immutable once made and safe for concurrent use.
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

// Authority is a certificate authority.
type Authority struct {
	Cert *x509.Certificate
	// Key signs. It is nil where somebody else, such as cert-manager, does.
	Key crypto.Signer
}

// ID is how replicas name an authority to each other: the SHA-256 of its
// certificate in lower-case hexadecimal.
func (a *Authority) ID() string { return ID(a.Cert) }

// ended reports whether nobody accepts what the authority signed any more.
func (a *Authority) ended(now time.Time) bool { return now.After(a.Cert.NotAfter) }

// ID is that of the authority with the certificate.
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
	// Requested is an administrator's wish.
	Requested Cause = "Requested"
	// Emergency is an administrator's wish to be done with a CA whose key is
	// known to others: the hold is short, and replicas that do not answer are
	// waited for only so long.
	Emergency Cause = "Emergency"
	// Recovery is a CA in the place of one that was lost or has ended, and the
	// union of two that were made independently of each other.
	Recovery Cause = "Recovery"
	// Offered is a CA of somebody else, such as cert-manager, that appeared.
	Offered Cause = "Offered"
)

// Request is an administrator's wish for a new CA.
type Request struct {
	// ID tells it from other requests.
	ID string `json:"id"`
	// At is when it was made, by the administrator's clock.
	At        time.Time `json:"at"`
	Emergency bool      `json:"emergency,omitempty"`
}

// Absorbed is another lineage as far as it is known: whoever remembers no more
// of it than its Generation has nothing to add.
type Absorbed struct {
	Lineage    string `json:"lineage"`
	Generation int64  `json:"generation"`
}

// State is everything that replicas must agree on.
type State struct {
	// Lineage is a random name given once, when the first CA is made, and Created
	// when that was. What has another lineage was made by somebody who did not
	// know of this State.
	Lineage string
	Created time.Time
	// Generation grows with every change.
	Generation int64

	Phase Phase
	// Since is when the phase began.
	Since time.Time
	// Cause is why there is a rotation, and of the last one while there is none.
	Cause Cause
	// Request is a wish that has not been looked at. Done is the ID of the one
	// that the last rotation was for.
	Request *Request
	Done    string

	// Absorbed are the lineages that gave way to this one, the last of them last.
	Absorbed []Absorbed

	// Current signs. Pending will, and is there in the phases Publish and Hold.
	// Previous did, without its key: it is there in Activate, and in Publish and
	// Hold if it was when another lineage had to be merged.
	Current, Pending, Previous *Authority
}

// Authorities are those that are there: the previous, the current and the
// pending one.
func (s *State) Authorities() []*Authority {
	return slices.DeleteFunc([]*Authority{s.Previous, s.Current, s.Pending}, func(a *Authority) bool { return a == nil })
}

// Trusted are the certificates that clients must trust, without those that have
// ended. The current one is always among them: a bundle of nothing would take
// away what a client whose clock is right accepts. See Bundle for the order.
func (s *State) Trusted(now time.Time) []*x509.Certificate {
	var certs []*x509.Certificate
	for _, a := range s.Authorities() {
		if !a.ended(now) || a == s.Current {
			certs = append(certs, a.Cert)
		}
	}
	return ordered(certs)
}

// Bundle is certificates in PEM, each once, in an order that depends on the
// certificates alone: a set that stays the same gives the same bytes, whatever
// its members are there for, because every change of a caBundle makes an API
// server connect anew.
func Bundle(certs []*x509.Certificate) []byte {
	var bundle []byte
	for _, cert := range ordered(certs) {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})...)
	}
	return bundle
}

// ordered is the certificates from the oldest to the newest, each once.
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

// next is a copy of the state for a change.
func (s *State) next() *State {
	n := *s
	n.Generation++
	return &n
}

// enter is a copy of the state in another phase.
func (s *State) enter(p Phase, now time.Time) *State {
	n := s.next()
	n.Phase, n.Since = p, now
	return n
}
