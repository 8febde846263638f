package registration

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// ParseCABundle checks the PEM text of CA certificates and returns it without
// what the API server does not need, such as comments: the bytes depend on the
// certificates alone. A certificate that is not a CA's, that has ended, or a
// block that is no certificate or cannot be read is an error.
func ParseCABundle(text []byte, now time.Time) ([]byte, error) {
	var (
		bundle bytes.Buffer
		n      int
		seen   = map[string]bool{}
	)
	for rest := text; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		n++
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("block %d is a %q, allowed is CERTIFICATE", n, block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", n, err)
		}
		switch {
		case !certificate.IsCA:
			return nil, fmt.Errorf("block %d, %q: is not the certificate of a CA (hint: use the certificate that signed the serving certificate)", n, certificate.Subject)
		case now.After(certificate.NotAfter):
			return nil, fmt.Errorf("block %d, %q: ended on %s", n, certificate.Subject, certificate.NotAfter.UTC().Format(time.DateTime))
		case seen[string(block.Bytes)]:
			continue
		}
		seen[string(block.Bytes)] = true
		if err := pem.Encode(&bundle, &pem.Block{Type: block.Type, Bytes: block.Bytes}); err != nil {
			return nil, err
		}
	}
	// The decoder passes over a block that it cannot read.
	if begun := bytes.Count(text, []byte("-----BEGIN ")); begun != n {
		return nil, fmt.Errorf("%d of %d blocks cannot be read (hint: the file is cut off or damaged)", begun-n, begun)
	}
	if n == 0 {
		return nil, errors.New("it has no certificate (hint: PEM begins with -----BEGIN CERTIFICATE-----)")
	}
	return bundle.Bytes(), nil
}
