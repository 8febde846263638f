package tracing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// batchSpans is how many spans are sent at once at most: some hundred kilobytes.
	batchSpans = 512
	// batchTime is how long a span waits for others.
	batchTime = 2 * time.Second
	// sendTimeout bounds one attempt.
	sendTimeout = 10 * time.Second
	// attempts is how often a batch is sent before it is dropped, with pauses of
	// firstPause and twice the one before after that.
	attempts   = 4
	firstPause = time.Second
	// longestPause bounds what a collector may ask for.
	longestPause = 30 * time.Second
	// lastTime is what is left to send the last spans in, at the end.
	lastTime = 2 * time.Second
	// maxAnswer bounds what is read of a collector's answer, in bytes.
	maxAnswer = 64 << 10
)

// Run sends spans until ctx ends, and then for two seconds what is left.
func (t *Tracer) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastTime, cancel) })()
	for more := true; more; {
		var batch []*tracepb.Span
		batch, more = t.batch(ctx)
		t.send(sending, batch)
	}
	for batch := t.waiting(nil); len(batch) > 0; batch = t.waiting(nil) {
		t.send(sending, batch)
	}
}

// batch waits for spans: until there are enough, the first has waited long enough,
// or ctx ends.
func (t *Tracer) batch(ctx context.Context) (batch []*tracepb.Span, more bool) {
	select {
	case s := <-t.queue:
		batch = append(batch, s)
	case <-ctx.Done():
		return t.waiting(nil), false
	}
	wait := time.NewTimer(batchTime)
	defer wait.Stop()
	for len(batch) < batchSpans {
		select {
		case s := <-t.queue:
			batch = append(batch, s)
		case <-wait.C:
			return batch, true
		case <-ctx.Done():
			return t.waiting(batch), false
		}
	}
	return batch, true
}

// waiting adds what is in the queue now.
func (t *Tracer) waiting(batch []*tracepb.Span) []*tracepb.Span {
	for len(batch) < batchSpans {
		select {
		case s := <-t.queue:
			batch = append(batch, s)
		default:
			return batch
		}
	}
	return batch
}

// send sends a batch, again if that may help. What cannot be sent is dropped: spans
// are worth less than the memory that all of an outage's would take.
func (t *Tracer) send(ctx context.Context, batch []*tracepb.Span) {
	if len(batch) == 0 {
		return
	}
	body, err := proto.Marshal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: t.resource,
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: "github.com/gatehouse-dev/gatehouse", Version: t.config.Version},
			Spans: batch,
		}},
	}}})
	pause := firstPause
	for attempt := 1; err == nil; attempt++ {
		var a answer
		if a, err = t.post(ctx, body); err == nil {
			rejected := min(max(a.rejected, 0), int64(len(batch)))
			t.dropped.Add(rejected)
			t.sent.Add(int64(len(batch)) - rejected)
			t.tell(a.refusal)
			return
		}
		t.tell(err)
		if !a.again || attempt == attempts {
			break
		}
		if sleep(ctx, max(pause, a.pause)) {
			pause, err = 2*pause, nil
		}
	}
	t.dropped.Add(int64(len(batch)))
}

// sleep tells whether ctx has not ended meanwhile.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// answer is what a collector says.
type answer struct {
	// rejected is how many spans it did not take of a batch that it understood, and
	// refusal its reason.
	rejected int64
	refusal  error
	// again says that the same batch may be taken later, and pause when.
	again bool
	pause time.Duration
}

func (t *Tracer) post(ctx context.Context, body []byte) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.config.Endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("User-Agent", "gatehouse/"+t.config.Version)
	response, err := t.client.Do(request)
	if err != nil {
		return answer{again: true}, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch response.StatusCode {
	case http.StatusOK:
		var taken collectorpb.ExportTraceServiceResponse
		if err != nil || proto.Unmarshal(text, &taken) != nil {
			return answer{}, nil // It was taken; what else is said is not worth the spans.
		}
		a := answer{rejected: taken.GetPartialSuccess().GetRejectedSpans()}
		if a.rejected > 0 {
			a.refusal = fmt.Errorf("it does not take %d spans: %.200q", a.rejected, taken.GetPartialSuccess().GetErrorMessage())
		}
		return a, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // A date is as good as nothing.
		pause := time.Duration(min(seconds, int(longestPause/time.Second))) * time.Second
		return answer{again: true, pause: pause}, fmt.Errorf("it answers %d", response.StatusCode)
	default:
		return answer{}, fmt.Errorf("it answers %d (hint: --tracing-endpoint must take OTLP over HTTP, mostly on port 4318)", response.StatusCode)
	}
}

// tell logs the first failure of a row, and the end of the row.
func (t *Tracer) tell(err error) {
	switch {
	case err != nil && !t.failing:
		t.config.Log.Warn("traces are not sent; reviews are not held up by that, and gatehouse_traces_dropped_total counts what is lost",
			"endpoint", t.config.Endpoint.String(), "error", err.Error())
	case err == nil && t.failing:
		t.config.Log.Info("traces are sent again", "endpoint", t.config.Endpoint.String())
	}
	t.failing = err != nil
}
