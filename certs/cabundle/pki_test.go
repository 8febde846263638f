package cabundle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// epoch is the time at which a bubble of synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate; a nil signer is the certificate itself.
func issue(t testing.TB, template *x509.Certificate, signer *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = epoch.Add(-time.Hour), epoch.AddDate(1, 0, 0)
	}
	if signer == nil {
		signer = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func newCA(t testing.TB, name string, signer *authority) *authority {
	t.Helper()
	return issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, signer)
}

// serve makes a serving certificate; those behind it are sent with it.
func (a *authority) serve(t testing.TB, names ...string) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "gatehouse"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	leaf := issue(t, template, a)
	return &tls.Certificate{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key, Leaf: leaf.cert}
}

func (a *authority) pem() string { return string(rotation.Bundle([]*x509.Certificate{a.cert})) }

func bundleOf(list ...*authority) string {
	var certs []*x509.Certificate
	for _, a := range list {
		certs = append(certs, a.cert)
	}
	return string(rotation.Bundle(certs))
}

func block(kind string, headers map[string]string, content []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Headers: headers, Bytes: content}))
}
