package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	admissionBody = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1",
		"kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},
		"name":"a","namespace":"shop","operation":"CREATE","userInfo":{"username":"jane"},"dryRun":false,
		"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop"}}}}`
	tokenBody = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"x"}}`
)

// newReviews returns the endpoints of a configuration.
func newReviews(t *testing.T, spec webhooks.Spec, change ...func(*server.ReviewOptions)) http.Handler {
	t.Helper()
	spec.Policy.Now, spec.Authn.Now = time.Now, time.Now
	snapshot, err := webhooks.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[webhooks.Snapshot]
	current.Store(snapshot)
	o := server.ReviewOptions{
		Bytes: 2 * review.MaxAdmissionBytes, Observe: func(*review.Outcome) {}, Profiles: func([]sidecar.Verdict) {},
		Policies: func([]policy.Observation) {}, Login: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Now: time.Now,
	}
	for _, f := range change {
		f(&o)
	}
	return server.Reviews(&current, o)
}

// tokens is a configuration of authentication alone.
func tokens(spec authn.Spec) webhooks.Spec { return webhooks.Spec{Authn: spec} }

// call sends a request to a handler, as if the connection had this TLS state.
func call(t *testing.T, handler http.Handler, path, body string, state *tls.ConnectionState) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path+"?timeout=10s", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.TLS = state
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder
}

// certified is the TLS state of a connection with a client certificate.
func certified(notAfter time.Time, verified bool) *tls.ConnectionState {
	certificates := []*x509.Certificate{{NotAfter: notAfter}}
	state := &tls.ConnectionState{PeerCertificates: certificates}
	if verified {
		state.VerifiedChains = [][]*x509.Certificate{certificates}
	}
	return state
}

// post returns a request that is to be sent over a connection.
func post(ctx context.Context, t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=10s", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// authority issues the certificates of a test.
type authority struct {
	*certs.OwnCA

	roots *x509.CertPool
	// dir has the files for an API server.
	dir string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	dir := t.TempDir()
	source, err := certs.NewOwnCA(t.Context(), certs.OwnCAConfig{Hosts: []string{"127.0.0.1"}, Store: certs.NewDirStore(dir), Alone: true})
	if err == nil {
		err = source.Healthy()
	}
	if err != nil {
		t.Fatal(err)
	}
	a := authority{OwnCA: source, roots: x509.NewCertPool(), dir: dir}
	a.roots.AddCert(source.State().Active.Cert)
	return a
}

// clientCertificate returns a certificate that clients show.
func (a authority) clientCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, certs.ClientCertFile), filepath.Join(a.dir, certs.ClientKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// options returns those of a server on the listeners.
func (a authority) options(reviews, ops net.Listener, handler http.Handler) server.Options {
	return server.Options{
		Reviews: reviews, Ops: ops, Handler: handler, Ready: func() error { return nil },
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS13, GetCertificate: a.GetCertificate, NextProtos: []string{"h2", "http/1.1"},
			ClientCAs: a.roots, ClientAuth: tls.VerifyClientCertIfGiven,
		},
		Metrics: http.NotFoundHandler(), ConnectionAge: time.Hour, Log: slog.New(slog.DiscardHandler),
	}
}

// run runs a server until the test ends, or until stop is called.
func run(t *testing.T, srv *server.Server) (stop func(), done chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done = make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return stop, done
}

// running is a server on the loopback interface.
type running struct {
	authority

	reviews, ops string
	client       *http.Client // trusts the server
	stop         func()
	done         chan error
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start starts a server, with changed options if there is a function.
func start(t *testing.T, handler http.Handler, create ...func(server.Options) *server.Server) *running {
	t.Helper()
	r := &running{authority: newAuthority(t)}
	reviews, ops := listen(t), listen(t)
	r.reviews, r.ops, r.client = "https://"+reviews.Addr().String(), "http://"+ops.Addr().String(), newClient(r.roots, true)
	create = append(create, server.New)
	r.stop, r.done = run(t, create[0](r.options(reviews, ops, handler)))
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

func newClient(roots *x509.CertPool, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: http2}
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

func get(t *testing.T, c *http.Client, url string) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(response.Body)
	return response, string(body), errors.Join(err, response.Body.Close())
}

// remoteConn is a connection from an address.
type remoteConn struct {
	net.Conn

	address net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.address }

// bubble is a server in a synctest bubble.
type bubble struct {
	authority

	reviews, ops *memoryListener
}

func startBubble(t *testing.T, handler http.Handler) *bubble {
	t.Helper()
	b := &bubble{authority: newAuthority(t), reviews: newMemoryListener(), ops: newMemoryListener()}
	run(t, server.New(b.options(b.reviews, b.ops, handler)))
	return b
}

// dial returns a connection from an address after its handshake.
func (b *bubble) dial(t *testing.T, protocol string, certified bool) *tls.Conn {
	t.Helper()
	config := &tls.Config{RootCAs: b.roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}}
	if certified {
		config.Certificates = []tls.Certificate{b.clientCertificate(t)}
	}
	conn := tls.Client(b.reviews.dial("192.0.2.1"), config)
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.NetConn().Close() })
	return conn
}

// memoryListener accepts connections of this process, whose clock may be a bubble's.
type memoryListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *memoryListener) dial(address string) net.Conn {
	near, far := net.Pipe()
	l.conns <- remoteConn{far, &net.TCPAddr{IP: net.ParseIP(address), Port: 1}}
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
