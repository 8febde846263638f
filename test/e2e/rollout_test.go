package e2e

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// A call that has begun when the server is told to stop is answered, even after it listens no more.
func TestStopFinishesCalls(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
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
