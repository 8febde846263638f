// Package tracing makes a span of each review that is traced, and sends spans to a
// collector as OTLP over HTTP, in protobuf.
//
// A review is a span that is known only when it has ended, and has no children. So
// there is nothing to carry through the decision, and no need of OpenTelemetry's
// SDK: what is left is a bounded queue and a POST.
package tracing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	// queueLength bounds the spans that wait to be sent: a megabyte or two.
	queueLength = 2048
	// defaultPath is where collectors take spans.
	defaultPath = "/v1/traces"
	// maxText bounds a text in a span, in bytes. Names of Kubernetes fit.
	maxText = 256
)

// Config says what is traced, and where it goes. All but Client is required.
type Config struct {
	// Endpoint is the collector's URL, as ParseEndpoint gives it.
	Endpoint *url.URL
	// Ratio is the part of the reviews that is traced whose caller says nothing of
	// traces, from 0 to 1. What other callers say of theirs holds: a span whose trace
	// is recorded is recorded, and no other.
	Ratio float64
	// Version is that of this program, and Instance tells replicas apart.
	Version, Instance string
	// Log is told when spans cannot be sent, and when they can again.
	Log *slog.Logger
	// Client sends. The default follows no redirects.
	Client *http.Client
}

// Tracer makes spans of reviews and sends them. It is safe for concurrent use.
type Tracer struct {
	config   Config
	client   *http.Client
	resource *resourcepb.Resource
	queue    chan *tracepb.Span

	sent, dropped           atomic.Int64
	sentMetric, dropsMetric prometheus.Collector
	// failing is used by Run alone.
	failing bool
}

// ParseEndpoint reads the URL of a collector. One without a path gets that of the
// standard, /v1/traces.
func ParseEndpoint(text string) (*url.URL, error) {
	// What url.Parse says repeats the text, which may hold a password.
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must be http://HOST:PORT or https://HOST:PORT, with a path if the collector's is not " + defaultPath +
			" (hint: http://otel-collector.observability.svc:4318)")
	case u.User != nil:
		return nil, errors.New("must not hold a user or a password (hint: send to a collector in the cluster, which knows them)")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("must end with its path, without ? or #")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = defaultPath
	}
	return u, nil
}

// New makes a Tracer. It sends nothing before Run.
func New(c Config) *Tracer { return newTracer(c, queueLength) }

func newTracer(c Config, length int) *Tracer {
	t := &Tracer{
		config: c, client: c.Client, queue: make(chan *tracepb.Span, length),
		resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{
			text("service.name", "gatehouse"), text("service.version", c.Version), text("service.instance.id", c.Instance),
		}},
	}
	if t.client == nil {
		t.client = &http.Client{
			Timeout:       sendTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	counter := func(name, help string, value *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value.Load()) })
	}
	t.sentMetric = counter("gatehouse_traces_sent_total", "Spans that the collector took.", &t.sent)
	t.dropsMetric = counter("gatehouse_traces_dropped_total", "Spans that were not sent: the collector is away, slow or refuses them.", &t.dropped)
	return t
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
// review.Options.Observe, with review.Options.TraceParents. It never waits: where
// there is no room the span is dropped, and counted.
func (t *Tracer) Review(o *review.Outcome) {
	caller, traced := parseTraceParent(o.TraceParent)
	if !traced {
		if t.config.Ratio <= 0 || rand.Float64() >= t.config.Ratio { //nolint:gosec // which reviews are traced is no secret
			return
		}
		random(caller.trace[:])
	} else if !caller.sampled {
		return
	}
	if len(t.queue) == cap(t.queue) {
		t.dropped.Add(1) // It may not be full any more, but making the span is what costs.
		return
	}
	select {
	case t.queue <- span(o, caller):
	default:
		t.dropped.Add(1)
	}
}

// span is the review as OTLP has it. A span without a parent is the first of its
// trace.
func span(o *review.Outcome, caller parent) *tracepb.Span {
	id := make([]byte, len(caller.span))
	random(id)
	s := &tracepb.Span{
		TraceId: caller.trace[:], SpanId: id, Name: o.Endpoint, Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: nanoseconds(o.Started), EndTimeUnixNano: nanoseconds(o.Started.Add(o.Took)),
		Attributes: attributes(o),
	}
	if caller.span != [8]byte{} {
		s.ParentSpanId = caller.span[:]
		s.Flags = sampledFlag | uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK|tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	}
	switch o.Decision {
	case review.Unknown, review.Refused, review.Shed:
		s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: clip(string(o.Decision) + ": " + o.Reason)}
	case review.Allowed, review.Denied: // Answers, neither of which went wrong.
	}
	return s
}

// attributes say what a review was about and how it ended. Who asked, whose a token
// is and what is said of it are not among them, nor is anything of an object but
// its namespace: traces are read by more people than logs.
func attributes(o *review.Outcome) []*commonpb.KeyValue {
	var list []*commonpb.KeyValue
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
			list = append(list, text(a.key, a.value))
		}
	}
	for _, a := range []struct {
		key   string
		value bool
	}{{"k8s.admission.dry_run", o.DryRun}, {"gatehouse.patched", o.Patched}} {
		if a.value {
			list = append(list, &commonpb.KeyValue{Key: a.key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}})
		}
	}
	return append(list,
		&commonpb.KeyValue{Key: "gatehouse.request.bytes", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(o.Bytes)}}},
		&commonpb.KeyValue{Key: "gatehouse.wait_seconds", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: o.Waited.Seconds()}}})
}

// text is an attribute. Protobuf takes valid UTF-8 only, and a request may hold
// anything.
func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: clip(value)}}}
}

func clip(value string) string {
	return strings.ToValidUTF8(value[:min(len(value), maxText)], "�")
}

func nanoseconds(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// random fills an id of 8 or 16 bytes, which must be unlike others and is no secret.
func random(id []byte) {
	for ; len(id) > 0; id = id[8:] {
		binary.LittleEndian.PutUint64(id, 1+rand.Uint64N(math.MaxUint64)) //nolint:gosec // see above
	}
}

// String says where spans go, for a log.
func (t *Tracer) String() string {
	return fmt.Sprintf("%s, %g of reviews without a trace", t.config.Endpoint, t.config.Ratio)
}
