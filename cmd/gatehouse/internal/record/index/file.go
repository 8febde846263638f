package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
)

// maxIdle is how long a file is kept open that ends within a segment and does not grow.
const maxIdle = 10 * time.Minute

// file is a file of a recording. One goroutine reads it.
type file struct {
	index *Index
	path  string
	info  fs.FileInfo
	// size is how large the file is, and done how much of it has been read.
	size, done atomic.Int64
	grown      chan struct{}
	cancel     context.CancelFunc
	ended      chan struct{}

	// The following belong to the goroutine that reads it.
	scanner *frameScanner
	// waiting are frames that are whole and not read yet, and frames those that were read.
	waiting []span
	frames  []*frame
	opened  []*os.File
	// joined is true if the zstd frames are no segments of their own.
	joined bool
	// damaged is where a frame begins that cannot be read, -1 without one.
	damaged int64

	// The following are guarded by index.mu.
	caughtUp, live bool
	problem, note  string
}

// run reads the file until the context ends, and what is written to it meanwhile.
func (f *file) run(ctx context.Context) {
	defer close(f.ended)
	for {
		err := f.advance(ctx)
		if ctx.Err() != nil {
			return
		}
		f.update(func() { f.caughtUp, f.live, f.problem = true, false, textOf(err) })
		select {
		case <-f.grown:
		case <-ctx.Done():
			return
		}
	}
}

// textOf returns what is shown of an error, "" without one.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(patherr.Cause(err).Error(), "\n")
	return text
}

func (f *file) update(change func()) {
	f.index.mu.Lock()
	defer f.index.mu.Unlock()
	change()
}

// advance reads what is there, and while the last segment is not whole, what is added to it.
func (f *file) advance(ctx context.Context) error {
	recording, err := os.Open(f.path)
	if err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	defer recording.Close() //nolint:errcheck // it is only read
	if f.scanner == nil {
		f.scanner, f.damaged = new(frameScanner), -1
		f.load(recording)
	}
	f.scanner.file = recording
	for ctx.Err() == nil && !f.joined {
		unreadable := f.scan()
		if len(f.waiting) > 0 {
			apart, err := f.readWhole(ctx, recording)
			if err != nil {
				return err
			}
			if f.joined = !apart; f.joined {
				break
			}
			f.save(recording)
		}
		if unreadable != nil || f.scanner.begin == f.damaged || f.scanner.begin >= f.size.Load() {
			return unreadable
		}
		if whole, err := f.follow(ctx, recording, f.scanner.begin); !whole {
			return err
		}
	}
	if f.joined && ctx.Err() == nil {
		f.drop(func(*frame) bool { return true })
		_, err = f.follow(ctx, recording, 0)
		return err
	}
	return nil
}

// notWhole notes where the frame begins that was not read to its end, unless that may still come.
func (f *file) notWhole(err error) {
	switch {
	case len(f.waiting) > 0:
		f.waiting = f.waiting[1:] // it has become whole meanwhile
	case !errors.Is(err, errIdle):
		f.damaged = f.scanner.begin
	}
}

// scan finds the frames that have become whole.
func (f *file) scan() error {
	whole, err := f.scanner.scan(f.size.Load())
	f.waiting = append(f.waiting, whole...)
	if err != nil && f.scanner.begin == 0 {
		return &record.FormatError{Message: "is no recording: " + err.Error(), Hint: "serve --record writes recordings"}
	}
	return err
}

// drop removes the rows of frames.
func (f *file) drop(which func(*frame) bool) {
	t := f.index.table
	t.mu.Lock()
	found := false
	f.frames = slices.DeleteFunc(f.frames, func(one *frame) bool {
		if !which(one) {
			return false
		}
		one.gone, found = true, true
		f.done.Add(-one.span.size)
		return true
	})
	t.mu.Unlock()
	if found {
		t.removeGone()
		f.closeTexts()
	}
}

// again removes the rows of the frame that begins at a place, which is read again.
func (f *file) again(begin int64) {
	f.drop(func(one *frame) bool { return one.span.offset == begin })
}

// readWhole reads the frames that are waiting, the last one first: it has what people look for. Apart is false if the
// frames cannot be read by themselves.
func (f *file) readWhole(ctx context.Context, recording io.ReaderAt) (apart bool, err error) {
	waiting := f.waiting
	f.waiting = nil
	read := make([]*frame, len(waiting))
	errs := make([]error, len(waiting))
	var group errgroup.Group
	for i := len(waiting) - 1; i >= 0; i-- {
		f.again(waiting[i].offset)
		if f.index.slots.Acquire(ctx, 1) != nil {
			break
		}
		group.Go(func() error {
			defer f.index.slots.Release(1)
			read[i], errs[i] = f.readFrame(ctx, recording, waiting[i])
			return nil
		})
	}
	_ = group.Wait() // errs has the errors
	for _, one := range read {
		if one != nil {
			f.opened, f.frames = append(f.opened, one.text.file), append(f.frames, one)
		}
	}
	for i, failed := range errs {
		if read[i] == nil {
			err = errors.Join(err, failed)
			continue
		}
		format, _ := errors.AsType[*record.FormatError](failed)
		if waiting[i].offset > 0 && format != nil && format.Line <= 1 || i < len(errs)-1 && errors.Is(failed, record.ErrTruncated) && !record.IsDamaged(failed) {
			return false, nil
		}
	}
	return true, err
}

// readFrame reads a frame that is whole.
func (f *file) readFrame(ctx context.Context, recording io.ReaderAt, of span) (*frame, error) {
	one := &frame{file: f, span: of}
	b, err := newBuilder(f.index.table, one, f.index.options.Fallback, func(n int64) { f.done.Add(n) })
	if err != nil {
		return nil, err
	}
	reader, err := record.NewReader(io.NewSectionReader(recording, of.offset, of.size))
	if err != nil {
		return one, one.fail(err)
	}
	defer reader.Close()
	return one, one.fail(b.readAll(ctx, reader))
}

// fail notes why a frame is not read to its end, and returns it.
func (f *frame) fail(err error) error {
	t := f.file.index.table
	t.mu.Lock()
	defer t.mu.Unlock()
	f.problem, f.unsaved = textOf(err), err != nil
	return err
}

// follow reads the frame that begins at a place until it is whole, or does not grow any more. What is wrong with the frame is noted
// there; the error is another one.
func (f *file) follow(ctx context.Context, recording *os.File, begin int64) (whole bool, err error) {
	f.again(begin)
	one := &frame{file: f, span: span{begin, f.size.Load() - begin}, unsaved: true}
	b, err := newBuilder(f.index.table, one, f.index.options.Fallback, func(n int64) { f.done.Add(n) })
	if err != nil {
		return false, err
	}
	f.opened, f.frames = append(f.opened, b.file), append(f.frames, one)
	g := &growing{ctx: ctx, file: f, recording: recording, begin: begin, at: begin, end: -1, waiting: func(idle bool) error {
		err := b.flush()
		f.update(func() { f.caughtUp, f.live = true, !idle })
		return err
	}}
	defer g.stop()
	reader, err := record.NewReader(g)
	if err == nil {
		defer reader.Close()
		err = b.readAll(ctx, reader)
	}
	if g.end < 0 || err != nil {
		err = g.cause(err)
		f.notWhole(err)
		_ = one.fail(err) // it is noted
		return false, nil
	}
	f.index.table.mu.Lock()
	one.span.size, one.unsaved = g.end-begin, false
	f.index.table.mu.Unlock()
	f.waiting = f.waiting[1:] // it is the first one
	f.save(recording)
	return true, nil
}

// growing reads a frame, and waits at the end of the file until it grows.
type growing struct {
	ctx       context.Context //nolint:containedctx // io.Reader has none
	file      *file
	recording *os.File
	// begin and end are those of the frame. The end is -1 until it is known.
	begin, at, end int64
	// waiting is called before each wait, and once when the file is idle.
	waiting func(idle bool) error
	timer   *time.Timer
	idle    bool
}

func (g *growing) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// cause returns why the frame was not read to its end.
func (g *growing) cause(err error) error {
	if g.idle && (err == nil || !record.IsDamaged(err)) && !g.file.joined {
		return fmt.Errorf("%w: %w", record.ErrTruncated, errIdle)
	}
	return err
}

var errIdle = errors.New("it does not grow")

// Read implements io.Reader.
func (g *growing) Read(p []byte) (int, error) {
	for {
		limit := g.file.size.Load()
		if g.end >= 0 {
			limit = g.end
		}
		if g.at < limit {
			n, err := g.recording.ReadAt(p[:min(int64(len(p)), limit-g.at)], g.at)
			g.at += int64(n)
			if n > 0 || err != nil {
				return n, err //nolint:wrapcheck // an io.Reader returns io.EOF as it is
			}
		}
		if g.end < 0 && !g.file.joined {
			if err := g.file.scan(); err != nil {
				return 0, err
			}
			if waiting := g.file.waiting; len(waiting) > 0 {
				g.end = waiting[0].end()
				continue
			}
		}
		if g.end >= 0 || g.idle {
			return 0, io.EOF
		}
		if g.file.size.Load() > g.at {
			continue
		}
		if err := g.wait(); err != nil {
			return 0, err
		}
	}
}

// wait waits until the file grows.
func (g *growing) wait() error {
	info, err := g.recording.Stat()
	if err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	left := maxIdle - time.Since(info.ModTime())
	g.idle = left <= 0
	if err := g.waiting(g.idle); err != nil || g.idle {
		return err
	}
	if g.timer == nil {
		g.timer = time.NewTimer(left)
	} else {
		g.timer.Reset(left)
	}
	select {
	case <-g.file.grown:
	case <-g.timer.C:
	case <-g.ctx.Done():
		return context.Cause(g.ctx)
	}
	return nil
}

// load reads the index file.
func (f *file) load(recording io.ReaderAt) {
	from := openIndex(f.path + record.IndexSuffix)
	if from == nil {
		return
	}
	f.frames = f.index.table.load(f, recording, f.size.Load(), from)
	if len(f.frames) == 0 {
		_ = from.Close() // it was only read
		return
	}
	f.opened = append(f.opened, from)
	for _, one := range f.frames {
		f.done.Add(one.span.size)
		if one.span.offset == f.scanner.at { // the scan goes on behind frames that are known
			f.scanner.begin, f.scanner.at = one.span.end(), one.span.end()
		}
	}
}

// save writes the index file.
func (f *file) save(recording io.ReaderAt) {
	var whole []*frame
	for _, one := range f.frames {
		if !one.unsaved {
			whole = append(whole, one)
		}
	}
	t := f.index.table
	t.mu.RLock()
	full := t.full
	t.mu.RUnlock()
	if len(whole) == 0 || full {
		return
	}
	err := t.save(f.path+record.IndexSuffix, recording, whole)
	if err != nil {
		f.update(func() {
			f.note = "its index cannot be kept beside it, and is made again with each start: " + patherr.Cause(err).Error()
		})
		return
	}
	f.opened = append(f.opened, whole[0].text.file)
	f.closeTexts()
}

// closeTexts closes the files of texts that no frame refers to any more, and removes those that are temporary.
func (f *file) closeTexts() {
	t := f.index.table
	t.mu.Lock() // so that nobody reads them
	defer t.mu.Unlock()
	f.opened = slices.DeleteFunc(f.opened, func(text *os.File) bool {
		if slices.ContainsFunc(f.frames, func(one *frame) bool { return one.text.file == text }) {
			return false
		}
		closeText(text)
		return true
	})
}

// closeText closes a file of texts, and removes it if it is temporary.
func closeText(text *os.File) {
	_ = text.Close() // it was only read
	if strings.HasPrefix(filepath.Base(text.Name()), temporary) {
		_ = os.Remove(text.Name()) // the directory is removed later
	}
}

// source returns the file for a replay.
func (f *file) source() replay.Source { return replay.FileSource(f.path, f.size.Load()) }
