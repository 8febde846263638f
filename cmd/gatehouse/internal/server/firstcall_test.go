package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
)

// memoryListener gives connections of this process, whose clock may be a bubble's.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memoryListener) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (*memoryListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// An API server calls over connections that were open for up to 90 seconds without a
// call, and whoever begins a call and does not end it is cut off in seconds.
func TestFirstCall(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		waits time.Duration
		// body is what is sent of ten bytes.
		body string
		want bool
	}{
		{"at once", 0, "0123456789", true},
		{"after 89 seconds", 89 * time.Second, "0123456789", true},
		{"after two minutes", 2 * time.Minute, "0123456789", false},
		{"a body that does not end", 0, "01234", false},
		{"a body that does not end, after a minute", time.Minute, "01234", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source, err := certs.NewSelfSigned(t.Context(), certs.SelfSignedConfig{Hosts: []string{"127.0.0.1"}})
				if err != nil {
					t.Fatal(err)
				}
				roots := x509.NewCertPool()
				roots.AppendCertsFromPEM(source.CABundle())
				reviews, ops := newMemoryListener(), newMemoryListener()
				var read error
				srv := server.New(server.Options{
					Reviews: reviews, Ops: ops, Ready: func() error { return nil }, Metrics: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler),
					TLS: &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: source.GetCertificate},
					Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						if _, read = io.ReadAll(r.Body); read != nil {
							panic(http.ErrAbortHandler)
						}
					}),
				})
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- srv.Run(ctx) }()
				defer func() {
					stop()
					if err := <-done; err != nil {
						t.Errorf("Run = %v", err)
					}
				}()
				conn := tls.Client(reviews.dial(), &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13})
				defer conn.Close() //nolint:errcheck // the server may have closed it
				if err := conn.HandshakeContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.waits)
				began := time.Now()
				_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n%s", test.body)
				var response *http.Response
				if err == nil {
					response, err = http.ReadResponse(bufio.NewReader(conn), nil)
				}
				if got := err == nil && response.StatusCode == http.StatusOK; got != test.want {
					t.Errorf("answered: %v, want %v (%v)", got, test.want, err)
				}
				if took := time.Since(began); took > 16*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
