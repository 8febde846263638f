package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
)

// TestFailedHandshakes has real clients fail in every way, because the reasons are
// recognized by the errors of net/http and crypto/tls. Every failure counts.
func TestFailedHandshakes(t *testing.T) {
	t.Parallel()
	failed := make(chan server.HandshakeFailure, 1000)
	broken := errors.New("no certificate yet")
	r := start(t, http.NotFoundHandler(), func(o server.Options) *server.Server {
		o.HandshakeFailed = func(why server.HandshakeFailure) { failed <- why }
		get := o.TLS.GetCertificate
		o.TLS.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if hello.ServerName == "broken.example" {
				return nil, broken
			}
			return get(hello)
		}
		return server.New(o)
	})
	address := strings.TrimPrefix(r.reviews, "https://")
	stranger := newAuthority(t).clientCertificate(t)
	// shake fails, at the latest with the first answer: with TLS 1.3 a client learns
	// only then that its certificate is refused.
	shake := func(change func(*tls.Config)) func(*testing.T, net.Conn) {
		return func(t *testing.T, conn net.Conn) {
			t.Helper()
			config := &tls.Config{RootCAs: r.roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
			change(config)
			client := tls.Client(conn, config)
			err := client.HandshakeContext(t.Context())
			if err == nil {
				_, err = client.Read(make([]byte, 1))
			}
			if err == nil {
				t.Error("the client got an answer")
			}
		}
	}
	for _, tc := range []struct {
		name string
		do   func(*testing.T, net.Conn)
		want server.HandshakeFailure
	}{
		{"a CA that the client does not know", shake(func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }), server.Untrusted},
		{"another name", shake(func(c *tls.Config) { c.ServerName = "other.example" }), server.Untrusted},
		{"after the certificate's end", shake(func(c *tls.Config) {
			c.Time = func() time.Time { return time.Now().AddDate(50, 0, 0) }
		}), server.Untrusted},
		{"a client certificate of another CA", shake(func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger, nil }
		}), server.ClientCertificate},
		{"an old version", shake(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), server.Protocol},
		{"no common protocol", shake(func(c *tls.Config) { c.NextProtos = []string{"other"} }), server.Protocol},
		{"HTTP", func(_ *testing.T, conn net.Conn) { _, _ = fmt.Fprint(conn, "GET / HTTP/1.1\r\n\r\n") }, server.Protocol},
		{"something else", func(_ *testing.T, conn net.Conn) { _, _ = fmt.Fprint(conn, "SSH-2.0-OpenSSH_9.0\r\n") }, server.Protocol},
		{"nothing", func(_ *testing.T, conn net.Conn) { _ = conn.Close() }, server.Abandoned},
		{"half a hello", func(_ *testing.T, conn net.Conn) {
			_, _ = conn.Write([]byte{22, 3, 1, 1, 0, 1})
			_ = conn.Close()
		}, server.Abandoned},
		{"a reset", func(_ *testing.T, conn net.Conn) {
			_, _ = conn.Write([]byte{22, 3, 1, 1, 0, 1})
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}, server.Abandoned},
		{"no certificate to serve", shake(func(c *tls.Config) { c.ServerName = "broken.example" }), server.OtherFailure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const times = 3
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for range times {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				tc.do(t, conn)
				select {
				case why := <-failed:
					if why != tc.want {
						t.Errorf("counted as %q, want %q", why, tc.want)
					}
				case <-ctx.Done():
					t.Fatal("not counted")
				}
				_ = conn.Close()
			}
		})
	}
	// What goes well is no failure, and neither is what goes wrong later.
	if response, _, err := get(t, r.client, r.reviews+"/"); err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("a good handshake: %v %v", response, err)
	}
	r.client.CloseIdleConnections()
	select {
	case why := <-failed:
		t.Errorf("a good handshake is counted as %q", why)
	default:
	}
	if all := server.HandshakeFailures(); len(slices.Compact(slices.Sorted(slices.Values(all)))) != 5 {
		t.Errorf("the reasons are %q", all)
	}
}

// truncatingConn drops what is written after a number of bytes.
type truncatingConn struct {
	net.Conn

	left int
}

func (c *truncatingConn) Write(text []byte) (int, error) {
	n := min(len(text), c.left)
	c.left -= n
	if n > 0 {
		if _, err := c.Conn.Write(text[:n]); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// TestLongHandshake has a client send a quarter of a megabyte of certificates, but not the
// end of them.
func TestLongHandshake(t *testing.T) {
	t.Parallel()
	failed := make(chan server.HandshakeFailure, 10)
	r := start(t, http.NotFoundHandler(), func(o server.Options) *server.Server {
		o.HandshakeFailed = func(why server.HandshakeFailure) { failed <- why }
		return server.New(o)
	})
	pair := newAuthority(t).clientCertificate(t)
	pair.Certificate = append(pair.Certificate, make([]byte, 255_000))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.reviews, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	client := tls.Client(&truncatingConn{conn, 250_000}, &tls.Config{
		RootCAs: r.roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	})
	_ = client.HandshakeContext(t.Context())     // the server may close the connection before its end
	if why := <-failed; why != server.Protocol { // the time for a handshake would be another reason
		t.Errorf("failed as %s, want %s", why, server.Protocol)
	}
}
