package record

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Options are what a Recorder needs. Every field is required.
type Options struct {
	// Dir is the directory of the recording. It need not be writable at the start.
	Dir string
	// Replica is the name of this server, which file names hold.
	Replica string
	Rules   Rules
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

// Recorder writes the reviews that a server has answered. No review waits for it: reviews that cannot be queued or written
// are dropped, counted, and noted as a gap.
type Recorder struct {
	options Options
	queue   chan *Trace
	// wake gets a value when there is enough in the queue to write.
	wake chan struct{}
	// queued is the number of bytes in the queue.
	queued atomic.Int64
	// unnamed is the number of reviews without a UID so far, and skipped that of reviews that are not to be recorded.
	unnamed, skipped atomic.Int64
	traces           sync.Pool
	writing          segment

	mu sync.Mutex
	// gaps are the drops that no segment tells of yet, by reason.
	gaps map[string]*Gap
	// configurations are the texts of the newest configurations by digest, and digests these in their order.
	configurations map[string]func() string
	digests        []string
	stats          Stats
}

// Stats are about a Recorder since its start.
type Stats struct {
	// Recorded and Skipped are numbers of reviews. Skipped are those that Options.Rules exclude, that
	// hold a token, or by which Gatehouse asks whether scopes are enforced.
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

// The reasons of gaps.
const (
	reasonQueue = "queue"
	reasonDisk  = "disk"
	reasonSize  = "size"
)

// New returns a Recorder. Run writes what it gets.
func New(o Options) *Recorder {
	r := &Recorder{
		options: o, queue: make(chan *Trace, queueLength), wake: make(chan struct{}, 1), gaps: map[string]*Gap{}, configurations: map[string]func() string{},
		stats: Stats{Dir: o.Dir, Dropped: map[string]int64{reasonQueue: 0, reasonDisk: 0, reasonSize: 0}},
	}
	r.traces.New = func() any { return &Trace{recorder: r} }
	return r
}

// Begin returns the Trace of a review that is to be recorded.
func (r *Recorder) Begin() *Trace { return r.traces.Get().(*Trace) } //nolint:forcetypeassert // the pool has no others

// add queues a review. It copies what it needs.
func (r *Recorder) add(o *review.Outcome, x review.Exchange, t *Trace) {
	id, isAccess := string(o.UID), o.Endpoint == webhooks.AuthorizeName
	if id == "" { // the reviews of tokens and of access have none
		id = fmt.Sprintf("%s-%d-%d", r.options.Replica, o.Started.UnixMilli(), r.unnamed.Add(1))
	}
	isNever := isCredential(o)
	if isAccess { // which holds no token
		isNever = o.Reason == string(authz.ReasonProbe)
	}
	isUsual := o.Decision == review.NoOpinion || o.Decision == review.Allowed && o.Warnings == 0
	if isNever || isUsual && !r.options.Rules.hasShare(id) {
		r.skipped.Add(1)
		r.free(t)
		return
	}
	size := int64(len(x.Body) + len(x.Answer))
	if r.queued.Add(size)-size > maxQueued {
		r.queued.Add(-size)
		r.drop(o.Started, reasonQueue)
		return
	}
	if !isAccess { // its decision reads the configuration alone
		t.noteNamespace(o.Namespace)
	}
	t.body, t.answer = append(t.body[:0], x.Body...), append(t.answer[:0], x.Answer...)
	t.review = Review{
		ID: id, Time: o.Started.UTC(), Took: o.Took, Endpoint: o.Endpoint, Decision: o.Decision, Reason: o.Reason,
	}
	if t.traced {
		t.review.Config = t.of.Digest
	}
	t.isSecret, t.isAccess = o.Resource.Resource == "secrets", isAccess
	if len(x.Body) == 0 {
		t.review.Token = &Token{Backend: o.Backend, Source: o.Source, ID: o.TokenID}
	}
	select {
	case r.queue <- t:
	default:
		r.queued.Add(-size)
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

// free gives back the memory of a review.
func (r *Recorder) free(t *Trace) {
	t.reset()
	r.traces.Put(t)
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

// keptConfigurations is how many configurations reviews in the queue may have been decided by.
const keptConfigurations = 4

// Configuration takes a configuration that is active from now on. Documents returns it as YAML without secrets, and is called by the
// goroutine of Run.
func (r *Recorder) Configuration(digest string, documents func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.configurations[digest] == nil {
		r.digests = append(r.digests, digest)
	}
	if r.configurations[digest] = sync.OnceValue(documents); len(r.digests) > keptConfigurations {
		delete(r.configurations, r.digests[0])
		r.digests = r.digests[1:]
	}
}

// documents returns the text of a configuration, "" if it is not known.
func (r *Recorder) documents(digest string) string {
	r.mu.Lock()
	documents := r.configurations[digest]
	r.mu.Unlock()
	if documents == nil {
		return ""
	}
	return documents()
}

// Stats returns a copy of the numbers.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stats
	out.Dropped = maps.Clone(out.Dropped)
	out.Skipped += r.skipped.Load()
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
			r.writeAll()
		case <-batch.C:
			r.writeAll()
		case <-flush.C:
			r.tend(time.Now())
		case <-ctx.Done():
			r.writeAll()
			return
		}
	}
}

// writeAll writes what is in the queue.
func (r *Recorder) writeAll() {
	for {
		select {
		case t := <-r.queue:
			r.queued.Add(-int64(len(t.body) + len(t.answer)))
			r.write(t)
			r.free(t)
		default:
			return
		}
	}
}
