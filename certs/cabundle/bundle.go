package cabundle

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
)

// bundle is a caBundle as kube-apiserver reads it. It is immutable.
type bundle struct {
	empty bool
	pool  *x509.CertPool
	certs []*x509.Certificate
	// blocks counts the PEM blocks that begin in it. kube-apiserver silently ignores
	// those that are damaged or hold something else than a certificate.
	blocks int
}

// parseBundle reads a caBundle as x509.CertPool.AppendCertsFromPEM does, which
// kube-apiserver uses: blocks that it cannot read are skipped.
func parseBundle(raw string) *bundle {
	b := &bundle{empty: raw == "", pool: x509.NewCertPool(), blocks: strings.Count(raw, "-----BEGIN ")}
	rest := []byte(raw)
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return b
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		b.pool.AddCert(cert)
		if !b.has(cert) {
			b.certs = append(b.certs, cert)
		} else {
			b.blocks--
		}
	}
}

func (b *bundle) has(cert *x509.Certificate) bool { return slices.ContainsFunc(b.certs, cert.Equal) }

// remark returns what is wrong with the bundle itself, "" if nothing is.
func (b *bundle) remark() string {
	if bad := b.blocks - len(b.certs); bad > 0 {
		return fmt.Sprintf("%d of its %d PEM blocks are not certificates and are ignored", bad, b.blocks)
	}
	return ""
}
