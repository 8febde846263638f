package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// bubble is a server in a synctest bubble.
type bubble struct {
	reviews *addressed
	ops     *memoryListener
	source  *certs.SelfSigned
	roots   *x509.CertPool
}

// addressed is a memoryListener whose connections have addresses.
type addressed struct {
	*memoryListener

	mu    sync.Mutex
	peers []string
}

func (a *addressed) Accept() (net.Conn, error) {
	conn, err := a.memoryListener.Accept()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	address := a.peers[0]
	a.peers = a.peers[1:]
	return resident{conn, &net.TCPAddr{IP: net.ParseIP(address), Port: 1}}, nil
}

func startBubble(t *testing.T, handler http.Handler) *bubble {
	t.Helper()
	source, err := certs.NewSelfSigned(t.Context(), certs.SelfSignedConfig{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	b := &bubble{reviews: &addressed{memoryListener: newMemoryListener()}, ops: newMemoryListener(), source: source, roots: x509.NewCertPool()}
	b.roots.AppendCertsFromPEM(source.CABundle())
	srv := server.New(server.Options{
		Reviews: b.reviews, Ops: b.ops, Ready: func() error { return nil }, Metrics: http.NotFoundHandler(),
		Log: slog.New(slog.DiscardHandler), Handler: handler,
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS13, GetCertificate: source.GetCertificate, NextProtos: []string{"h2", "http/1.1"},
			ClientCAs: b.roots, ClientAuth: tls.VerifyClientCertIfGiven,
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return b
}

// dial is a connection from an address after its handshake.
func (b *bubble) dial(t *testing.T, address, protocol string, certified bool) *tls.Conn {
	t.Helper()
	config := &tls.Config{RootCAs: b.roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}}
	if certified {
		certificate, key, err := b.source.ClientCertificate("kube-apiserver", "test")
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	b.reviews.mu.Lock()
	b.reviews.peers = append(b.reviews.peers, address)
	b.reviews.mu.Unlock()
	conn := tls.Client(b.reviews.dial(), config)
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.NetConn().Close() })
	return conn
}

// settings are those of HTTP/2 that the server sends first.
func settings(t *testing.T, conn net.Conn) map[uint16]uint32 {
	t.Helper()
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	header := make([]byte, 9)
	if _, err := io.ReadFull(conn, header); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, int(header[1])<<8|int(header[2]))
	if _, err := io.ReadFull(conn, payload); err != nil {
		t.Fatal(err)
	}
	all := map[uint16]uint32{}
	for ; len(payload) >= 6; payload = payload[6:] {
		all[binary.BigEndian.Uint16(payload)] = binary.BigEndian.Uint32(payload[2:])
	}
	return all
}

// TestStreams: few for anybody, many for an API server that sends all token reviews over
// one connection.
func TestStreams(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		certified bool
		streams   uint32
	}{
		{"without a client certificate", false, 32},
		{"with one", true, 250},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, http.NotFoundHandler())
				conn := b.dial(t, "192.0.2.1", "h2", test.certified)
				const maxConcurrentStreams, maxFrameSize = 3, 5
				got := settings(t, conn)
				if got[maxConcurrentStreams] != test.streams {
					t.Errorf("the server allows %d streams, want %d", got[maxConcurrentStreams], test.streams)
				}
				if got[maxFrameSize] > 16<<10 && !test.certified {
					t.Errorf("the server reads frames of %d bytes", got[maxFrameSize])
				}
			})
		})
	}
}

// TestIdleRequests has one address send more requests that do not go on than a server of
// this size had memory for when each reserved 64 KiB until it was cut off, and an ordinary
// and a certified caller meanwhile.
func TestIdleRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, protocol string
		connections    int
		body           string
		// ends is how long after the start each has been answered.
		ends time.Duration
	}{
		{"HTTP/2 without a byte", "h2", 6, "", 2 * time.Second},
		{"HTTP/1.1 without a byte", "http/1.1", 140, "", 2 * time.Second},
		{"HTTP/1.1 with one byte", "http/1.1", 140, "{", 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, emptyReviews(t))
				began := time.Now()
				var idle sync.WaitGroup
				for range test.connections {
					conn := b.dial(t, "198.51.100.1", test.protocol, false)
					if test.protocol == "h2" {
						settings(t, conn)
						go func() { _, _ = io.Copy(io.Discard, conn) }()
						for stream := range uint32(32) {
							// POST, https, /mutate, application/json, 100000 bytes.
							block := "\x83\x87\x44\x07/mutate\x41\x01x\x5f\x10application/json\x5c\x06100000"
							frame := append([]byte{0, 0, byte(len(block)), 1, 4}, binary.BigEndian.AppendUint32(nil, 2*stream+1)...)
							if _, err := conn.Write(append(frame, block...)); err != nil {
								t.Fatal(err)
							}
						}
						continue
					}
					if _, err := fmt.Fprintf(conn, "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n%s", test.body); err != nil {
						t.Fatal(err)
					}
					idle.Go(func() {
						response, err := http.ReadResponse(bufio.NewReader(conn), nil)
						if err != nil || response.StatusCode != http.StatusRequestTimeout {
							t.Errorf("an idle request is answered %v, %v", response, err)
						}
						if took := time.Since(began); took > test.ends {
							t.Errorf("an idle request lasts for %s, want %s", took, test.ends)
						}
					})
				}
				synctest.Wait()
				for _, certified := range []bool{false, true} {
					for range 8 {
						conn := b.dial(t, "192.0.2.1", "http/1.1", certified)
						if err := post(t.Context(), t, "https://127.0.0.1/mutate", strings.NewReader(admissionBody)).Write(conn); err != nil {
							t.Fatal(err)
						}
						response, err := http.ReadResponse(bufio.NewReader(conn), nil)
						if err != nil || response.StatusCode != http.StatusOK {
							t.Errorf("an ordinary review, certified %v, is answered %v, %v", certified, response, err)
						}
					}
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("ordinary reviews wait for %s", took)
				}
				idle.Wait()
			})
		})
	}
}

// A body that comes late, as on a busy machine, is read from a caller with a verified
// certificate, and not from a stranger, who could hold memory by it.
func TestLateBody(t *testing.T) {
	t.Parallel()
	for certified, want := range map[bool]int{false: http.StatusRequestTimeout, true: http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			b := startBubble(t, emptyReviews(t))
			conn := b.dial(t, "192.0.2.1", "http/1.1", certified)
			if _, err := fmt.Fprintf(conn, "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(admissionBody)); err != nil {
				t.Fatal(err)
			}
			var sent sync.WaitGroup
			sent.Go(func() {
				for i := range 2 {
					time.Sleep(6 * time.Second)                                                         // of the bubble's clock
					_, _ = io.WriteString(conn, admissionBody[i*10:(i+1)*10+i*len(admissionBody[20:])]) // whether it is read shows in the answer
				}
			})
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || response.StatusCode != want {
				t.Errorf("certified %v: %v, %v, want %d", certified, response, err, want)
			}
			_ = conn.Close() // the server may have closed it
			sent.Wait()
		})
	}
}

// TestDecisionOutlivesTheReadDeadline: the time for a body is not that for a decision.
func TestDecisionOutlivesTheReadDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, review.Admission(func(ctx context.Context, _ admission.Request) admission.Response {
			select {
			case <-ctx.Done():
				return admission.Errored(http.StatusInternalServerError, ctx.Err())
			case <-time.After(20 * time.Second):
				return admission.Allowed("")
			}
		}, review.Options{
			MaxBytes: review.MaxAdmissionBytes, MaxTime: 30 * time.Second, Now: time.Now,
			InFlight: review.NewBudget(128 << 20), Slots: review.NewSlots(1),
		}))
		conn := b.dial(t, "192.0.2.1", "http/1.1", false)
		request := post(t.Context(), t, "https://127.0.0.1/mutate", strings.NewReader(admissionBody))
		request.URL.RawQuery = "timeout=30s"
		if err := request.Write(conn); err != nil {
			t.Fatal(err)
		}
		if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("a decision of 20 seconds is answered %v, %v", response, err)
		}
	})
}

// TestHealthBesideManyConnections has somebody open connections to the listener for health
// and metrics.
func TestHealthBesideManyConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, http.NotFoundHandler())
		began := time.Now()
		const connections = 100
		closed := make(chan struct{}, connections)
		for range connections {
			conn := b.ops.dial()
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				_, _ = conn.Read(make([]byte, 1))
				closed <- struct{}{}
			}()
		}
		for range connections - 24 {
			<-closed
		}
		conn := b.ops.dial()
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("readyz is answered %v, %v", response, err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("that took %s", took)
		}
	})
}
