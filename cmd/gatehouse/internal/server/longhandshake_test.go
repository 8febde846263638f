package server_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
)

// cut loses what is written behind a number of bytes.
type cut struct {
	net.Conn

	left int
}

func (c *cut) Write(text []byte) (int, error) {
	n := min(len(text), c.left)
	c.left -= n
	if n > 0 {
		if _, err := c.Conn.Write(text[:n]); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// A client that sends a quarter of a megabyte of certificates, but for the end, holds it no longer than it takes.
func TestLongHandshake(t *testing.T) {
	t.Parallel()
	failed := make(chan server.HandshakeFailure, 10)
	r := startAs(t, http.NotFoundHandler(), func() error { return nil }, 0, func(o server.Options) *server.Server {
		o.HandshakeFailed = func(why server.HandshakeFailure) { failed <- why }
		o.TLS.ClientAuth = tls.VerifyClientCertIfGiven
		return server.New(o)
	})
	stranger, err := certs.NewSelfSigned(t.Context(), certs.SelfSignedConfig{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := stranger.ClientCertificate("stranger", "test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pair.Certificate = append(pair.Certificate, make([]byte, 255_000))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.reviews, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	began := time.Now()
	client := tls.Client(&cut{conn, 250_000}, &tls.Config{
		RootCAs: r.roots(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	})
	_ = client.HandshakeContext(t.Context()) // the server may close the connection before its end
	select {
	case why := <-failed:
		if took := time.Since(began); why != server.Protocol || took > 5*time.Second {
			t.Errorf("%s after %s, want %s at once", why, took, server.Protocol)
		}
	case <-time.After(15 * time.Second):
		t.Error("the handshake has not failed")
	}
}
