package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
)

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
	}), func(o server.Options) *server.Server {
		o.DrainDelay = drain
		return server.New(o)
	})

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
		warm      = make(chan struct{})
	)
	for i := range 4 {
		callers.Go(func() {
			c := newClient(r.roots, i%2 == 0)
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
				if calls.Add(1) == 100 {
					close(warm)
				}
			}
		})
	}
	<-warm
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
		t.Error("stopping cancelled the call in progress")
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

// refused reports whether nothing listened, so that the caller knows that its call was
// not accepted.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || strings.Contains(err.Error(), "connection reset")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var problem atomic.Pointer[error]
	r := start(t, http.NotFoundHandler(), func(o server.Options) *server.Server {
		o.Ready = func() error {
			if err := problem.Load(); err != nil {
				return *err
			}
			return nil
		}
		return server.New(o)
	})
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
	r := start(t, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { peers.Store(q.RemoteAddr, true) }), func(o server.Options) *server.Server {
		o.ConnectionAge = time.Nanosecond
		return server.New(o)
	})
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
	r := start(t, http.NotFoundHandler())
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.roots, MaxVersion: tls.VersionTLS12}}}
	if _, _, err := get(t, old, r.reviews); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2 is answered: %v", err)
	}
}
