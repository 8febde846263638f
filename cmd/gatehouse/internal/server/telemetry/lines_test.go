package telemetry_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/clients"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// strangers returns the nth of clients without a certificate.
func strangers() func(n int) *clients.Client {
	var accounts clients.Table
	return func(n int) *clients.Client {
		return accounts.Open(netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}), 32), "")
	}
}

// TestDecisionsDoNotFillTheLog sends decisions faster than they are worth lines. The metrics have all.
func TestDecisionsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	denied := review.Outcome{Endpoint: "validate", Decision: review.Denied, Reason: "Forbidden"}
	excepted := review.Outcome{Endpoint: "validate", Decision: review.Allowed, Audit: map[string]string{"excepted-by": "shop/legacy:limits"}}
	undecided := review.Outcome{Endpoint: "mutate", Decision: review.Unknown, Reason: "internal"}
	for _, tc := range []struct {
		name    string
		outcome review.Outcome
		// clients are how many send them, with a certificate if there is none.
		clients int
		level   slog.Level
		want    int // lines of 2,000
	}{
		{"denials", denied, 1, slog.LevelInfo, 100},
		{"exceptions", excepted, 1, slog.LevelInfo, 100},
		{"reviews that cannot be decided", undecided, 1, slog.LevelInfo, 100},
		{"denials of two clients", denied, 2, slog.LevelInfo, 200},
		{"denials of many clients", denied, 200, slog.LevelInfo, 500},
		{"what is refused", review.Outcome{Endpoint: "validate", Decision: review.Refused, Reason: "malformed"}, 200, slog.LevelInfo, 20},
		{"denials of certified callers", denied, 0, slog.LevelInfo, 2_000},
		{"everything, on request", review.Outcome{Endpoint: "validate", Decision: review.Allowed}, 1, slog.LevelDebug, 2_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			observe, log := newTelemetry(tc.level)
			stranger, now := strangers(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
			send := func(i int) {
				o := tc.outcome
				o.Client, o.Started = new(clients.Table).Open(netip.Prefix{}, "CN=kube-apiserver"), now
				if tc.clients > 0 {
					o.Client = stranger(i % tc.clients)
				}
				observe.Review(&o)
			}
			for i := range 2_000 {
				send(i)
			}
			if n := strings.Count(log.String(), "\n"); n != tc.want {
				t.Errorf("%d lines, want %d", n, tc.want)
			}
			if n, err := testutil.GatherAndCount(observe.Registry, "gatehouse_reviews_total"); err != nil || n != 1 || reviews(t, observe) != 2_000 {
				t.Errorf("%d time series of %v reviews (%v), want one of 2000", n, reviews(t, observe), err)
			}
			// The next line tells of what was left out.
			_ = log.Take()
			now = now.Add(time.Minute)
			send(0)
			var line struct{ Suppressed int }
			if err := json.Unmarshal([]byte(log.String()), &line); err != nil || line.Suppressed != 2_000-tc.want {
				t.Errorf("got %s (%v), want one line that says %d", log, err, 2_000-tc.want)
			}
		})
	}
}

func reviews(t *testing.T, observe *telemetry.Telemetry) float64 {
	t.Helper()
	families, err := observe.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		if family.GetName() != "gatehouse_reviews_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// A client of which nothing was heard for a while is not held for the flood of others.
func TestQuietClientIsLogged(t *testing.T) {
	t.Parallel()
	observe, log := newTelemetry(slog.LevelInfo)
	stranger, now := strangers(), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	denied := func(n int, name string) {
		observe.Review(&review.Outcome{Endpoint: "validate", Decision: review.Denied, Client: stranger(n), Object: name, Started: now})
	}
	for range 10_000 {
		denied(1, "flood")
		now = now.Add(time.Millisecond)
	}
	denied(2, "quiet")
	for i := range 100 { // a denial a second is written, each
		now = now.Add(time.Second)
		denied(2, fmt.Sprintf("quiet-%d", i))
	}
	if n := strings.Count(log.String(), `"name":"flood"`); n > 200 {
		t.Errorf("%d lines of the flood, want 200 at most", n)
	}
	if n := strings.Count(log.String(), `"name":"quiet`); n != 101 {
		t.Errorf("%d lines of the quiet client, want 101", n)
	}
	if !strings.Contains(log.String(), `"client":"192.0.0.2"`) {
		t.Error("the lines do not name the client")
	}
}

// TestLinesAreBounded fills every value that comes from a request.
func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	observe, log := newTelemetry(slog.LevelInfo)
	long := strings.Repeat("w", 2<<20)
	observe.Review(&review.Outcome{
		Endpoint: "validate", Decision: review.Denied, Reason: long, UID: types.UID(long), Operation: long,
		Resource:    metav1.GroupVersionResource{Group: long, Version: long, Resource: long},
		Subresource: long, Namespace: long, Object: long, User: long, TokenID: long, Source: long,
	})
	if len(log.String()) > 4<<10 || !json.Valid([]byte(log.String())) {
		t.Errorf("a line of %d bytes, want JSON of 4 KiB at most", len(log.String()))
	}
}
