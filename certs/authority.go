package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// The usual lives of certificates.
const (
	DefaultCALife   = 365 * 24 * time.Hour
	DefaultLeafLife = 7 * 24 * time.Hour
	clientLife      = 365 * 24 * time.Hour
)

// Backdate is how long before its issue a certificate becomes valid, for clocks that
// differ. Its life counts from its issue.
const Backdate = 24 * time.Hour

// Authority is a certificate authority. It is immutable.
type Authority struct {
	Cert *x509.Certificate
	// Key signs. It is nil for one that signed before.
	Key crypto.Signer
}

// ID returns the SHA-256 of the authority's certificate in lower-case hexadecimal.
func (a *Authority) ID() string { return ID(a.Cert) }

// ID returns that of the authority with the certificate.
func ID(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// IsDue reports whether a certificate of Gatehouse has used up two thirds of its life.
func IsDue(cert *x509.Certificate, now time.Time) bool { return !now.Before(DueAt(cert)) }

// DueAt returns from when on IsDue is true.
func DueAt(cert *x509.Certificate) time.Time {
	issued := cert.NotBefore.Add(Backdate)
	return issued.Add(cert.NotAfter.Sub(issued) / 3 * 2)
}

// NewAuthority makes a CA that may sign certificates and no further CAs. Its name
// and its key identifier are its own, so that a client that knows several CAs of
// Gatehouse finds the right one at once. Keys are ECDSA on P-256: signing with
// one takes a thirtieth of the time that RSA-2048 takes, and every handshake
// signs. With usages, nothing that it signs is good for anything else.
func NewAuthority(now time.Time, life time.Duration, usages ...x509.ExtKeyUsage) (*Authority, error) {
	key, id, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: "gatehouse self-signed CA " + hex.EncodeToString(id[:4])},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.Add(life),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage:           usages,
		SubjectKeyId:          id,
		AuthorityKeyId:        id,
	}
	cert, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: cert, Key: key}, nil
}

// issue signs a certificate for a new key. The template says for whom, for what
// and for how long; it does not outlive the CA.
func (a *Authority) issue(template *x509.Certificate) (*tls.Certificate, error) {
	key, id, err := newKey()
	if err != nil {
		return nil, err
	}
	template.SerialNumber, template.SubjectKeyId = newSerial(), id
	template.NotAfter = earlier(template.NotAfter, a.Cert.NotAfter)
	template.AuthorityKeyId = a.Cert.SubjectKeyId
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageDigitalSignature
	cert, err := sign(template, a.Cert, &key.PublicKey, a.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}

// signed reports whether the authority signed a certificate.
func (a *Authority) signed(leaf *tls.Certificate) bool {
	return bytes.Equal(leaf.Leaf.AuthorityKeyId, a.Cert.SubjectKeyId)
}

// clientCertificate issues a client certificate for the API server, in PEM.
func (a *Authority) clientCertificate(now time.Time) (certPEM, keyPEM []byte, err error) {
	pair, err := a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver", Organization: []string{"gatehouse.dev"}},
		NotBefore:   now.Add(-Backdate),
		NotAfter:    now.Add(clientLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil {
		keyPEM, err = encodeKey(pair.PrivateKey)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("client certificate: %w", err)
	}
	return Bundle([]*x509.Certificate{pair.Leaf}), keyPEM, nil
}

func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// newKey returns a key and its identifier, the leftmost 160 bits of the SHA-256 of the public key:
// RFC 7093, section 2, method 1.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(point)
	return key, sum[:20], nil
}

// newSerial is a random positive number of at most 127 bits: RFC 5280 allows 20
// bytes, the first bit of which is the sign.
func newSerial() *big.Int {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)) // the reader never fails
	return serial
}

// Bundle returns certificates in PEM, each once, from the oldest to the newest: the same set gives
// the same bytes, because every change of a caBundle makes API servers reconnect.
func Bundle(list []*x509.Certificate) []byte {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *x509.Certificate) int {
		if c := a.NotBefore.Compare(b.NotBefore); c != 0 {
			return c
		}
		return bytes.Compare(a.Raw, b.Raw)
	})
	var bundle []byte
	for _, cert := range slices.CompactFunc(list, (*x509.Certificate).Equal) {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: cert.Raw})...)
	}
	return bundle
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockPrivateKey, Bytes: der}), nil
}
