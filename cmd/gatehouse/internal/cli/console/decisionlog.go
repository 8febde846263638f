package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
)

const (
	// maxReaders bounds the files that are read at one time.
	maxReaders = 2
	// idleTime is how long a file must not have grown until its end is taken for the end of the recording.
	idleTime = time.Minute
)

// decisionLog has the newest decisions of recordings in memory. It reads files when a page looks, and goes on with those that grow.
type decisionLog struct {
	// paths are files of recordings, and directories with segments. With mayBeEmpty, it is no problem that there are none yet.
	paths      []string
	mayBeEmpty bool
	// readers bound the files that are read at one time.
	readers *semaphore.Weighted

	mu       sync.Mutex
	calls    calls
	files    map[string]*recordingFile
	problems []string
	// requests are those of the calls, nil if these have changed.
	requests []*request
}

// recordingFile is a file of a recording.
type recordingFile struct {
	path string
	info os.FileInfo
	// size is the size that is known, and grew when it was seen to change.
	size int64
	grew time.Time
	// wake has a value when the file may have grown.
	wake   chan struct{}
	cancel context.CancelFunc

	// read are the bytes, and rows the calls that were read.
	read    int64
	rows    int
	missing int64
	// isCaughtUp reports whether everything was read that was there, and isDone whether nothing waits for more.
	isCaughtUp, isDone bool
	problem            string
}

func newDecisionLog(paths []string, mayBeEmpty bool) *decisionLog {
	return &decisionLog{paths: paths, mayBeEmpty: mayBeEmpty, readers: semaphore.NewWeighted(maxReaders), files: map[string]*recordingFile{}}
}

// look reads files that are new or have grown, in goroutines that background starts and the context ends.
func (l *decisionLog) look(ctx context.Context, background func(func())) {
	sources, problems := replay.Sources(l.paths)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = nil
	for _, err := range problems {
		if !l.mayBeEmpty {
			l.problems = append(l.problems, err.Error())
		}
	}
	found := map[string]os.FileInfo{}
	for i := range sources {
		path := filepath.FromSlash(sources[i].Name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			found[path] = info
		}
	}
	grew := map[string]bool{}
	for path, f := range l.files {
		info := found[path]
		switch {
		case info == nil || !os.SameFile(info, f.info) || info.Size() < f.size || f.isDone && info.Size() > f.size:
			l.remove(f)
			grew[path] = info != nil
		case info.Size() > f.size:
			f.size, f.grew = info.Size(), now
		}
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	var added []*recordingFile
	for path, info := range found {
		if l.files[path] == nil {
			f := &recordingFile{path: path, info: info, size: info.Size(), grew: info.ModTime(), wake: make(chan struct{}, 1)}
			if grew[path] {
				f.grew = now
			}
			l.files[path], added = f, append(added, f)
		}
	}
	slices.SortFunc(added, func(a, b *recordingFile) int {
		return cmp.Or(b.info.ModTime().Compare(a.info.ModTime()), cmp.Compare(b.path, a.path))
	})
	for _, f := range added {
		ctx, cancel := context.WithCancel(ctx)
		f.cancel = cancel
		background(func() { defer cancel(); l.follow(ctx, f) })
	}
}

// remove ends the reading of a file and drops its calls. The caller has the lock.
func (l *decisionLog) remove(f *recordingFile) {
	f.cancel()
	delete(l.files, f.path)
	l.calls.list = slices.DeleteFunc(l.calls.list, func(c *call) bool { return c.file == f })
	l.requests = nil
}

// follow reads a file, and what is appended to it.
func (l *decisionLog) follow(ctx context.Context, f *recordingFile) {
	if l.readers.Acquire(ctx, 1) != nil {
		return // the context has ended
	}
	defer l.readers.Release(1)
	missing, err := int64(0), errors.New("is older than the decisions in memory (hint: give a time range)")
	if !l.isOlder(f) {
		missing, err = readCalls(ctx, f, func(file io.Reader) io.Reader { return &growingFile{Reader: file, ctx: ctx, log: l, file: f} }, l.add)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.isCaughtUp, f.isDone, f.read, f.missing = true, true, f.size, missing
	if err != nil {
		f.problem = err.Error()
	}
}

// isOlder reports whether all decisions of a file are older than those that are kept.
func (l *decisionLog) isOlder(f *recordingFile) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.calls.dropped && len(l.calls.list) < maxCalls || len(l.calls.list) == 0 {
		return false
	}
	l.calls.sort()
	is := f.info.ModTime().Before(l.calls.list[0].Time())
	l.calls.dropped = l.calls.dropped || is
	return is
}

// add adds a call unless its file is not read any more.
func (l *decisionLog) add(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files[c.file.path] == c.file {
		c.file.rows++
		l.calls.add(c)
		l.requests = nil
	}
}

// growingFile reads a file that may grow. At its end it waits until a page looks again.
type growingFile struct {
	io.Reader

	ctx  context.Context //nolint:containedctx // a Reader has none
	log  *decisionLog
	file *recordingFile
}

// Read implements io.Reader.
func (g *growingFile) Read(p []byte) (int, error) {
	for {
		n, err := g.Reader.Read(p)
		g.log.mu.Lock()
		g.file.read += int64(n)
		isIdle := time.Since(g.file.grew) > idleTime
		atEnd := n == 0 && errors.Is(err, io.EOF)
		g.file.isCaughtUp = g.file.isCaughtUp || atEnd
		g.log.mu.Unlock()
		switch {
		case !atEnd || isIdle:
			return n, err //nolint:wrapcheck // an io.Reader returns io.EOF as it is
		case !g.wait():
			return 0, context.Cause(g.ctx)
		}
	}
}

// wait waits until a page looks again, and is false if the context ends. Others may read meanwhile.
func (g *growingFile) wait() bool {
	g.log.readers.Release(1)
	select {
	case <-g.file.wake:
	case <-g.ctx.Done():
	}
	// follow releases it, whether the context has ended or not.
	return g.log.readers.Acquire(context.WithoutCancel(g.ctx), 1) == nil && g.ctx.Err() == nil
}

// readCalls reads the calls of a file, and returns how many the server could not record. The error is that of the context, or says
// what cannot be read.
func readCalls(ctx context.Context, f *recordingFile, wrap func(io.Reader) io.Reader, add func(*call)) (missing int64, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return 0, patherr.Cause(err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	reader, err := record.NewReader(wrap(file))
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	defer func() {
		for _, gap := range reader.Gaps() {
			missing += gap.Reviews
		}
	}()
	var one record.Review
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		text, err := reader.NextText()
		if errors.Is(err, record.ErrUnfinished) || errors.Is(err, io.EOF) && !errors.Is(err, record.ErrTruncated) {
			return 0, nil
		}
		if err == nil {
			if _, err = record.DecodeReview(text, &one); err != nil {
				err = fmt.Errorf("line %d: %w", reader.Line(), err)
			}
		}
		if err != nil {
			return 0, err
		}
		add(newCall(&one, f, n))
	}
}

// logView is what a page shows of a decisionLog.
type logView struct {
	// Requests are in the order of time, and Count is the number of decisions in them.
	Requests    []*request
	Count       int
	First, Last time.Time
	// Dropped reports whether there are older decisions that are not in memory.
	Dropped bool
	Missing int64
	// Done and Total are bytes.
	Done, Total int64
	// IsReady reports whether everything was read that was there, and IsLive whether more may come.
	IsReady, IsLive bool
	Files           []fileView
	Problems        []string
}

// fileView is a file of a recording.
type fileView struct {
	Name       string
	Size       int64
	Rows       int
	IsComplete bool
	Problem    string
}

// view returns what is known. With a time range that begins before the decisions in memory, it reads those of the range.
func (l *decisionLog) view(ctx context.Context, from, to time.Time) *logView {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests == nil {
		l.calls.sort()
		l.requests = groupCalls(l.calls.list)
	}
	v := &logView{Problems: slices.Clone(l.problems), IsReady: true, Dropped: l.calls.dropped}
	v.setCalls(&l.calls, l.requests)
	var files []recordingFile
	for _, f := range l.files {
		files = append(files, *f)
		v.Files = append(v.Files, fileView{filepath.ToSlash(f.path), f.size, f.rows, f.isDone, f.problem})
		v.Missing, v.Done, v.Total = v.Missing+f.missing, v.Done+min(f.read, f.size), v.Total+f.size
		v.IsReady, v.IsLive = v.IsReady && f.isCaughtUp, v.IsLive || f.isCaughtUp && !f.isDone
	}
	slices.SortFunc(v.Files, func(a, b fileView) int { return strings.Compare(a.Name, b.Name) })
	isAsked := !from.IsZero() || !to.IsZero()
	if isAsked && v.IsReady && v.Dropped && from.Before(v.First) {
		l.mu.Unlock()
		v.readRange(ctx, files, from, to)
		l.mu.Lock()
	}
	return v
}

func (v *logView) setCalls(c *calls, requests []*request) {
	v.Requests, v.Count = requests, len(c.list)
	if v.Count > 0 {
		v.First, v.Last = c.list[0].Time(), c.list[v.Count-1].Time()
	}
}

// readRange reads the newest decisions of a time range. The files are not followed.
func (v *logView) readRange(ctx context.Context, files []recordingFile, from, to time.Time) {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	var in calls
	if !from.IsZero() {
		in.from = from.UnixNano()
	}
	if !to.IsZero() {
		in.to = to.UnixNano()
	}
	for i := range files {
		f := &files[i]
		if f.info.ModTime().Before(from) && f.isDone {
			continue
		}
		_, err := readCalls(ctx, f, func(file io.Reader) io.Reader { return file }, in.add)
		if ctx.Err() != nil {
			v.Problems = append(v.Problems, fmt.Sprintf("Not all of this time range was read in %s (hint: give a shorter one)", computeTimeout))
			break
		}
		if err != nil && f.isDone {
			v.Problems = append(v.Problems, fmt.Sprintf("%s: %s", filepath.ToSlash(f.path), err))
		}
	}
	in.sort()
	if in.dropped {
		v.Problems = append(v.Problems, fmt.Sprintf("This time range has more than %d decisions, and the newest are shown (hint: give a shorter one)", len(in.list)))
	}
	v.setCalls(&in, groupCalls(in.list))
}

// readReview reads a review of a file by its number. It reads those before it, too. The error is io.EOF if there is none.
func readReview(ctx context.Context, path string, number int) (*replay.Item, error) {
	source := replay.FileSource(path, 0)
	file, err := source.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	reader, err := record.NewReader(file)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		text, err := reader.NextText()
		if errors.Is(err, record.ErrUnfinished) {
			err = io.EOF
		}
		if err != nil {
			return nil, err
		}
		if n == number {
			return replay.NewItem(&source, reader, text)
		}
	}
}
