package replay

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// Source is a file of a recording.
type Source struct {
	// Name is the path of the file, for messages and Subject.Recording.
	Name string
	// Open opens the file. It is called once for each Run.
	Open func() (io.ReadCloser, error)
}

// Options are what Run needs.
type Options struct {
	// Sources are read one after the other. It is required.
	Sources []Source
	// Candidate is the configuration that is tried. It is required.
	Candidate *Candidate
	// Keep reports whether to replay a review. It is called by several goroutines. Nil replays all.
	Keep func(*Subject) bool
	// Progress is called now and then with the number of reviews so far, by the goroutine that called Run. It may be nil.
	Progress func(int64)
	// Result gets every result in the order of the recording, by the goroutine that called Run. It may be nil.
	Result func(*Result)
}

// batchReviews and batchBytes bound what is handed to a worker at a time, but for one review that is larger.
const (
	batchReviews = 64
	batchBytes   = 256 << 10
)

// batch is a part of a file on its way through the workers.
type batch struct {
	source  *Source
	segment *segment
	reviews []*record.Review
	bytes   int

	results []batchResult
	done    chan struct{}

	// err and missing are those of the file, with its last batch.
	err     error
	missing int64
}

type batchResult struct {
	Result

	// skipped is true if Options.Keep excludes the review, and isLogin if it is the review of a token.
	skipped, isLogin bool
}

// Run decides every review of a recording by the candidate, and returns what differs. Its memory does not grow with the
// recording. Files that cannot be read to their end are among Report.Problems, and what precedes the damage counts. The
// error is that of the context.
func Run(ctx context.Context, o Options) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := run{Options: o, library: newLibrary()}
	procs := runtime.GOMAXPROCS(0)
	work, ordered := make(chan *batch, procs), make(chan *batch, 2*procs)
	var workers sync.WaitGroup
	defer func() {
		cancel()
		workers.Wait()
	}()
	workers.Go(func() {
		defer close(ordered)
		defer close(work)
		r.read(ctx, func(b *batch) bool {
			for _, to := range [...]chan<- *batch{ordered, work} {
				select {
				case to <- b:
				case <-ctx.Done():
					return false
				}
			}
			return true
		})
	})
	for range procs {
		workers.Go(func() {
			w := worker{run: &r, deciders: map[*configuration]*decider{}}
			for b := range work {
				w.decide(ctx, b)
				close(b.done)
			}
		})
	}
	a, err := r.collect(ctx, ordered)
	if err == nil {
		err = context.Cause(ctx)
	}
	return a.Report(), err
}

// run is the state of one Run.
type run struct {
	Options

	library *library
}

// read reads all sources, until send returns false.
func (r *run) read(ctx context.Context, send func(*batch) bool) {
	for i := range r.Sources {
		if ctx.Err() != nil || !r.readSource(ctx, &r.Sources[i], send) {
			return
		}
	}
}

// readSource reads a source, and returns false once the replay has ended.
func (r *run) readSource(ctx context.Context, source *Source, send func(*batch) bool) bool {
	b := &batch{source: source, done: make(chan struct{})}
	missing, err := Each(ctx, source, func(reader *record.Reader, review *record.Review) error {
		if of := reader.Segment(); b.segment == nil || b.segment.Segment != of || len(b.reviews) == batchReviews || b.bytes >= batchBytes {
			next := b.segment
			if next == nil || next.Segment != of {
				next = newSegment(of)
			}
			if len(b.reviews) > 0 && !send(b) {
				return context.Cause(ctx)
			}
			b = &batch{source: source, segment: next, done: make(chan struct{})}
		}
		b.reviews = append(b.reviews, review)
		b.bytes += len(review.Request) + len(review.Response)
		return nil
	})
	if ctx.Err() != nil {
		return false
	}
	b.missing, b.err = missing, err
	return send(b)
}

// collect adds up the results in the order of the recording.
func (r *run) collect(ctx context.Context, ordered <-chan *batch) (*Aggregator, error) {
	a := NewAggregator()
	var (
		reviews int64
		logins  int
		header  *record.Segment
	)
	for b := range ordered {
		select {
		case <-b.done:
		case <-ctx.Done():
			return a, context.Cause(ctx)
		}
		if b.segment != nil && b.segment.Segment != header {
			header = b.segment.Segment
			a.addNotes(&header.Header)
		}
		for i := range b.results {
			one := &b.results[i]
			if one.isLogin {
				logins++
			}
			if one.isLogin || one.skipped {
				continue
			}
			reviews++
			a.Add(&one.Result)
			if r.Result != nil {
				r.Result(&one.Result)
			}
		}
		a.report.Gaps += b.missing
		switch {
		case errors.Is(b.err, record.ErrUnfinished):
			a.addNote(b.source.Name + ": " + b.err.Error())
		case b.err != nil:
			a.addProblem(b.source.Name + ": " + firstLine(b.err.Error()))
		}
		if r.Progress != nil {
			r.Progress(reviews)
		}
	}
	if logins > 0 {
		a.addNote("not decided again, because tokens are not recorded: " + diagnostic.Count(logins, "login"))
	}
	return a, nil
}

// worker decides reviews. It is for one goroutine.
type worker struct {
	run      *run
	deciders map[*configuration]*decider
	explain  bool
	// last is what base returned last.
	last struct {
		segment       *segment
		digest        string
		configuration *configuration
		err           error
	}
}

// decide decides the reviews of a batch.
func (w *worker) decide(ctx context.Context, b *batch) {
	b.results = make([]batchResult, len(b.reviews))
	for i, review := range b.reviews {
		if ctx.Err() != nil {
			return
		}
		w.one(ctx, newItem(b.source, b.segment, review), &b.results[i])
	}
	b.reviews = nil
}

// one decides one review.
func (w *worker) one(ctx context.Context, it *Item, out *batchResult) {
	subject := it.Subject()
	if w.run.Keep != nil && !w.run.Keep(&subject) {
		out.skipped = true
		return
	}
	if out.isLogin = it.isLogin(); out.isLogin {
		return
	}
	before, after, difference := w.compare(ctx, it)
	out.Changes, out.Undecided, out.Rules = difference.changes, truncate.Runes(difference.undecided, maxName), difference.rules
	out.Review = subject
	if len(out.Changes) > 0 {
		out.Before, out.After = before.public(), after.public()
	}
}

// base returns the configuration that has decided on a review.
func (w *worker) base(it *Item) (*configuration, error) {
	if w.last.segment != it.segment || w.last.digest != it.Review.Config {
		w.last.segment, w.last.digest = it.segment, it.Review.Config
		w.last.configuration, w.last.err = w.run.library.find(it.segment.Segment, it.Review.Config)
	}
	return w.last.configuration, w.last.err
}

// compare decides a review and compares the answers.
func (w *worker) compare(ctx context.Context, it *Item) (before, after answer, d difference) {
	if reason := it.unreadable(); reason != "" {
		return answer{}, answer{}, difference{undecided: reason}
	}
	it.base, it.baseErr = w.base(it)
	before = it.recordedAnswer()
	before.by = it.base
	after = w.answer(ctx, w.run.Candidate, it)
	return before, after, compare(&before, &after)
}

// maxDeciders bounds the deciders of a worker.
const maxDeciders = maxConfigurations

// answer decides a review by a candidate.
func (w *worker) answer(ctx context.Context, c *Candidate, it *Item) answer {
	configuration := c.fixed
	if configuration == nil {
		if configuration = it.base; configuration == nil {
			return answer{undecided: firstLine(it.baseErr.Error())}
		}
	}
	d := w.deciders[configuration]
	if d == nil {
		if len(w.deciders) == maxDeciders {
			clear(w.deciders)
		}
		d = newDecider(configuration)
		d.explain = w.explain
		w.deciders[configuration] = d
	}
	out := d.decide(ctx, it)
	out.by = configuration
	return out
}
