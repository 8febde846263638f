package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The configurations of Gatehouse that differ in where its certificate comes from.
const (
	fileCertificate = "certificate in files"
	ownCertificate  = "self-signed certificate"
)

// byHandshake are connections without a request, over HTTP/1.1 as to a Service: an
// API server makes one for each call beyond the 25 that it keeps.
func byHandshake() ([]scenario, error) {
	s := scenario{protocol: http1, concurrency: 16, divisor: 1, handshake: true}
	var all []scenario
	for _, of := range []struct{ name, configuration string }{
		{"handshake-files", fileCertificate},
		{"handshake-self-signed", ownCertificate},
	} {
		s.name, s.configuration = of.name+"/"+s.protocol+"/c16", of.configuration
		all = append(all, s)
	}
	return all, nil
}

// handshake connects as the API server does for admission, without a session to
// resume and without a client certificate, and ends the connection in a way by
// which both sides know that the other has done its part.
func (c *client) handshake(ctx context.Context) error {
	raw, err := c.dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	conn := tls.Client(raw, c.anonymous)
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if err := checkHandshake(conn.ConnectionState()); err != nil {
		return err
	}
	if err := conn.CloseWrite(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	// With TLS 1.3 the server may be still at it, and may refuse.
	n, err := conn.Read(make([]byte, 1))
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("handshake: %d bytes and %w instead of an end", n, err)
	}
	return nil
}

// checkHandshake refuses whatever would be cheaper, or dearer, than what is to be
// compared: a full handshake of TLS 1.3 with a P-256 certificate.
func checkHandshake(state tls.ConnectionState) error {
	key, ok := state.PeerCertificates[0].PublicKey.(*ecdsa.PublicKey)
	switch {
	case state.Version != tls.VersionTLS13:
		return fmt.Errorf("handshake: version %s instead of TLS 1.3", tls.VersionName(state.Version))
	case state.DidResume:
		return errors.New("handshake: a session was resumed")
	case !ok || key.Curve != elliptic.P256():
		return fmt.Errorf("handshake: a certificate with a key %T instead of P-256", state.PeerCertificates[0].PublicKey)
	default:
		return nil
	}
}

// certificateFlags are the flags that give Gatehouse its certificate. Files are
// those of a certificate like the null webhook's.
func (s *server) certificateFlags() ([]string, error) {
	if s.configuration != fileCertificate {
		return []string{"--self-signed", "127.0.0.1", "--self-signed-dir", s.certificates}, nil
	}
	certificate, ca, err := selfSigned()
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		return nil, err
	}
	s.ca = ca
	certFile, keyFile := filepath.Join(s.certificates, "tls.crt"), filepath.Join(s.certificates, "tls.key")
	err = errors.Join(
		os.WriteFile(certFile, []byte(ca), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600),
	)
	return []string{"--tls-cert", certFile, "--tls-key", keyFile}, err
}
