package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// Source is a file of a recording.
type Source struct {
	// Name is the path of the file, for messages and Subject.Recording.
	Name string
	// Dir is where the configurations of the recording are, by record.ConfigurationName. It may
	// be "".
	Dir string
	// Size is the size of the file in bytes, 0 if it is not known.
	Size int64
	// Open opens the file. It is called once for each Run.
	Open func() (io.ReadCloser, error)
}

// Options are what Run needs.
type Options struct {
	// Sources are read one after the other. It is required.
	Sources []Source
	// Candidate is the configuration that is tried. It is required.
	Candidate *Candidate
	// Against, if it is set, is compared with the candidate in place of the recorded answers.
	Against *Candidate
	// Keep reports whether to replay a review. It gets no Workload, and is called by several
	// goroutines. Nil replays all.
	Keep func(*Subject) bool
	// Progress is called now and then, by the goroutine that called Run. It may be nil.
	Progress func(Progress)
	// Result gets every result in the order of the recording, by the goroutine that called Run. It may be nil.
	Result func(*Result)
}

// Progress says how far a replay is.
type Progress struct {
	// Reviews is the number of reviews so far.
	Reviews int64
	// Read and Size are bytes of all files. Size is 0 if it is not known.
	Read, Size int64
}

// Item is a review of a recording with what it refers to.
type Item struct {
	Source  *Source
	Segment *record.Segment
	// Review has no Lookups.
	Review *record.Review

	text []byte
}

const (
	// batchReviews and batchBytes bound what is handed to a worker at a time.
	batchReviews = 64
	batchBytes   = 256 << 10
	// maxInFlight bounds the bytes of reviews in progress. A review that is larger by itself waits
	// until there is no other.
	maxInFlight = 8 << 20
)

// batch is a part of a segment on its way through the workers.
type batch struct {
	source  *Source
	segment *segment
	text    []byte
	// ends are where the reviews end in text, and lines are their lines in the file.
	ends, lines []int
	weight      int64

	results []batchResult
	done    chan struct{}

	// read is how many bytes of the files have been read.
	read int64
	// problem and gaps are those of the source, with its last batch. It is none if the source only isUnfinished.
	problem      string
	isUnfinished bool
	gaps         []record.Gap
}

type batchResult struct {
	Result

	// skipped is true if Options.Keep excludes the review, and isLogin if it is no admission review.
	skipped, isLogin bool
	// err is why the text is no review.
	err error
}

// Run decides every review of a recording by the candidate, and returns what differs. Its memory
// does not depend on the size of the recording. Files that cannot be read, or not to their end,
// are among Report.Problems: what was read before counts. The error is that of the context.
func Run(ctx context.Context, o Options) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := run{Options: o, library: newLibrary(), budget: semaphore.NewWeighted(maxInFlight)}
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
	budget  *semaphore.Weighted
	batches sync.Pool
	// key is the redaction key of the first segment that has one, and keyOf its file.
	key, keyOf string
	// before is the size of the files that were read before.
	before int64
}

// read reads all sources, until send returns false.
func (r *run) read(ctx context.Context, send func(*batch) bool) {
	for i := range r.Sources {
		if !r.readSource(ctx, &r.Sources[i], send) {
			return
		}
	}
}

// newBatch returns an empty batch, with the memory of one that is done.
func (r *run) newBatch(source *Source, of *segment) *batch {
	b, _ := r.batches.Get().(*batch)
	if b == nil {
		b = new(batch)
	}
	*b = batch{source: source, segment: of, text: b.text[:0], ends: b.ends[:0], lines: b.lines[:0], results: b.results[:0], done: make(chan struct{})}
	return b
}

// readSource reads a source, and returns false once the replay has ended.
func (r *run) readSource(ctx context.Context, source *Source, send func(*batch) bool) bool {
	b := r.newBatch(source, nil)
	problem := func(err error) bool {
		b.problem = source.Name + ": " + firstLine(err.Error())
		return send(b)
	}
	file, err := source.Open()
	if err != nil {
		return problem(errors.New(strings.TrimPrefix(err.Error(), "open "+source.Name+": ")))
	}
	defer func() { _ = file.Close() }() // it was only read
	reader, err := record.NewReader(file)
	if err != nil {
		return problem(err)
	}
	defer func() {
		r.before += reader.Read()
		reader.Close()
	}()
	var current *segment
	// flush hands over the batch and begins another one.
	flush := func() bool {
		b.weight = min(int64(len(b.text)), maxInFlight)
		if r.budget.Acquire(ctx, b.weight) != nil {
			return false
		}
		b.read = r.before + reader.Read()
		if !send(b) {
			return false
		}
		b = r.newBatch(source, current)
		return true
	}
	for {
		text, err := reader.NextText()
		if err != nil {
			b.gaps = reader.Gaps()
			if !errors.Is(err, io.EOF) || errors.Is(err, record.ErrTruncated) {
				b.problem, b.isUnfinished = source.Name+": "+firstLine(err.Error()), errors.Is(err, record.ErrUnfinished)
			}
			return flush()
		}
		if next := reader.Segment(); current == nil || current.Segment != next {
			if err := r.checkKey(source, next); err != nil {
				b.problem, b.gaps = err.Error(), reader.Gaps()
				return flush()
			}
			current = newSegment(next)
			if len(b.ends) > 0 && !flush() {
				return false
			}
			b.segment = current
		}
		b.text = append(b.text, text...)
		b.ends, b.lines = append(b.ends, len(b.text)), append(b.lines, reader.Line())
		if (len(b.ends) == batchReviews || len(b.text) >= batchBytes) && !flush() {
			return false
		}
	}
}

// checkKey returns an error for a segment with another redaction key than those before.
func (r *run) checkKey(source *Source, s *record.Segment) error {
	switch key := s.Header.Redaction.Key; {
	case key == "" || key == r.key:
	case r.key == "":
		r.key, r.keyOf = key, source.Name
	default:
		return fmt.Errorf("%s: is redacted with key %s and %s with key %s, so that their hashes cannot be compared "+
			"(hint: replay them one after the other, and give all replicas one --record-key-file)", source.Name, short(key), r.keyOf, short(r.key))
	}
	return nil
}

// collect adds up the results in the order of the recording.
func (r *run) collect(ctx context.Context, ordered <-chan *batch) (*Aggregator, error) {
	a := NewAggregator()
	var (
		reviews, size int64
		logins        int
		header        *record.Segment
		failed        *Source
	)
	for i := range r.Sources {
		size += r.Sources[i].Size
	}
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
			switch {
			case failed == b.source || one.skipped:
				continue
			case one.isLogin:
				logins++
				continue
			case one.err != nil:
				failed = b.source // what follows a damaged line is not to be trusted
				a.addProblem(fmt.Sprintf("%s: line %d: %v", b.source.Name, b.lines[i], one.err))
				continue
			}
			reviews++
			a.Add(&one.Result)
			if r.Result != nil {
				r.Result(&one.Result)
			}
		}
		a.addGaps(b.gaps)
		switch {
		case b.problem == "" || failed == b.source:
		case b.isUnfinished:
			a.addNote(b.problem)
		default:
			a.addProblem(b.problem)
		}
		r.budget.Release(b.weight)
		read := b.read
		if clear(b.results); cap(b.text) <= 2*batchBytes {
			r.batches.Put(b)
		}
		if r.Progress != nil {
			r.Progress(Progress{Reviews: reviews, Read: read, Size: size})
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
	item     item
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
	b.results = slices.Grow(b.results, len(b.ends))[:len(b.ends)]
	begin := 0
	for i, end := range b.ends {
		if ctx.Err() != nil {
			return
		}
		w.one(ctx, b, b.text[begin:end:end], &b.results[i])
		begin = end
	}
}

// one decides one review.
func (w *worker) one(ctx context.Context, b *batch, text []byte, out *batchResult) {
	it := &w.item
	*it = item{source: b.source, segment: b.segment}
	it.review = new(record.Review)
	if out.err = it.read(text); out.err != nil {
		return
	}
	subject := subjectOf(it)
	if w.run.Keep != nil || w.run.Result != nil {
		subject.setName(it)
	}
	if w.run.Keep != nil && !w.run.Keep(&subject) {
		out.skipped = true
		return
	}
	if out.isLogin = it.isLogin(); out.isLogin {
		return
	}
	before, after, difference := w.compare(ctx, it)
	out.Changes, out.Undecided, out.Rules = difference.changes, truncate.Runes(difference.undecided, maxName), difference.rules
	if len(out.Changes) > 0 || out.Undecided != "" {
		subject.setWorkload(it)
	}
	out.Review = subject
	if len(out.Changes) > 0 {
		out.Before, out.After = before.public(), after.public()
	}
}

// read decodes the text of a review.
func (i *item) read(text []byte) error {
	lookups, err := record.DecodeReview(text, i.review)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the line
	}
	if i.lookups, err = i.segment.lookupsOf(lookups); err != nil {
		return err
	}
	i.decode()
	return nil
}

// decode decodes the request. One that cannot be read is undecided, see compare.
func (i *item) decode() {
	if !i.isLogin() && i.review.Request != nil {
		i.request, i.requestErr = review.DecodeAdmission(i.review.Request)
	}
}

// base returns the configuration that has decided on a review.
func (w *worker) base(it *item) (*configuration, error) {
	if w.last.segment != it.segment || w.last.digest != it.review.Config {
		w.last.segment, w.last.digest = it.segment, it.review.Config
		w.last.configuration, w.last.err = w.run.library.find(it.source.Dir, &it.segment.Header, it.review)
	}
	return w.last.configuration, w.last.err
}

// isLogin reports whether the review is one of the token endpoint.
func (i *item) isLogin() bool { return i.review.Token != nil || i.review.Endpoint == "authenticate" }

// unreadable returns why a review cannot be replayed, "" if it can.
func (i *item) unreadable() string {
	r := i.review
	switch {
	case i.isLogin():
		return "it is a login, whose token is not recorded"
	case r.Endpoint != "validate" && r.Endpoint != "mutate":
		return "there is no such endpoint"
	case r.Request == nil:
		return "it was not recorded: the server refused it before it was read"
	case i.requestErr != nil:
		return "the recorded request cannot be read: " + firstLine(i.requestErr.Error())
	default:
		return ""
	}
}

// compare decides a review and compares the answers.
func (w *worker) compare(ctx context.Context, it *item) (before, after answer, d difference) {
	if reason := it.unreadable(); reason != "" {
		return answer{}, answer{}, difference{undecided: reason}
	}
	it.base, it.baseErr = w.base(it)
	recorded := w.run.Against == nil
	if recorded {
		before = recordedAnswer(it.review)
		before.by = it.base
	} else {
		before = w.answer(ctx, w.run.Against, it)
	}
	after = w.answer(ctx, w.run.Candidate, it)
	return before, after, compare(&before, &after, recorded)
}

// maxDeciders bounds the deciders of a worker.
const maxDeciders = maxConfigurations

// answer decides a review by a candidate.
func (w *worker) answer(ctx context.Context, c *Candidate, it *item) answer {
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
