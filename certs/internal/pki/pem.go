// Package pki makes, reads and checks X.509 certificates.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

const (
	// BlockCertificate is the type of the PEM block of a certificate.
	BlockCertificate = "CERTIFICATE"
	// BlockPrivateKey is the type of the PEM block of a private key.
	BlockPrivateKey = "PRIVATE KEY"
)

// ReadPair reads a certificate chain and its key. An error names the file and
// the remedy.
func ReadPair(certFile, keyFile string) (*tls.Certificate, error) {
	certPEM, err := readFile(certFile)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readFile(keyFile)
	if err != nil {
		return nil, err
	}
	return ParsePair(certFile, certPEM, keyFile, keyPEM)
}

// ParsePair reads a certificate chain and its key out of files that were read.
func ParsePair(certFile string, certPEM []byte, keyFile string, keyPEM []byte) (*tls.Certificate, error) {
	blocks, err := DecodePEM(certFile, certPEM)
	if err != nil {
		return nil, err
	}
	chain, err := ParseCertificates(certFile, blocks)
	if err != nil {
		return nil, err
	}
	key, err := readKey(keyFile, keyPEM)
	if err != nil {
		return nil, err
	}
	public, ok := key.Public().(interface {
		Equal(other crypto.PublicKey) bool
	})
	if !ok {
		return nil, fmt.Errorf("%s: a key of type %T cannot serve TLS: use an ECDSA, RSA or Ed25519 key", keyFile, key)
	}
	for i, cert := range chain {
		switch {
		case !public.Equal(cert.PublicKey):
		case i > 0:
			return nil, fmt.Errorf("%s: the certificate of the key in %s is number %d in the file: put it first, and after it the one that signed it", certFile, keyFile, i+1)
		default:
			pair := &tls.Certificate{PrivateKey: key, Leaf: cert}
			for _, c := range chain {
				pair.Certificate = append(pair.Certificate, c.Raw)
			}
			return pair, nil
		}
	}
	return nil, fmt.Errorf("certificate and key do not match: %s was not issued for the key in %s: write the certificate and the key of the same issue", certFile, keyFile)
}

// ParseCertificates reads all certificates among the blocks of a file, at least
// one. Blocks of other types are passed over.
func ParseCertificates(file string, blocks []*pem.Block) ([]*x509.Certificate, error) {
	var (
		certs []*x509.Certificate
		other string
	)
	for i, block := range blocks {
		if block.Type != BlockCertificate {
			other = block.Type
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: PEM block %d is not a valid certificate: %w", file, i+1, err)
		}
		certs = append(certs, cert)
	}
	switch {
	case len(certs) > 0:
		return certs, nil
	case strings.HasSuffix(other, BlockPrivateKey):
		return nil, fmt.Errorf("%s: holds a private key and no certificate: are the two files swapped?", file)
	default:
		return nil, fmt.Errorf("%s: holds a PEM block of type %.60q and no CERTIFICATE", file, other)
	}
}

// readKey reads the first private key of a PEM file that was read.
func readKey(file string, data []byte) (crypto.Signer, error) {
	blocks, err := DecodePEM(file, data)
	if err != nil {
		return nil, err
	}
	for _, block := range blocks {
		if !strings.HasSuffix(block.Type, BlockPrivateKey) {
			continue
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
			return nil, fmt.Errorf("%s: the private key is encrypted: write it without a passphrase, readable only by this process", file)
		}
		key, err := parseKey(block.Bytes)
		if err != nil {
			// What the parsers say may hold bytes of the key in some later
			// version of Go; that it cannot be read is enough.
			return nil, fmt.Errorf("%s: the %.60s cannot be read: write it as PKCS #8, PKCS #1 or SEC 1", file, block.Type)
		}
		return key, nil
	}
	if blocks[0].Type == BlockCertificate {
		return nil, fmt.Errorf("%s: holds a certificate and no private key: are the two files swapped?", file)
	}
	return nil, fmt.Errorf("%s: holds a PEM block of type %.60q and no PRIVATE KEY", file, blocks[0].Type)
}

// parseKey tries all encodings whatever the block's type says, since files with
// the wrong one are about and every other server reads them.
func parseKey(der []byte) (crypto.Signer, error) {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("not a key that signs")
	}
	return signer, nil
}

// ReadPEM reads all blocks of a file, see decodePEM.
func ReadPEM(file string) ([]*pem.Block, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return DecodePEM(file, data)
}

func readFile(file string) ([]byte, error) {
	//nolint:gosec // the file is named by whoever starts the program
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: check the path, and that the Secret or volume behind it has the file", err)
	}
	return data, nil
}

// DecodePEM reads all blocks of a file that was read, at least one. A block that
// is begun and not ended is an error and not the end: the file is still being
// written, and the half of a chain or of a bundle would be taken for the whole.
func DecodePEM(file string, data []byte) ([]*pem.Block, error) {
	var blocks []*pem.Block
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		blocks = append(blocks, block)
	}
	// The decoder passes over what it cannot read, so the beginnings are counted.
	begun := bytes.Count(data, []byte("-----BEGIN "))
	switch {
	case len(blocks) < begun:
		return nil, fmt.Errorf("%s: %d of %d PEM blocks can be read: the file is half-written or damaged", file, len(blocks), begun)
	case len(blocks) == 0 && len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%s: is empty", file)
	case len(blocks) == 0:
		return nil, fmt.Errorf("%s: holds no PEM block: convert it from DER or PKCS #12, for example with openssl", file)
	}
	return blocks, nil
}

// SamePair reports whether two pairs are the same to a client.
func SamePair(a, b *tls.Certificate) bool {
	if len(a.Certificate) != len(b.Certificate) {
		return false
	}
	for i := range a.Certificate {
		if !bytes.Equal(a.Certificate[i], b.Certificate[i]) {
			return false
		}
	}
	return true
}

// EncodeCertificate returns a certificate in PEM.
func EncodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: BlockCertificate, Bytes: der})
}

// EncodeKey returns a private key in PEM.
func EncodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: BlockPrivateKey, Bytes: der}), nil
}
