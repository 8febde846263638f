package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a server under test.
type running struct {
	reviews, ops string
	client       *http.Client // trusts the server
	source       *certs.SelfSigned
	stop         context.CancelFunc
	done         chan error
}

// start serves handler with a self-signed certificate.
func start(t *testing.T, handler http.Handler, ready func() error, drain time.Duration) *running {
	t.Helper()
	return startAs(t, handler, ready, drain, server.New)
}

// startAs is start with a server of one's own.
func startAs(t *testing.T, handler http.Handler, ready func() error, drain time.Duration, made func(server.Options) *server.Server) *running {
	t.Helper()
	source, err := certs.NewSelfSigned(t.Context(), certs.SelfSignedConfig{Hosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(source.CABundle())
	listen := func() net.Listener {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	reviews, ops := listen(), listen()
	srv := made(server.Options{
		Reviews: reviews, Ops: ops, Handler: handler, Ready: ready, DrainDelay: drain,
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS13, GetCertificate: source.GetCertificate, NextProtos: []string{"h2", "http/1.1"},
			ClientCAs: roots, ClientAuth: tls.VerifyClientCertIfGiven,
		},
		Metrics: http.NotFoundHandler(), ConnectionAge: age(t), Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	r := &running{reviews: "https://" + reviews.Addr().String(), ops: "http://" + ops.Addr().String(), source: source, stop: stop, done: make(chan error, 1)}
	r.client = client(roots, true)
	go func() { r.done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		r.client.CloseIdleConnections()
		if err := <-r.done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return r
}

// age is how long connections are used in a test.
func age(t *testing.T) time.Duration {
	t.Helper()
	if t.Name() == "TestConnectionsEnd" {
		return time.Nanosecond
	}
	return time.Hour
}

func client(roots *x509.CertPool, http2 bool) *http.Client {
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

// TestStopLosesNoCall keeps callers calling while the server drains, over both
// protocols, with one slow call in progress. Each caller goes on until it is
// refused a connection, which must not happen before the drain delay has passed.
func TestStopLosesNoCall(t *testing.T) {
	t.Parallel()
	const drain = 300 * time.Millisecond
	slow, release := make(chan struct{}), make(chan struct{})
	var cancelled atomic.Bool
	r := start(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			close(slow)
			<-release
			cancelled.Store(q.Context().Err() != nil)
		}
		_, _ = w.Write([]byte("done"))
	}), func() error { return nil }, drain)

	slowAnswer := make(chan string, 1)
	go func() {
		_, body, err := get(t, r.client, r.reviews+"/slow")
		if err != nil {
			body = err.Error()
		}
		slowAnswer <- body
	}()
	<-slow

	var (
		callers   sync.WaitGroup
		calls     atomic.Int64
		closed    atomic.Int64
		lost      atomic.Pointer[string]
		stoppedAt atomic.Int64
	)
	for i := range 4 {
		callers.Go(func() {
			transport, _ := r.client.Transport.(*http.Transport)
			c := client(transport.TLSClientConfig.RootCAs, i%2 == 0)
			defer c.CloseIdleConnections()
			for {
				response, body, err := get(t, c, r.reviews+"/")
				if err != nil {
					since := time.Since(time.Unix(0, stoppedAt.Load()))
					if stoppedAt.Load() == 0 || since < drain || !refused(err) {
						text := fmt.Sprintf("%v after %s, http2 %v", err, since, i%2 == 0)
						lost.Store(&text)
					}
					return
				}
				if body != "done" {
					lost.Store(&body)
				}
				if response.Close || response.Header.Get("Connection") == "close" {
					closed.Add(1)
				}
				calls.Add(1)
			}
		})
	}
	for calls.Load() < 100 {
		time.Sleep(time.Millisecond) // polls a counter that the callers raise
	}
	stoppedAt.Store(time.Now().UnixNano())
	r.stop()

	for {
		response, body, err := get(t, http.DefaultClient, r.ops+"/readyz")
		if err != nil {
			t.Fatalf("health is not answered while the server drains: %v", err)
		}
		if response.StatusCode == http.StatusServiceUnavailable {
			if body != "not ready: draining\n" {
				t.Errorf("readyz says %q", body)
			}
			break
		}
	}
	callers.Wait()
	close(release)
	if body := <-slowAnswer; body != "done" {
		t.Errorf("the call in progress got %q", body)
	}
	if cancelled.Load() {
		t.Error("being told to stop cancelled the call in progress")
	}
	if text := lost.Load(); text != nil {
		t.Errorf("a call was lost: %s", *text)
	}
	if closed.Load() == 0 {
		t.Error("no answer asked its caller to connect anew")
	}
	if err := <-r.done; err != nil {
		t.Errorf("Run = %v", err)
	}
	r.done <- nil // for the cleanup
	http.DefaultClient.CloseIdleConnections()
}

// refused tells whether nobody listened: the caller then knows that its call was
// not taken.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || strings.Contains(err.Error(), "connection reset")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var problem atomic.Pointer[error]
	r := start(t, http.NotFoundHandler(), func() error {
		if err := problem.Load(); err != nil {
			return *err
		}
		return nil
	}, 0)
	check := func(path string, status int, body string) {
		t.Helper()
		response, got, err := get(t, r.client, r.ops+path)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != status || got != body {
			t.Errorf("%s answers %d %q, want %d %q", path, response.StatusCode, got, status, body)
		}
	}
	check("/livez", http.StatusOK, "ok\n")
	check("/readyz", http.StatusOK, "ok\n")
	expired := errors.New("serving certificate: expired")
	problem.Store(&expired)
	check("/readyz", http.StatusServiceUnavailable, "not ready: serving certificate: expired\n")
	check("/livez", http.StatusOK, "ok\n")
	if response, _, err := get(t, r.client, r.reviews+"/livez"); err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("the listener for reviews answers health: %v %v", response, err)
	}
}

// TestConnectionsEnd checks that an old connection is closed behind an answer,
// on HTTP/2 too, where the next call goes over another one.
func TestConnectionsEnd(t *testing.T) {
	t.Parallel()
	var peers sync.Map
	r := start(t, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { peers.Store(q.RemoteAddr, true) }), func() error { return nil }, 0)
	for range 3 {
		if _, _, err := get(t, r.client, r.reviews); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	peers.Range(func(any, any) bool { n++; return true })
	if n != 3 {
		t.Errorf("3 calls came over %d connections, want each over its own", n)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t, http.NotFoundHandler(), func() error { return nil }, 0)
	transport, _ := r.client.Transport.(*http.Transport)
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: transport.TLSClientConfig.RootCAs, MaxVersion: tls.VersionTLS12,
	}}}
	if _, _, err := get(t, old, r.reviews); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2 is answered: %v", err)
	}
}

// TestDrainingIsLogged wants a delay that people can read.
func TestDrainingIsLogged(t *testing.T) {
	t.Parallel()
	listen := func() net.Listener {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var log strings.Builder
	ctx, stop := context.WithCancel(t.Context())
	stop()
	noCertificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("nobody calls") }
	err := server.New(server.Options{
		Reviews: listen(), Ops: listen(), Handler: http.NotFoundHandler(), Metrics: http.NotFoundHandler(),
		TLS:        &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: noCertificate},
		DrainDelay: 15 * time.Millisecond, Log: slog.New(slog.NewJSONHandler(&log, nil)),
	}).Run(ctx)
	if err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), `"delay":"15ms"`) {
		t.Errorf("logged is %s", &log)
	}
}

// TestDebug is on the listener for health and metrics, and on no other.
func TestDebug(t *testing.T) {
	t.Parallel()
	debug := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("debug " + r.URL.Path)) })
	r := startAs(t, http.NotFoundHandler(), func() error { return nil }, 0, func(o server.Options) *server.Server {
		o.Debug = debug
		return server.New(o)
	})
	for _, path := range []string{"/debug/pprof/heap", "/log-level"} {
		if response, body, err := get(t, r.client, r.ops+path); err != nil || response.StatusCode != http.StatusOK || body != "debug "+path {
			t.Errorf("%s is answered %q, %v", path, body, err)
		}
		if response, _, err := get(t, r.client, r.reviews+path); err != nil || response.StatusCode != http.StatusNotFound {
			t.Errorf("%s is answered where reviews are, %v", path, err)
		}
	}
	if response, _, err := get(t, r.client, r.ops+"/log-level/more"); err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("what is not there is answered, %v", err)
	}
}
