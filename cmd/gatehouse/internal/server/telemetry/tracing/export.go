package tracing

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
)

const (
	// sendTimeout bounds one attempt, and retryTime those of one batch.
	sendTimeout, retryTime = 10 * time.Second, 30 * time.Second
	// firstPause is the first pause between two attempts, and longestPause the longest.
	firstPause, longestPause = time.Second, 10 * time.Second
)

// exporter sends batches with OpenTelemetry's exporter and counts what becomes of the
// spans. The SDK exports one batch at a time.
type exporter struct {
	sdktrace.SpanExporter

	endpoint string
	problems *problemlog.Log
	// sending ends when nothing may be sent any more.
	sending context.Context //nolint:containedctx // Shutdown of the SDK does not end an export
	cancel  context.CancelFunc

	// waiting is how many spans ended and were neither sent nor dropped.
	waiting, sent, dropped atomic.Int64
}

func newExporter(c Config) *exporter {
	e := &exporter{endpoint: c.Endpoint.String(), problems: problemlog.New(c.Log, "tracing")}
	e.sending, e.cancel = context.WithCancel(context.Background())
	e.SpanExporter = otlptracehttp.NewUnstarted( // nothing is left to start
		otlptracehttp.WithEndpointURL(e.endpoint),
		otlptracehttp.WithHeaders(map[string]string{"User-Agent": "gatehouse/" + c.Version}),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: firstPause, MaxInterval: longestPause, MaxElapsedTime: retryTime}),
		otlptracehttp.WithHTTPClient(&http.Client{
			Transport: c.Transport, Timeout: sendTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
	)
	return e
}

// ExportSpans implements sdktrace.SpanExporter. It never returns an error, which the
// SDK would give to a global handler. A batch of which the collector does not take all spans
// counts as dropped.
func (e *exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	const what = "send traces"
	n := int64(len(spans))
	defer e.waiting.Add(-n)
	if err := e.SpanExporter.ExportSpans(e.sending, spans); err != nil { //nolint:contextcheck // see sending
		e.dropped.Add(n)
		e.problems.Report(what, "", fmt.Sprintf("cannot %s to %s: %.500q", what, e.endpoint, err.Error()),
			"reviews continue, and gatehouse_traces_dropped_total counts lost spans; --tracing-endpoint must accept OTLP over HTTP, usually on port 4318")
		return nil
	}
	e.sent.Add(n)
	e.problems.Recover(what)
	return nil
}
