package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	admissionBody = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",
		"kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},
		"name":"a","namespace":"shop","operation":"CREATE","userInfo":{"username":"jane"},
		"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop"}}}}`
	tokenBody = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"x"}}`
)

// emptyReviews are the endpoints of an empty configuration.
func emptyReviews(t *testing.T) http.Handler {
	t.Helper()
	snapshot, err := webhooks.Compile(webhooks.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[webhooks.Snapshot]
	current.Store(snapshot)
	return server.Reviews(&current, server.ReviewOptions{
		Bytes: 2 * review.MaxAdmissionBytes, Observe: func(*review.Outcome) {}, Profiles: func([]sidecar.Verdict) {},
		Policies: func([]policy.Observation) {}, Login: http.NotFoundHandler(), Now: time.Now,
	})
}

func post(ctx context.Context, t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=10s", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// TestWhatKeepsAConnection checks what a connection is kept for.
func TestWhatKeepsAConnection(t *testing.T) {
	t.Parallel()
	handler := emptyReviews(t)
	for _, tc := range []struct {
		path, body      string
		certified, kept bool
	}{
		{"/mutate", admissionBody, false, true},
		{"/validate", admissionBody, false, true},
		{"/authenticate", tokenBody, true, true},
		{"/authenticate", tokenBody, false, false},
		{"/login", `{}`, false, false},
		{"/whoami", ``, false, false},
		{"/", ``, false, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tc.path+"?timeout=10s", strings.NewReader(tc.body))
		r.Header.Set("Content-Type", "application/json")
		r.TLS = &tls.ConnectionState{}
		if tc.certified {
			certificate := &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}
			r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{certificate}, [][]*x509.Certificate{{certificate}}
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, r)
		if kept := recorder.Header().Get("Connection") != "close"; kept != tc.kept {
			t.Errorf("behind %s, with a certificate %v, the connection is kept: %v", tc.path, tc.certified, kept)
		}
	}
}

// street is a listener whose connections come from where the test says.
type street struct {
	net.Listener

	from *atomic.Pointer[string]
}

func (s street) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	address, err := net.ResolveTCPAddr("tcp", *s.from.Load())
	return resident{conn, address}, err
}

type resident struct {
	net.Conn

	address net.Addr
}

func (r resident) RemoteAddr() net.Addr { return r.address }

// bounded is a server with bounds on connections, and from where new ones come.
func bounded(t *testing.T, handler http.Handler, most int, patience time.Duration) (r *running, s *server.Server, from func(string)) {
	t.Helper()
	address := &atomic.Pointer[string]{}
	from = func(a string) { address.Store(&a) }
	from("192.0.2.1:1")
	r = startAs(t, handler, func() error { return nil }, 0, func(o server.Options) *server.Server {
		o.Reviews = street{o.Reviews, address}
		s = server.Bound(o, most, patience)
		return s
	})
	return r, s, from
}

// roots are the CAs that trust the server.
func (r *running) roots() *x509.CertPool {
	transport, _ := r.client.Transport.(*http.Transport)
	return transport.TLSClientConfig.RootCAs
}

// dial is a connection after its handshake.
func (r *running) dial(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	d := &tls.Dialer{Config: &tls.Config{RootCAs: r.roots(), MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}}}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.reviews, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*tls.Conn)
}

// review sends a review, and tells whether that was over an old connection.
func (r *running) review(t *testing.T, c *http.Client) (reused bool) {
	t.Helper()
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
	response, err := c.Do(post(httptrace.WithClientTrace(t.Context(), trace), t, r.reviews+"/mutate", strings.NewReader(admissionBody)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(body), `"allowed":true`) {
		t.Errorf("answer is %d %s (%v)", response.StatusCode, body, err)
	}
	return reused
}

// TestFlood has somebody make connections as fast as possible. They are bounded,
// and the API server notices nothing.
func TestFlood(t *testing.T) {
	t.Parallel()
	const most = 8
	for _, tc := range []struct {
		name, from string
		reviews    bool
		// idleGoes tells that nothing tells the idle connection from the others.
		idleGoes bool
	}{
		{"from elsewhere", "198.51.100.1:1", false, false},
		{"from one network of IPv6", "[2001:db8::1]:1", false, false},
		{"from the API server's address", "192.0.2.1:1", false, false},
		{"with reviews, from elsewhere", "198.51.100.1:1", true, false},
		{"with reviews, from the API server's address", "192.0.2.1:1", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			arrived, reviews := make(chan struct{}), emptyReviews(t)
			r, s, from := bounded(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path == "/validate" {
					close(arrived)
				}
				reviews.ServeHTTP(w, q)
			}), most, time.Hour)
			idle := client(r.roots(), false)
			defer idle.CloseIdleConnections()
			if r.review(t, idle) {
				t.Error("the first connection is an old one")
			}
			// One has a call in progress.
			calling := client(r.roots(), false)
			defer calling.CloseIdleConnections()
			body, write := io.Pipe()
			answered := make(chan error, 1)
			go func() {
				response, err := calling.Do(post(t.Context(), t, r.reviews+"/validate", body))
				if err == nil {
					err = response.Body.Close()
				}
				answered <- err
			}()
			if _, err := io.WriteString(write, admissionBody[:10]); err != nil {
				t.Fatal(err)
			}
			<-arrived

			from(tc.from)
			for range 5 * most {
				conn := r.dial(t, "http/1.1")
				if tc.reviews {
					if err := post(t.Context(), t, r.reviews+"/mutate", strings.NewReader(admissionBody)).Write(conn); err != nil {
						t.Fatal(err)
					}
					if _, err := conn.Read(make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
				if n := s.Connections(); n > most {
					t.Fatalf("%d connections, want at most %d", n, most)
				}
			}

			if _, err := io.WriteString(write, admissionBody[10:]); err != nil {
				t.Error(err)
			}
			_ = write.Close() // never fails
			if err := <-answered; err != nil {
				t.Errorf("the call in progress was cut: %v", err)
			}
			from("192.0.2.1:1")
			further := client(r.roots(), false)
			defer further.CloseIdleConnections()
			r.review(t, further)
			if kept := r.review(t, idle); !kept && !tc.idleGoes {
				t.Error("the API server's idle connection was closed")
			}
		})
	}
}

// TestCertifiedConnectionsDoNotCount has a caller with a client certificate while
// there is no room for others.
func TestCertifiedConnectionsDoNotCount(t *testing.T) {
	t.Parallel()
	r, s, _ := bounded(t, emptyReviews(t), 1, time.Hour)
	certificate, key, err := r.source.ClientCertificate("kube-apiserver", "test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	certified := client(r.roots(), true)
	transport, _ := certified.Transport.(*http.Transport)
	transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	defer certified.CloseIdleConnections()
	r.review(t, certified)
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections count", n)
	}
	for range 3 {
		r.dial(t, "http/1.1")
	}
	if !r.review(t, certified) {
		t.Error("the connection with a certificate was closed for others")
	}
}

// TestConnectionWithoutACall wants one to be closed that nobody calls over, and no
// other.
func TestConnectionWithoutACall(t *testing.T) {
	t.Parallel()
	r, s, _ := bounded(t, emptyReviews(t), 100, time.Hour)
	r.review(t, r.client)
	conn := r.dial(t, "h2")
	// The preface of HTTP/2 with settings, none of them.
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	const acknowledged = "\x00\x00\x00\x04\x01\x00\x00\x00\x00" // that the server has read them
	heard, piece := "", make([]byte, 100)
	for !strings.Contains(heard, acknowledged) {
		n, err := conn.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		heard += string(piece[:n])
	}
	s.EndPatience() // a short one would have run out before that on a busy machine
	if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("the connection is kept without a call")
	}
	if n := s.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if !r.review(t, r.client) {
		t.Error("a connection with a review is closed")
	}
}
