package server_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
)

// TestWhatKeepsAConnection checks for which calls connections are kept.
func TestWhatKeepsAConnection(t *testing.T) {
	t.Parallel()
	handler := newReviews(t, webhooks.Spec{})
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
		recorder := call(t, handler, tc.path, tc.body, certified(time.Now().Add(time.Hour), tc.certified))
		if kept := recorder.Header().Get("Connection") != "close"; kept != tc.kept {
			t.Errorf("after %s, with a certificate %v, the connection is kept: %v", tc.path, tc.certified, kept)
		}
	}
}

// remoteListener is a listener whose connections come from an address that the test
// chooses.
type remoteListener struct {
	net.Listener

	from *atomic.Pointer[string]
}

func (l remoteListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	address, err := net.ResolveTCPAddr("tcp", *l.from.Load())
	return remoteConn{conn, address}, err
}

// startLimited starts a server with limits on connections. The function from sets the
// address of new ones.
func startLimited(t *testing.T, handler http.Handler, limit int) (r *running, s *server.Server, from func(string)) {
	t.Helper()
	address := &atomic.Pointer[string]{}
	from = func(a string) { address.Store(&a) }
	from("192.0.2.1:1")
	r = start(t, handler, func(o server.Options) *server.Server {
		o.Reviews = remoteListener{o.Reviews, address}
		s = server.NewLimited(o, limit, time.Hour)
		return s
	})
	return r, s, from
}

// dial returns a connection after its handshake.
func (r *running) dial(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	d := &tls.Dialer{Config: &tls.Config{RootCAs: r.roots, MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}}}
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

// heavyBody is a review after which a connection over HTTP/2 weighs more.
var heavyBody = strings.Repeat(" ", 40<<10) + admissionBody

// review sends a review, and reports whether that was over an old connection.
func (r *running) review(t *testing.T, c *http.Client) (reused bool) {
	t.Helper()
	return r.send(t, c, admissionBody)
}

func (r *running) send(t *testing.T, c *http.Client, review string) (reused bool) {
	t.Helper()
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
	response, err := c.Do(post(httptrace.WithClientTrace(t.Context(), trace), t, r.reviews+"/mutate", strings.NewReader(review)))
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

// held holds a review once it has arrived, and passes others on.
type held struct{ next, arrived, end chan struct{} }

// newHeld returns the handler of reviews of which one is held.
func newHeld(t *testing.T) (*held, http.Handler) {
	t.Helper()
	h := &held{next: make(chan struct{}, 1), arrived: make(chan struct{}), end: make(chan struct{})}
	return h, newReviews(t, webhooks.Spec{}, func(o *server.ReviewOptions) {
		o.CheckComplete = func() error {
			select {
			case <-h.next:
				close(h.arrived)
				<-h.end
			default:
			}
			return nil
		}
	})
}

// begin begins a review, returns once it has arrived, and the function that ends it, after which it must be answered.
func (h *held) begin(t *testing.T, r *running, c *http.Client) (end func()) {
	t.Helper()
	answered := make(chan error, 1)
	h.next <- struct{}{}
	go func() {
		response, err := c.Do(post(t.Context(), t, r.reviews+"/validate", strings.NewReader(admissionBody)))
		if err == nil {
			err = response.Body.Close()
		}
		answered <- err
	}()
	<-h.arrived
	return func() {
		close(h.end)
		if err := <-answered; err != nil {
			t.Errorf("the call in progress was cut: %v", err)
		}
	}
}

// TestFlood makes connections as fast as possible. They are bounded, and the API server
// is not affected.
func TestFlood(t *testing.T) {
	t.Parallel()
	const most = 8
	for _, tc := range []struct {
		name, from string
		reviews    bool
		// idleGoes reports whether the idle connection is like the others.
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
			held, reviews := newHeld(t)
			r, s, from := startLimited(t, reviews, most)
			idle := newClient(r.roots, false)
			defer idle.CloseIdleConnections()
			if r.review(t, idle) {
				t.Error("the first connection is an old one")
			}
			// One has a call in progress.
			calling := newClient(r.roots, false)
			defer calling.CloseIdleConnections()
			endCall := held.begin(t, r, calling)

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

			endCall()
			from("192.0.2.1:1")
			further := newClient(r.roots, false)
			defer further.CloseIdleConnections()
			r.review(t, further)
			if kept := r.review(t, idle); !kept && !tc.idleGoes {
				t.Error("the API server's idle connection was closed")
			}
		})
	}
}

// TestHTTP2Weight makes three connections over HTTP/2, of which each counts as eight once it has received much.
func TestHTTP2Weight(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{24: 3, 23: 2} {
		r, s, from := startLimited(t, newReviews(t, webhooks.Spec{}), limit)
		r.send(t, r.client, heavyBody) // over HTTP/2
		from("198.51.100.1:1")
		for range 2 {
			client := newClient(r.roots, true)
			defer client.CloseIdleConnections()
			if r.review(t, client); s.Connections() > 3 {
				t.Errorf("with a limit of %d, %d connections are open", limit, s.Connections())
			}
			r.send(t, client, heavyBody)
		}
		if n := s.Connections(); n != want {
			t.Errorf("with a limit of %d, %d connections are open, want %d", limit, n, want)
		}
		if !r.review(t, r.client) {
			t.Errorf("with a limit of %d, the connection of another client was closed", limit)
		}
	}
}

// TestOnlyConnection has a client whose only connection is over HTTP/2, which counts as more than all that any other client has.
func TestOnlyConnection(t *testing.T) {
	t.Parallel()
	held, reviews := newHeld(t)
	r, s, from := startLimited(t, reviews, 16)
	r.send(t, r.client, heavyBody)
	endCall := held.begin(t, r, r.client)
	for _, others := range []struct {
		address string
		n       int
	}{{"198.51.100.1:1", 5}, {"198.51.100.2:1", 6}} {
		from(others.address)
		for range others.n {
			r.dial(t, "http/1.1")
		}
	}
	if n := s.Connections(); n > 9 {
		t.Errorf("%d connections are open, want at most 9", n)
	}
	endCall()
	// A new connection would count beside this one until the server has seen its end.
	if !r.review(t, r.client) {
		t.Error("the only connection of a client was closed")
	}
}

// TestCertifiedConnectionsDoNotCount has a caller with a client certificate while the
// limit is reached.
func TestCertifiedConnectionsDoNotCount(t *testing.T) {
	t.Parallel()
	r, s, _ := startLimited(t, newReviews(t, webhooks.Spec{}), 1)
	certified := newClient(r.roots, true)
	transport, _ := certified.Transport.(*http.Transport)
	transport.TLSClientConfig.Certificates = []tls.Certificate{r.clientCertificate(t)}
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

// startHTTP2 sends the beginning of HTTP/2 and waits until the server has read it.
func startHTTP2(t *testing.T, conn io.ReadWriter) {
	t.Helper()
	// The preface with settings, none of them.
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	const acknowledged = "\x00\x00\x00\x04\x01\x00\x00\x00\x00" // that the server has read them
	received, piece := "", make([]byte, 100)
	for !strings.Contains(received, acknowledged) {
		n, err := conn.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		received += string(piece[:n])
	}
}

// TestConnectionWithoutACall checks that only connections without a call are closed.
func TestConnectionWithoutACall(t *testing.T) {
	t.Parallel()
	r, s, _ := startLimited(t, newReviews(t, webhooks.Spec{}), 100)
	r.review(t, r.client)
	conn := r.dial(t, "h2")
	startHTTP2(t, conn)
	s.ExpireUnused() // a short timeout could have passed before, on a busy machine
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
