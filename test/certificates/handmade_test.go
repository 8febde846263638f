package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// newCA makes a CA as somebody else would, valid from a time on.
func newCA(t *testing.T, name string, from time.Time) *rotation.Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	id := sha256.Sum256([]byte(rand.Text()))
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: from.AddDate(1, 0, 0), SubjectKeyId: id[:20],
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &rotation.Authority{Cert: cert, Key: key}
}

// issue signs a serving certificate for the hook.
func (h *hook) issue(t *testing.T, ca *rotation.Authority, from, to time.Time) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject: pkix.Name{CommonName: "by hand"}, DNSNames: []string{h.host()}, NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca.Cert, key.Public(), ca.Key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func bundleOf(authorities ...*rotation.Authority) []byte {
	var certs []*x509.Certificate
	for _, a := range authorities {
		certs = append(certs, a.Cert)
	}
	return rotation.Bundle(certs)
}

// handmade is a server whose certificate is changed by hand.
type handmade struct {
	*server
	cert atomic.Pointer[tls.Certificate]
}

func (h *hook) serveByHand(t *testing.T, cert *tls.Certificate) *handmade {
	t.Helper()
	m := &handmade{}
	m.cert.Store(cert)
	var err error
	m.server, err = serve(t.Context(), func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.cert.Load(), nil })
	must(t, err)
	t.Cleanup(func() { _ = m.close() })
	return m
}

type pair [2]*handmade

func (p pair) work() work { return p[0].work().and(p[1].work()) }
