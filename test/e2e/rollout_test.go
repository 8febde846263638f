package e2e

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// One replica takes another's place while pods are created all the time. No call fails: every asking pod is created,
// and every silent one is injected, although the API server would create it without.
func TestRollout(t *testing.T) {
	if !cluster.Namespaced() {
		t.Log("without a network namespace there is no Service, and nothing to roll out to: TestStopFinishesCalls is all there is")
		return
	}
	w := theWorld(t)
	config := w.outageConfig(t)
	first, err := w.serve(t.Context(), "rollout-1", config)
	must(t, err)
	must(t, w.register(t.Context(), "rollout", config, first))
	t.Cleanup(func() { w.unregister(t, "rollout", w.outageGone("rollout")) })
	try := func(edits ...func(*corev1.Pod)) error {
		created, err := w.Client().CoreV1().Pods("rollout").Create(t.Context(), pod("p", edits...), dryRun)
		if err == nil && injected(created) != 1 {
			err = errors.New("the pod is not injected")
		}
		return err
	}
	support.Eventually(t, "the registration", func() error { return try(asking) })

	var (
		callers sync.WaitGroup
		calls   atomic.Int64
		stop    atomic.Bool
	)
	for i := range 8 {
		callers.Go(func() {
			for !stop.Load() {
				var edits []func(*corev1.Pod)
				if i%2 == 0 {
					edits = append(edits, asking)
				}
				err := try(edits...)
				if err != nil {
					t.Errorf("call %d: %v", calls.Load(), err)
					return
				}
				calls.Add(1)
			}
		})
	}
	more := func(n int64) {
		t.Helper()
		target := calls.Load() + n
		support.Eventually(t, "more calls", func() error {
			if t.Failed() || calls.Load() >= target {
				return nil
			}
			return fmt.Errorf("there were %d of %d", calls.Load(), target)
		})
	}
	more(50)
	second, err := w.serve(t.Context(), "rollout-2", config)
	must(t, err)
	must(t, w.endpoints(t.Context(), "rollout", first, second))
	more(20)
	// As when a pod is deleted: its program is told at once, and its endpoint goes a moment later.
	must(t, first.Signal(syscall.SIGTERM))
	more(10)
	must(t, w.endpoints(t.Context(), "rollout", second))
	code, err := first.Wait(t.Context())
	if err != nil || code != 0 {
		t.Errorf("the replica that was told to stop ends with %d, %v", code, err)
	}
	more(50)
	stop.Store(true)
	callers.Wait()
	t.Logf("%d calls", calls.Load())
	answered, err := second.Metric(t.Context(), "gatehouse_reviews_total", `endpoint="mutate"`, `decision="allowed"`)
	if err != nil || answered < 50 {
		t.Errorf("the second replica has answered %v calls, %v", answered, err)
	}
}

// A call that has begun when the server is told to stop is answered, even after it listens no more.
func TestStopFinishesCalls(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	server, err := w.serve(t.Context(), "stop", w.outageConfig(t))
	must(t, err)

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.authority.CertPEM())
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
	connection, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(cluster.ListenAddress(), fmt.Sprint(server.Reviews.Port())))
	must(t, err)
	defer connection.Close() //nolint:errcheck // nothing is left to be written
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"slow",
		"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
		"namespace":"rollout","operation":"CREATE","object":{"metadata":{"name":"p"},"spec":{"containers":[{"name":"app"}]}}}}`
	_, err = fmt.Fprintf(connection, "POST /mutate?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:100])
	must(t, err)

	must(t, server.Signal(syscall.SIGTERM))
	support.Eventually(t, "the server is unready", func() error {
		if got := readiness(t, server); !strings.Contains(got, "draining") {
			return fmt.Errorf("/readyz says %q", got)
		}
		return nil
	})
	support.Eventually(t, "the server does not listen", func() error {
		another, err := dialer.DialContext(t.Context(), "tcp", connection.RemoteAddr().String())
		if err == nil {
			_ = another.Close()
			return errNotYet
		}
		return nil
	})
	_, err = io.WriteString(connection, body[100:])
	must(t, err)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	must(t, err)
	defer response.Body.Close() //nolint:errcheck // only read
	var review admissionv1.AdmissionReview
	must(t, json.NewDecoder(response.Body).Decode(&review))
	if response.StatusCode != http.StatusOK || review.Response == nil || review.Response.UID != "slow" || len(review.Response.Patch) == 0 {
		t.Errorf("answered %s %+v, want a patch", response.Status, review.Response)
	}
	code, err := server.Wait(t.Context())
	if err != nil || code != 0 {
		t.Errorf("the server ends with %d, %v", code, err)
	}
}
