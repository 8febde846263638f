// Package pemcert reads the certificates of CAs that a user names, and refuses anything else in the text.
package pemcert

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Parse returns the certificates of a PEM text, which must have at least one and nothing else in PEM: a private key in
// a public file is a mistake, and a block that cannot be read a file that is cut off. Text between blocks is ignored.
func Parse(text []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		n := len(certificates) + 1
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %d is of type %.60q, allowed is CERTIFICATE", n, block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be parsed: %w", n, err)
		}
		certificates = append(certificates, certificate)
	}
	// The decoder passes over a block that it cannot read.
	if begun := bytes.Count(text, []byte("-----BEGIN ")); begun != len(certificates) {
		return nil, fmt.Errorf("%d of %d PEM blocks cannot be read: it is cut off or damaged", begun-len(certificates), begun)
	}
	if len(certificates) == 0 {
		return nil, errors.New("contains no PEM certificate, which begins with -----BEGIN CERTIFICATE-----")
	}
	return certificates, nil
}

// Pool returns the certificates of a PEM text as a pool, see Parse.
func Pool(text []byte) (*x509.CertPool, error) {
	certificates, err := Parse(text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, certificate := range certificates {
		pool.AddCert(certificate)
	}
	return pool, nil
}
