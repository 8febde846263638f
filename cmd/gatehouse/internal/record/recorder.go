package record

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Options are what a Recorder needs. Every field is required but for Rules and Notify.
type Options struct {
	// Dir is the directory of the recording. It need not be writable at the start.
	Dir string
	// Replica is the name of this server, which file names hold.
	Replica  string
	Redactor *Redactor
	// Rules select the reviews to record. Nil selects all.
	Rules *Rules
	// Notify gets the error when nothing can be written any more, and nil when it can again. It must
	// not wait.
	Notify func(error)
	// MaxBytes and MaxAge bound the directory: older segments are removed.
	MaxBytes int64
	MaxAge   time.Duration
	Log      *slog.Logger
}

const (
	// No review is added when those that wait to be written have more than maxQueued bytes, or
	// are queueLength: one that is larger than all that may wait is recorded too.
	maxQueued   = 4 << 20
	queueLength = 1024
	// Reviews are written together: each alone would wake a goroutine. One waits for others at most
	// batchTime, unless they are batchLength or have batchBytes.
	batchTime   = 100 * time.Millisecond
	batchLength = 128
	batchBytes  = 512 << 10
)

// Recorder writes the reviews that a server has answered. A review never waits for it: what
// cannot be queued or written is dropped, counted, and noted as a gap.
type Recorder struct {
	options Options
	queue   chan *entry
	// wake gets a value when there is enough in the queue to write.
	wake chan struct{}
	// queued is the number of bytes in the queue.
	queued atomic.Int64
	// tokens is the number of token reviews so far.
	tokens  atomic.Int64
	entries sync.Pool
	writing segments

	mu sync.Mutex
	// gaps are the drops that no segment tells of yet, by reason.
	gaps map[string]*Gap
	// configurations are those to be written, by digest.
	configurations map[string][]byte
	// active is the digest of the active configuration, and documents its text.
	active    string
	documents []byte
	stats     Stats
}

// Stats are about a Recorder since its start.
type Stats struct {
	// Recorded and Skipped are numbers of reviews. Skipped are those that Options.Rules exclude or
	// that hold a token.
	Recorded, Skipped int64
	// Dropped are numbers of reviews by Gap.Reason.
	Dropped map[string]int64
	// Bytes is the size of the directory's recording.
	Bytes int64
	// Dir is the directory.
	Dir string
	// Err is why nothing can be written, and Since when that began. Err is nil if it can.
	Err   error
	Since time.Time
}

// entry is a review in the queue.
type entry struct {
	review       Review
	body, answer []byte
	trace        *Trace
	// namespace is that of the request, and warned is true if the answer has a warning.
	namespace string
	warned    bool
}

// New returns a Recorder. Run writes what it gets.
func New(o Options) *Recorder {
	return &Recorder{
		options: o, queue: make(chan *entry, queueLength), wake: make(chan struct{}, 1), gaps: map[string]*Gap{}, configurations: map[string][]byte{},
		stats:   Stats{Dir: o.Dir, Dropped: map[string]int64{reasonQueue: 0, reasonDisk: 0, reasonSize: 0}},
		entries: sync.Pool{New: func() any { return new(entry) }},
	}
}

// The reasons of gaps.
const (
	reasonQueue = "queue"
	reasonDisk  = "disk"
	reasonSize  = "size"
)

// Begin returns the Trace of a review that is to be recorded.
func (r *Recorder) Begin() *Trace {
	return &Trace{recorder: r}
}

// add queues a review. It copies what it needs.
func (r *Recorder) add(o *review.Outcome, x review.Exchange, t *Trace) {
	size := int64(len(x.Body) + len(x.Answer))
	if r.queued.Add(size)-size > maxQueued {
		r.queued.Add(-size)
		r.drop(o.Started, reasonQueue)
		return
	}
	t.noteNamespace(o.Namespace)
	e, _ := r.entries.Get().(*entry)
	e.body, e.answer, e.trace = append(e.body[:0], x.Body...), append(e.answer[:0], x.Answer...), t
	e.namespace, e.warned = o.Namespace, o.Warnings > 0
	e.review = Review{
		ID: string(o.UID), Time: o.Started.UTC(), Took: o.Took, Endpoint: o.Endpoint, Config: t.digest, Decision: o.Decision, Reason: o.Reason,
	}
	if len(x.Body) == 0 {
		e.review.ID = fmt.Sprintf("%s-%d-%d", r.options.Replica, o.Started.UnixMilli(), r.tokens.Add(1))
		e.review.Token = &Token{Backend: o.Backend, Source: o.Source, ID: o.TokenID}
	}
	select {
	case r.queue <- e:
	default:
		r.free(e)
		r.drop(o.Started, reasonQueue)
		return
	}
	if len(r.queue) >= batchLength || r.queued.Load() > batchBytes {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// free gives back the memory of an entry.
func (r *Recorder) free(e *entry) {
	const kept = 64 << 10 // bytes
	r.queued.Add(-int64(len(e.body) + len(e.answer)))
	if cap(e.body)+cap(e.answer) > kept {
		return
	}
	*e = entry{body: e.body[:0], answer: e.answer[:0]}
	r.entries.Put(e)
}

// drop notes that a review is not recorded.
func (r *Recorder) drop(at time.Time, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Dropped[reason]++
	g := r.gaps[reason]
	if g == nil {
		g = &Gap{From: at.UTC(), Reason: reason}
		r.gaps[reason] = g
	}
	g.To, g.Reviews = at.UTC(), g.Reviews+1
}

// takeGaps returns the gaps that no segment tells of yet, in a fixed order.
func (r *Recorder) takeGaps() []*Gap {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gaps []*Gap
	for _, reason := range []string{reasonDisk, reasonQueue, reasonSize} {
		if g := r.gaps[reason]; g != nil {
			gaps = append(gaps, g)
			delete(r.gaps, reason)
		}
	}
	return gaps
}

// Configuration takes a configuration that is active from now on, as YAML documents without
// secrets. It is stored once.
func (r *Recorder) Configuration(digest string, documents []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.configurations[digest], r.active, r.documents = documents, digest, documents
}

// Stats returns a copy of the numbers.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stats
	out.Dropped = maps.Clone(out.Dropped)
	return out
}

// update changes the numbers.
func (r *Recorder) update(change func(*Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.stats)
}

// Run writes reviews until the context ends, and then what is in the queue.
func (r *Recorder) Run(ctx context.Context) {
	flush, batch := time.NewTicker(flushEvery), time.NewTicker(batchTime)
	defer flush.Stop()
	defer batch.Stop()
	defer r.close()
	for {
		select {
		case <-r.wake:
			r.writeAll() //nolint:contextcheck // what is in the queue is written after the end
		case <-batch.C:
			r.writeAll() //nolint:contextcheck // what is in the queue is written after the end
		case <-flush.C:
			r.tend()
		case <-ctx.Done():
			r.writeAll() //nolint:contextcheck // what is in the queue is written after the end
			return
		}
	}
}

// writeAll writes what is in the queue.
func (r *Recorder) writeAll() {
	for {
		select {
		case e := <-r.queue:
			r.write(e)
		default:
			return
		}
	}
}
