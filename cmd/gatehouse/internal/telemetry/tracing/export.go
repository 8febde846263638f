package tracing

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gatehouse-dev/gatehouse/internal/sleep"
)

const (
	// sendTimeout bounds one attempt.
	sendTimeout = 10 * time.Second
	// attempts is how often a batch is sent before it is dropped, with pauses of
	// firstPause and twice the one before after that.
	attempts   = 4
	firstPause = time.Second
	// longestPause bounds the pause that a collector may ask for.
	longestPause = 30 * time.Second
	// maxAnswer bounds what is read of a collector's answer, in bytes.
	maxAnswer = 64 << 10
)

// exporter sends batches with OpenTelemetry's exporter and counts what becomes of the
// spans. The SDK exports one batch at a time.
type exporter struct {
	sdktrace.SpanExporter
	transport *transport
	// sending ends when nothing may be sent any more.
	sending context.Context //nolint:containedctx // Shutdown of the SDK does not end an export
	cancel  context.CancelFunc

	// waiting is how many spans ended and were neither sent nor dropped.
	waiting, sent, dropped atomic.Int64
}

func newExporter(c Config) *exporter {
	e := &exporter{transport: &transport{base: c.Transport, endpoint: c.Endpoint.String(), log: c.Log}}
	if e.transport.base == nil {
		e.transport.base = http.DefaultTransport
	}
	e.sending, e.cancel = context.WithCancel(context.Background())
	e.SpanExporter = otlptracehttp.NewUnstarted( // nothing is left to start
		otlptracehttp.WithEndpointURL(c.Endpoint.String()),
		otlptracehttp.WithHeaders(map[string]string{"User-Agent": "gatehouse/" + c.Version}),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}), // transport does
		otlptracehttp.WithHTTPClient(&http.Client{Transport: e.transport}),
	)
	return e
}

// ExportSpans implements sdktrace.SpanExporter. It never returns an error, which the
// SDK would give to a global handler.
func (e *exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	n := int64(len(spans))
	defer e.waiting.Add(-n)
	e.transport.rejected = 0
	rejected := n
	if err := e.SpanExporter.ExportSpans(e.sending, spans); err != nil { //nolint:contextcheck // see sending
		e.transport.report(err)
	} else {
		rejected = min(max(e.transport.rejected, 0), n)
	}
	e.dropped.Add(rejected)
	e.sent.Add(n - rejected)
	return nil
}

// transport posts a batch, again if that may help. The exporter's own retries would
// miss refused connections, and they do not wait as long as a collector asks for.
type transport struct {
	base     http.RoundTripper
	endpoint string
	log      *slog.Logger
	// rejected is how many spans of the last batch the collector understood and did
	// not take.
	rejected int64
	failing  bool
}

// RoundTrip implements http.RoundTripper. It returns a response only if the collector
// took the batch.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close() //nolint:errcheck // it is in memory
	pause := firstPause
	for attempt := 1; ; attempt++ {
		again, asked, err := t.post(r)
		if err == nil {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}
		t.report(err)
		if !again || attempt == attempts || !sleep.Context(r.Context(), max(pause, asked)) {
			return nil, err
		}
		pause *= 2
	}
}

// post makes one attempt. After an error, again reports whether the same batch may be
// taken later, and pause is how long the collector asks to wait.
func (t *transport) post(r *http.Request) (again bool, pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), sendTimeout)
	defer cancel()
	request := r.Clone(ctx)
	if request.Body, err = r.GetBody(); err != nil {
		return false, 0, err
	}
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return true, 0, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	switch response.StatusCode {
	case http.StatusOK:
		t.accepted(response.Body)
		return false, 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // A date is as good as nothing.
		pause := time.Duration(min(seconds, int(longestPause/time.Second))) * time.Second
		return true, pause, fmt.Errorf("the collector answered %d", response.StatusCode)
	default:
		return false, 0, fmt.Errorf("the collector answered %d (hint: --tracing-endpoint must accept OTLP over HTTP, usually on port 4318)", response.StatusCode)
	}
}

// accepted reads the collector's answer to a batch that it took, at least in part. An
// answer that cannot be read is not worth the spans.
func (t *transport) accepted(body io.Reader) {
	var answer collectorpb.ExportTraceServiceResponse
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil || proto.Unmarshal(text, &answer) != nil {
		answer.Reset()
	}
	if t.rejected = answer.GetPartialSuccess().GetRejectedSpans(); t.rejected > 0 {
		t.report(fmt.Errorf("the collector rejected %d spans: %.200q", t.rejected, answer.GetPartialSuccess().GetErrorMessage()))
		return
	}
	t.report(nil)
}

// report logs the first failure of a row, and the end of the row.
func (t *transport) report(err error) {
	switch {
	case err != nil && !t.failing:
		t.log.Warn("cannot send traces; reviews continue, and gatehouse_traces_dropped_total counts lost spans",
			"endpoint", t.endpoint, "error", err.Error())
	case err == nil && t.failing:
		t.log.Info("traces are sent again", "endpoint", t.endpoint)
	}
	t.failing = err != nil
}
