package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// collector takes spans as a collector does, over a network that is a function: so
// that time can be the test's.
type collector struct {
	mu       sync.Mutex
	requests [][]byte
	at       []time.Time
	// answer, if set, is for the request of this number, from 0.
	answer func(n int, r *http.Request) (*http.Response, error)
}

// RoundTrip implements http.RoundTripper.
func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	n := len(c.requests)
	c.requests, c.at = append(c.requests, body), append(c.at, time.Now())
	c.mu.Unlock()
	if c.answer != nil {
		return c.answer(n, r)
	}
	return says(http.StatusOK, nil), nil
}

// taken returns the requests so far.
func (c *collector) taken() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

func says(status int, body []byte) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))}
}

// received is what a collector understands of a request.
func received(t *testing.T, body []byte) *tracepb.ResourceSpans {
	t.Helper()
	var request collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		t.Fatal(err)
	}
	if len(request.GetResourceSpans()) != 1 || len(request.GetResourceSpans()[0].GetScopeSpans()) != 1 {
		t.Fatalf("the request has not one resource with one scope: %v", &request)
	}
	return request.GetResourceSpans()[0]
}

func spans(t *testing.T, bodies [][]byte) []*tracepb.Span {
	t.Helper()
	var list []*tracepb.Span
	for _, body := range bodies {
		list = append(list, received(t, body).GetScopeSpans()[0].GetSpans()...)
	}
	return list
}

func config(c *collector, ratio float64, log io.Writer) Config {
	return Config{
		Endpoint: &url.URL{Scheme: "http", Host: "collector:4318", Path: defaultPath}, Ratio: ratio, Version: "v1.2.3",
		Instance: "gatehouse-0", Log: slog.New(slog.NewTextHandler(log, nil)), Transport: c,
	}
}

// flush sends what waits, for as long as it takes.
func flush(t *testing.T, tracer *Tracer) {
	t.Helper()
	if err := tracer.provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	run(tracer)()
}

// run runs a Tracer until the function that it returns is called.
func run(t *Tracer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func values(list []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_BoolValue:
			m[a.GetKey()] = fmt.Sprint(v.BoolValue)
		case *commonpb.AnyValue_IntValue:
			m[a.GetKey()] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			m[a.GetKey()] = fmt.Sprint(v.DoubleValue)
		}
	}
	return m
}

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	sampled = "00-" + traceID + "-" + spanID + "-01"
)

// TestSpan sends one review to a real HTTP server, and looks at all that arrives.
func TestSpan(t *testing.T) {
	t.Parallel()
	requests := make(chan *http.Request, 1)
	bodies := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is not all there cannot be read below
		requests <- r
		bodies <- body
	}))
	defer server.Close()
	endpoint, err := ParseEndpoint(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	tracer := New(Config{Endpoint: endpoint, Version: "v1.2.3", Instance: "gatehouse-0", Log: slog.New(slog.DiscardHandler)})
	started := time.Unix(1_700_000_000, 123)
	tracer.Review(&review.Outcome{
		Endpoint: "mutate", Decision: review.Denied, Reason: "Invalid", UID: "some-uid", Operation: "CREATE", Subresource: "scale",
		Resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Namespace: "shop",
		Object: "an-object", User: "a-user", Detail: "a-detail", TokenID: "a-token-id", DryRun: true, Patched: true,
		Audit:       map[string]string{"key": "an-annotation"},
		TraceParent: sampled, Started: started, Took: 3 * time.Millisecond, Waited: 500 * time.Millisecond, Bytes: 4321,
	})
	flush(t, tracer)
	request, body := <-requests, <-bodies
	if request.Method != http.MethodPost || request.URL.Path != "/v1/traces" || request.Header.Get("Content-Type") != "application/x-protobuf" ||
		request.Header.Get("User-Agent") != "gatehouse/v1.2.3" {
		t.Errorf("the request is %s %s with %v", request.Method, request.URL, request.Header)
	}
	of := received(t, body)
	if got, want := fmt.Sprint(values(of.GetResource().GetAttributes())), "map[service.instance.id:gatehouse-0 service.name:gatehouse service.version:v1.2.3]"; got != want {
		t.Errorf("the resource is %s, want %s", got, want)
	}
	list := of.GetScopeSpans()[0].GetSpans()
	if len(list) != 1 {
		t.Fatalf("%d spans", len(list))
	}
	s := list[0]
	if fmt.Sprintf("%x", s.GetTraceId()) != traceID || fmt.Sprintf("%x", s.GetParentSpanId()) != spanID || len(s.GetSpanId()) != 8 ||
		s.GetName() != "mutate" || s.GetKind() != tracepb.Span_SPAN_KIND_SERVER || s.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET || s.GetFlags() != 0x301 ||
		s.GetStartTimeUnixNano() != 1_700_000_000_000_000_123 || s.GetEndTimeUnixNano() != 1_700_000_000_003_000_123 {
		t.Errorf("the span is %v", s)
	}
	want := map[string]string{
		"gatehouse.decision": "denied", "gatehouse.reason": "Invalid", "gatehouse.patched": "true", "gatehouse.request.bytes": "4321",
		"gatehouse.wait_seconds": "0.5", "k8s.admission.uid": "some-uid", "k8s.admission.operation": "CREATE", "k8s.admission.group": "apps",
		"k8s.admission.version": "v1", "k8s.admission.resource": "deployments", "k8s.admission.subresource": "scale",
		"k8s.admission.dry_run": "true", "k8s.namespace.name": "shop",
	}
	if got := values(s.GetAttributes()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the attributes are %v, want %v", got, want)
	}
	for _, not := range []string{"a-user", "an-object", "a-detail", "a-token-id", "an-annotation"} {
		if bytes.Contains(body, []byte(not)) {
			t.Errorf("%q was sent", not)
		}
	}
}

// TestSampling is about which reviews are traced, and in which trace.
func TestSampling(t *testing.T) {
	t.Parallel()
	const none, root, child = "no span", "the first span of a trace", "a span of the caller's trace"
	for _, tc := range []struct {
		name, header string
		ratio        float64
		want         string
	}{
		{"the caller's trace is recorded", sampled, 0, child},
		{"the caller's trace is not", "00-" + traceID + "-" + spanID + "-00", 1, none},
		{"no trace, none wanted", "", 0, none},
		{"no trace, all wanted", "", 1, root},
		{"no header that can be read, all wanted", "garbage", 1, root},
		{"a kilobyte", strings.Repeat("0-", 512), 0, none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := &collector{}
			tracer := New(config(c, tc.ratio, io.Discard))
			tracer.Review(&review.Outcome{Endpoint: "validate", Decision: review.Allowed, TraceParent: tc.header})
			run(tracer)()
			got := none
			for _, s := range spans(t, c.taken()) {
				switch trace, parent := fmt.Sprintf("%x", s.GetTraceId()), fmt.Sprintf("%x", s.GetParentSpanId()); {
				case trace == traceID && parent == spanID:
					got = child
				case parent == "" && len(trace) == 32 && trace != strings.Repeat("0", 32) && s.GetFlags()&0x200 == 0:
					got = root
				default:
					got = s.String()
				}
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	t.Run("a part of them", func(t *testing.T) {
		t.Parallel()
		c := &collector{}
		tracer := newTracer(config(c, 0.25, io.Discard), 10_000)
		for range 10_000 {
			tracer.Review(&review.Outcome{Endpoint: "validate"})
		}
		flush(t, tracer)
		if got := len(spans(t, c.taken())); got < 2_200 || got > 2_800 { // standard deviation 43
			t.Errorf("%d of 10000 reviews are traced at a ratio of 0.25", got)
		}
	})
}

// TestStatus is about which reviews went wrong.
func TestStatus(t *testing.T) {
	t.Parallel()
	for decision, want := range map[review.Decision]string{
		review.Allowed: "", review.Denied: "", review.Unknown: "unknown: why", review.Refused: "refused: why", review.Shed: "shed: why",
	} {
		c := &collector{}
		tracer := New(config(c, 1, io.Discard))
		tracer.Review(&review.Outcome{Decision: decision, Reason: "why"})
		flush(t, tracer)
		status := spans(t, c.taken())[0].GetStatus()
		if status.GetMessage() != want || (status.GetCode() == tracepb.Status_STATUS_CODE_ERROR) != (want != "") {
			t.Errorf("%s: the status is %v", decision, status)
		}
	}
}

// TestHostileTexts are in requests: a collector must be able to read them, and not
// be filled by them.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	c := &collector{}
	tracer := New(config(c, 1, io.Discard))
	for _, hostile := range []string{"\xff\xfe", strings.Repeat("ä", 1<<20), "a\x00b\n"} {
		tracer.Review(&review.Outcome{Endpoint: "validate", Namespace: hostile, Reason: hostile, Decision: review.Refused, Operation: hostile})
	}
	run(tracer)()
	if got := len(spans(t, c.taken())); got != 3 {
		t.Errorf("%d of 3 spans can be read", got)
	}
	if got := len(c.taken()[0]); got > 10<<10 {
		t.Errorf("they take %d bytes", got)
	}
}

// TestBatches has spans wait for each other, not for long, and not in endless
// numbers.
func TestBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		tracer := New(config(c, 1, io.Discard))
		stop := run(tracer)
		start := time.Now()
		for range 3 {
			tracer.Review(&review.Outcome{Endpoint: "validate"})
			time.Sleep(time.Second / 2)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(c.taken()) != 1 || len(spans(t, c.taken())) != 3 || c.at[0].Sub(start) != batchTime {
			t.Errorf("%d requests with %d spans, at %v", len(c.taken()), len(spans(t, c.taken())), c.at)
		}
		for range batchSpans + 1 {
			tracer.Review(&review.Outcome{Endpoint: "validate"})
		}
		synctest.Wait()
		if len(c.taken()) != 2 {
			t.Errorf("%d requests as soon as there are enough spans", len(c.taken()))
		}
		stop()
		if len(c.taken()) != 3 || len(spans(t, c.taken())) != 3+batchSpans+1 {
			t.Errorf("%d requests with %d spans at the end", len(c.taken()), len(spans(t, c.taken())))
		}
	})
}

// TestCollectorAway has a collector refuse and come back: reviews never wait, what is lost is counted, and the
// log has a line at the start and the end.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		answer func(n int, r *http.Request) (*http.Response, error)
		// most is how many requests one batch of two spans leads to at most.
		most, sent, dropped int
		log                 string
	}{
		{"hangs", func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, 4, 0, 2, "cannot send traces to http://collector:4318"},
		{"is away", func(int, *http.Request) (*http.Response, error) { return nil, errors.New("no route") }, 30, 0, 2, "no route"},
		{"is away for a moment", func(n int, _ *http.Request) (*http.Response, error) {
			if n < 2 {
				return says(http.StatusServiceUnavailable, nil), nil
			}
			return says(http.StatusOK, nil), nil
		}, 3, 2, 0, ""},
		{"is something else", func(int, *http.Request) (*http.Response, error) {
			return says(http.StatusNotFound, []byte("no\npage")), nil
		}, 1, 0, 2, "usually on port 4318"},
		{"would have them sent elsewhere", func(int, *http.Request) (*http.Response, error) {
			answer := says(http.StatusTemporaryRedirect, nil)
			answer.Header.Set("Location", "/elsewhere")
			return answer, nil
		}, 1, 0, 2, "failed to send"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &collector{answer: tc.answer}
				var log bytes.Buffer
				tracer := New(config(c, 1, &log))
				stop := run(tracer)
				for range 2 {
					tracer.Review(&review.Outcome{Endpoint: "validate"})
				}
				time.Sleep(2 * time.Minute)
				if got := len(c.taken()); got > tc.most || tracer.exporter.sent.Load() != int64(tc.sent) || tracer.exporter.dropped.Load() != int64(tc.dropped) {
					t.Errorf("%d requests, %d sent, %d dropped; want at most %d, %d and %d", got, tracer.exporter.sent.Load(), tracer.exporter.dropped.Load(), tc.most, tc.sent, tc.dropped)
				}
				c.answer = nil
				tracer.Review(&review.Outcome{Endpoint: "validate"})
				time.Sleep(time.Minute)
				stop()
				if lines := strings.Count(log.String(), "\n"); (tc.log == "") != (lines == 0) || lines > 2 || !strings.Contains(log.String(), tc.log) || lines == 2 && !strings.Contains(log.String(), "recovered") {
					t.Errorf("the log is\n%s", &log)
				}
			})
		})
	}
}

// TestFull has more reviews than the queue takes.
func TestFull(t *testing.T) {
	t.Parallel()
	tracer := newTracer(config(&collector{}, 1, io.Discard), 5)
	defer run(tracer)()
	for range 12 {
		tracer.Review(&review.Outcome{Endpoint: "validate"})
	}
	if err := testutil.CollectAndCompare(tracer, strings.NewReader(`
# HELP gatehouse_traces_dropped_total Spans that were not sent: the collector is unreachable, slow or rejects them.
# TYPE gatehouse_traces_dropped_total counter
gatehouse_traces_dropped_total 7
# HELP gatehouse_traces_sent_total Spans that the collector accepted.
# TYPE gatehouse_traces_sent_total counter
gatehouse_traces_sent_total 0
`)); err != nil {
		t.Error(err)
	}
}

// TestEnd ends with a collector that hangs.
func TestEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &collector{answer: func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		tracer := New(config(c, 1, io.Discard))
		stop := run(tracer)
		for range 3 * batchSpans {
			tracer.Review(&review.Outcome{Endpoint: "validate"})
		}
		synctest.Wait()
		start := time.Now()
		stop()
		if took := time.Since(start); took != lastTime {
			t.Errorf("it took %s to end", took)
		}
		if got := tracer.exporter.dropped.Load(); got != 3*batchSpans {
			t.Errorf("%d spans are counted as dropped", got)
		}
	})
}

// TestUntracedCosts is about most reviews, also where tracing is on.
func TestUntracedCosts(t *testing.T) {
	for _, tc := range []struct {
		name, header string
		ratio        float64
		most         float64
	}{
		{"no trace, none wanted", "", 0, 0},
		{"the caller's trace is not recorded", "00-" + traceID + "-" + spanID + "-00", 0.5, 4},
	} {
		tracer := New(config(&collector{}, tc.ratio, io.Discard))
		o := &review.Outcome{Endpoint: "validate", TraceParent: tc.header}
		got := testing.AllocsPerRun(100, func() { tracer.Review(o) })
		if got > tc.most {
			t.Errorf("%s: a review allocates %v times, want %v", tc.name, got, tc.most)
		}
		run(tracer)()
	}
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want, problem string }{
		{"host and port", "http://collector:4318", "http://collector:4318/v1/traces", ""},
		{"a slash", "https://collector/", "https://collector/v1/traces", ""},
		{"a path", "https://collector/otlp/traces", "https://collector/otlp/traces", ""},
		{"IPv6", "http://[::1]:4318", "http://[::1]:4318/v1/traces", ""},
		{"nothing", "", "", "must be http://HOST:PORT"},
		{"no scheme", "collector:4318", "", "must be http://HOST:PORT"},
		{"gRPC", "grpc://collector:4317", "", "must be http://HOST:PORT"},
		{"no host", "http:///v1/traces", "", "must be http://HOST:PORT"},
		{"control characters", "http://a\x00b", "", "must be http://HOST:PORT"},
		{"a password", "http://user:sesame@collector:4318", "", "must not contain a user or a password"},
		{"a password and a port that is none", "http://user:sesame@collector:x", "", "must be http://HOST:PORT"},
		{"a query", "http://collector:4318/?key=sesame", "", "must not contain a query"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			u, err := ParseEndpoint(tc.text)
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) || strings.Contains(err.Error(), "sesame") {
					t.Errorf("ParseEndpoint(%q) = %v", tc.text, err)
				}
				return
			}
			if err != nil || u.String() != tc.want {
				t.Errorf("ParseEndpoint(%q) = %v, %v", tc.text, u, err)
			}
		})
	}
}
