// Package tracing makes a span of each review that is traced, with OpenTelemetry's
// SDK, and sends spans to a collector as OTLP over HTTP.
package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	// queueLength bounds the spans that wait to be sent: a few megabytes.
	queueLength = 2048
	// batchSpans is how many spans are sent at once at most: some hundred kilobytes.
	batchSpans = 512
	// batchTime is how long a span waits for others at most.
	batchTime = 2 * time.Second
	// lastTime is what is left to send the last spans in, at the end.
	lastTime = 2 * time.Second
	// defaultPath is where collectors take spans.
	defaultPath = "/v1/traces"
	// maxText bounds a text in a span, in bytes. Names of Kubernetes fit.
	maxText = 256
)

// Config says what is traced, and where it goes. All but Transport is required.
type Config struct {
	// Endpoint is the collector's URL, as ParseEndpoint returns it.
	Endpoint *url.URL
	// Ratio is the part of the reviews without a trace of the caller's that is traced,
	// from 0 to 1. A review with one is traced if the caller's trace is recorded.
	Ratio float64
	// Version is that of this program, and Instance distinguishes replicas.
	Version, Instance string
	// Log gets a line when spans cannot be sent, and when they can again.
	Log *slog.Logger
	// Transport sends. The default is http.DefaultTransport.
	Transport http.RoundTripper
}

// Tracer makes spans of reviews and sends them. It is safe for concurrent use.
type Tracer struct {
	config   Config
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
	// length bounds the spans that wait to be sent.
	length int64

	sentMetric, dropsMetric prometheus.Collector
}

// ParseEndpoint reads the URL of a collector. One without a path gets that of the
// standard, /v1/traces.
func ParseEndpoint(text string) (*url.URL, error) {
	// The error of url.Parse repeats the text, which may hold a password.
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must be http://HOST:PORT or https://HOST:PORT, with a path if the collector's is not " + defaultPath +
			" (hint: http://otel-collector.observability.svc:4318)")
	case u.User != nil:
		return nil, errors.New("must not contain a user or a password (hint: use a collector in the cluster, which has the credentials)")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("must not contain a query or a fragment (? or #)")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = defaultPath
	}
	return u, nil
}

// New returns a Tracer. The caller must call Run, which ends its goroutine.
func New(c Config) *Tracer { return newTracer(c, queueLength) }

func newTracer(c Config, length int) *Tracer {
	e := newExporter(c)
	// Every setting is explicit, so that no environment variable OTEL_* changes one;
	// OTEL_RESOURCE_ATTRIBUTES can only add to the resource.
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.Ratio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "gatehouse"), attribute.String("service.version", c.Version),
			attribute.String("service.instance.id", c.Instance))),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{AttributeValueLengthLimit: -1, AttributeCountLimit: -1}),
		sdktrace.WithBatcher(e, sdktrace.WithMaxQueueSize(length), sdktrace.WithMaxExportBatchSize(batchSpans),
			sdktrace.WithBatchTimeout(batchTime), sdktrace.WithExportTimeout(0)),
	)
	t := &Tracer{
		config: c, provider: provider, exporter: e, length: int64(length),
		tracer: provider.Tracer("github.com/gatehouse-dev/gatehouse", trace.WithInstrumentationVersion(c.Version)),
	}
	counter := func(name, help string, value *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value.Load()) })
	}
	t.sentMetric = counter("gatehouse_traces_sent_total", "Spans that the collector accepted.", &e.sent)
	t.dropsMetric = counter("gatehouse_traces_dropped_total", "Spans that were not sent: the collector is unreachable, slow or rejects them.", &e.dropped)
	return t
}

// Run sends spans until ctx ends, and then for two seconds what is left.
func (t *Tracer) Run(ctx context.Context) {
	<-ctx.Done()
	defer time.AfterFunc(lastTime, t.exporter.cancel).Stop()
	defer t.exporter.cancel()
	_ = t.provider.Shutdown(context.WithoutCancel(ctx)) // the exporter counts and logs what fails
}

// Describe implements prometheus.Collector.
func (t *Tracer) Describe(to chan<- *prometheus.Desc) {
	t.sentMetric.Describe(to)
	t.dropsMetric.Describe(to)
}

// Collect implements prometheus.Collector.
func (t *Tracer) Collect(to chan<- prometheus.Metric) {
	t.sentMetric.Collect(to)
	t.dropsMetric.Collect(to)
}

// Review makes a span of a finished review, if it is to be traced. It fits
// review.Options.Observe. It never waits: if too
// many spans wait to be sent, the span is dropped and counted.
func (t *Tracer) Review(o *review.Outcome) {
	if o.TraceParent == "" && t.config.Ratio <= 0 {
		return
	}
	ctx := context.Background()
	if o.TraceParent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": o.TraceParent})
		if caller := trace.SpanContextFromContext(ctx); caller.IsValid() && !caller.IsSampled() {
			return // what the sampler would decide, sooner
		}
	}
	_, span := t.tracer.Start(ctx, o.Endpoint, trace.WithTimestamp(o.Started), trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() {
		return
	}
	if t.exporter.waiting.Add(1) > t.length {
		t.exporter.waiting.Add(-1)
		t.exporter.dropped.Add(1)
		return
	}
	span.SetAttributes(attributes(o)...)
	switch o.Decision {
	case review.Unknown, review.Refused, review.Shed:
		span.SetStatus(codes.Error, clip(string(o.Decision)+": "+o.Reason))
	case review.Allowed, review.Denied, review.NoOpinion: // Answers, none of which went wrong.
	}
	span.End(trace.WithTimestamp(o.Started.Add(o.Took)))
}

// attributes returns what a review was about and how it ended. Users, tokens, error
// details and objects, but for their namespace, are not among them: traces are read
// by more people than logs.
func attributes(o *review.Outcome) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, 15)
	for _, a := range []struct{ key, value string }{
		{"gatehouse.decision", string(o.Decision)},
		{"gatehouse.reason", o.Reason},
		{"gatehouse.backend", o.Backend},
		{"gatehouse.source", o.Source},
		{"k8s.admission.uid", string(o.UID)},
		{"k8s.admission.operation", o.Operation},
		{"k8s.admission.group", o.Resource.Group},
		{"k8s.admission.version", o.Resource.Version},
		{"k8s.admission.resource", o.Resource.Resource},
		{"k8s.admission.subresource", o.Subresource},
		{"k8s.namespace.name", o.Namespace},
	} {
		if a.value != "" {
			list = append(list, attribute.String(a.key, clip(a.value)))
		}
	}
	if o.DryRun {
		list = append(list, attribute.Bool("k8s.admission.dry_run", true))
	}
	if o.Patched {
		list = append(list, attribute.Bool("gatehouse.patched", true))
	}
	return append(list, attribute.Int("gatehouse.request.bytes", o.Bytes), attribute.Float64("gatehouse.wait_seconds", o.Waited.Seconds()))
}

// clip returns valid UTF-8 of bounded length: a request may hold anything, and
// protobuf takes nothing else.
func clip(value string) string {
	return truncate.Bytes(strings.ToValidUTF8(truncate.Bytes(value, maxText), "�"), maxText)
}
