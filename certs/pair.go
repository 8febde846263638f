package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/patherr"
)

// readPair reads a certificate with its chain, and its key. An error names the file and the remedy.
func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	certPEM, err := readFile(certFile)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readFile(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w (hint: write the certificate and the key of the same issue in PEM, the certificate of the key first, the key without a passphrase)", certFile, keyFile, err)
	}
	// A block that is begun and not ended is an error and not the end: the file is still being written,
	// and a part of the chain would be taken for the whole.
	if begun := bytes.Count(certPEM, []byte("-----BEGIN "+blockCertificate+"-----")); begun != len(pair.Certificate) {
		return nil, fmt.Errorf("%s: %d of %d certificates can be read: the file is half-written or damaged", certFile, len(pair.Certificate), begun)
	}
	return &pair, nil
}

func readFile(file string) ([]byte, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the file is named by whoever starts the program
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w (hint: check the path, and that the Secret or volume has this file)", file, patherr.Cause(err))
	}
	return data, nil
}

// samePair reports whether two pairs are the same to a client.
func samePair(a, b *tls.Certificate) bool {
	return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

// sameIssuer reports whether the same key and name signed both. It is false if the
// identifier of the key is missing.
func sameIssuer(a, b *x509.Certificate) bool {
	return len(a.AuthorityKeyId) > 0 && bytes.Equal(a.AuthorityKeyId, b.AuthorityKeyId) && bytes.Equal(a.RawIssuer, b.RawIssuer)
}

// checkValidity returns an error if the certificate is not valid at the time.
func checkValidity(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(cert.NotBefore):
		return fmt.Errorf("not valid before %s: check the clock, or wait", stamp(cert.NotBefore))
	case now.After(cert.NotAfter):
		return fmt.Errorf("expired at %s: renew it", stamp(cert.NotAfter))
	}
	return nil
}

// isValid reports whether a certificate is not nil and valid.
func isValid(pair *tls.Certificate, now time.Time) bool {
	return pair != nil && checkValidity(pair.Leaf, now) == nil
}

// warningsOf returns warnings about a serving certificate that some clients may reject.
func warningsOf(pair *tls.Certificate, now time.Time) []string {
	var list []string
	leaf := pair.Leaf
	if leaf.IsCA {
		list = append(list, "the certificate is that of a CA: serve one that it issued, so that the CA's key can be stored elsewhere")
	}
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		list = append(list, "the certificate has no subject alternative names: clients ignore the common name and will reject it")
	}
	if len(leaf.ExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		list = append(list, "the certificate is not for servers: its extended key usage has no serverAuth, and clients will reject it")
	}
	for i, der := range pair.Certificate[1:] {
		cert, err := x509.ParseCertificate(der)
		if err == nil && now.After(cert.NotAfter) {
			list = append(list, fmt.Sprintf("certificate %d of the file expired at %s: clients without a newer certificate for its key reject what it signed", i+2, stamp(cert.NotAfter)))
		}
	}
	return list
}
