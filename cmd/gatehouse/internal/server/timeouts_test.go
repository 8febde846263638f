package server_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

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

// TestStreams: a client gets few streams, whose memory is bounded. One with more calls makes another connection.
func TestStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, http.NotFoundHandler())
		const maxConcurrentStreams, maxFrameSize = 3, 5
		if got := settings(t, b.dial(t, "h2", false)); got[maxConcurrentStreams] != 32 || got[maxFrameSize] > 16<<10 {
			t.Errorf("the server allows %d streams and frames of %d bytes", got[maxConcurrentStreams], got[maxFrameSize])
		}
	})
}

// TestLateBody: a body that comes late, as on a busy machine, is read from callers with a
// verified certificate alone. Others could hold memory by it.
func TestLateBody(t *testing.T) {
	t.Parallel()
	for certified, want := range map[bool]int{false: http.StatusRequestTimeout, true: http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			b := startBubble(t, newReviews(t, webhooks.Spec{}))
			conn := b.dial(t, "http/1.1", certified)
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
		b := startBubble(t, review.Admission(func(ctx context.Context, _ *review.AdmissionRequest) admission.Response {
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
		conn := b.dial(t, "http/1.1", false)
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

// TestHealthBesideManyConnections opens many connections to the listener for health and
// metrics.
func TestHealthBesideManyConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, http.NotFoundHandler())
		began := time.Now()
		const connections = 100
		closed := make(chan struct{}, connections)
		for range connections {
			conn := b.ops.dial("192.0.2.1")
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				_, _ = conn.Read(make([]byte, 1))
				closed <- struct{}{}
			}()
		}
		for range connections - 24 {
			<-closed
		}
		conn := b.ops.dial("192.0.2.1")
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

// TestFirstCall: an API server calls over connections that were open for up to 90 seconds
// without a call. A call that begins and does not end is cut off in seconds.
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
				var read error
				b := startBubble(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if _, read = io.ReadAll(r.Body); read != nil {
						panic(http.ErrAbortHandler)
					}
				}))
				conn := b.dial(t, "http/1.1", false)
				time.Sleep(test.waits)
				began := time.Now()
				_, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n%s", test.body)
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
