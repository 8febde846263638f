package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/internal/clock"
)

// CheckValidity returns an error if the certificate is not valid at the time.
func CheckValidity(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(cert.NotBefore):
		return fmt.Errorf("not valid before %s: check the clock, or wait", clock.Stamp(cert.NotBefore))
	case now.After(cert.NotAfter):
		return fmt.Errorf("expired at %s: renew it", clock.Stamp(cert.NotAfter))
	}
	return nil
}

// CheckPair returns an error if clients cannot accept a certificate at the time: it is not
// valid, the one behind it that signed it has expired, or one that follows in the chain
// is not valid yet. What else has expired in the chain clients may have in a newer
// version, and remarks reports it.
func CheckPair(pair *tls.Certificate, now time.Time) error {
	if err := CheckValidity(pair.Leaf, now); err != nil {
		return err
	}
	for i, cert := range ChainOf(pair) {
		isRoot := bytes.Equal(cert.RawSubject, cert.RawIssuer)
		if now.Before(cert.NotBefore) || now.After(cert.NotAfter) && i == 0 && !isRoot {
			return fmt.Errorf("certificate %d of the chain, %q, is %w", i+2, cert.Subject.String(), CheckValidity(cert, now))
		}
	}
	return nil
}

// ChainOf returns the certificates behind the first one, as far as each signed the one
// before it.
func ChainOf(pair *tls.Certificate) []*x509.Certificate {
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
