package record

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
)

// joiner writes the reviews of several files into one, file by file. Its memory does not depend on the number and size of the
// files.
type joiner struct {
	out io.Writer
	// since excludes earlier reviews, unless it is zero.
	since time.Time
	// progress is called now and then with the number of reviews so far.
	progress func(reviews int64)

	// reviews is the number of reviews, begin and end are the times of the first and the last, and gaps is the number of reviews
	// that servers could not record.
	reviews, gaps int64
	begin, end    time.Time
	// configurations are the digests of the configurations that have decided, and keys the identifiers of the redaction keys.
	configurations, keys map[string]bool

	// writer writes segment, whose objects in written are in the file.
	writer  *record.Writer
	segment *record.Segment
	written map[int]bool
	line    []byte
}

// writeError is an error of the file that is written.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write the recording: " + e.err.Error() }

// Unwrap returns the cause.
func (e *writeError) Unwrap() error { return e.err }

// maxDistinct bounds the configurations, and the keys, that a joiner notes.
const maxDistinct = 1000

func newJoiner(out io.Writer, since time.Time, progress func(int64)) *joiner {
	return &joiner{out: out, since: since, progress: progress, configurations: map[string]bool{}, keys: map[string]bool{}}
}

// add adds the reviews of a file. The error is that of the context, a *writeError, or says why the file cannot be read to its
// end: what is before that is added.
func (j *joiner) add(ctx context.Context, path string) error {
	file, err := os.Open(path) // #nosec G304 -- the caller has made the file
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is only read
	reader, err := record.NewReader(file)
	if err != nil {
		return err
	}
	defer reader.Close()
	for n := 0; ; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text, err := reader.NextText()
		if err == nil {
			err = j.review(reader, text)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) && !errors.Is(err, record.ErrTruncated) {
			err = nil
		}
		if _, failed := errors.AsType[*writeError](err); failed {
			return err
		}
		if failed := j.finish(reader); failed != nil {
			return failed
		}
		return err
	}
}

// review adds the review that the reader has read last, with the objects that it refers to.
func (j *joiner) review(reader *record.Reader, text []byte) error {
	var r record.Review
	encoded, err := record.DecodeReview(text, &r)
	if err != nil {
		return &record.FormatError{Line: reader.Line(), Message: err.Error()}
	}
	lookups, err := record.DecodeLookups(encoded)
	if err != nil {
		return &record.FormatError{Line: reader.Line(), Message: err.Error()}
	}
	if r.Time.Before(j.since) {
		return nil
	}
	if err := j.open(reader.Segment()); err != nil {
		return err
	}
	lookups.EachObject(func(id *int) {
		object := reader.Object(*id)
		if err != nil || object == nil || j.written[*id] {
			return
		}
		j.written[*id] = true
		err = j.writer.Write(&record.Line{Object: &record.Object{ID: *id, Value: object}})
	})
	if err == nil {
		j.line = append(append(append(j.line[:0], `{"review":`...), text...), "}\n"...)
		err = j.writer.WriteText(j.line)
	}
	if err != nil {
		return &writeError{err}
	}
	j.count(&r)
	return nil
}

// count counts a review of the segment.
func (j *joiner) count(r *record.Review) {
	if j.reviews++; j.begin.IsZero() || r.Time.Before(j.begin) {
		j.begin = r.Time
	}
	if r.Time.After(j.end) {
		j.end = r.Time
	}
	header := &j.segment.Header
	if config := cmp.Or(r.Config, header.Config); config != "" && len(j.configurations) < maxDistinct {
		j.configurations[config] = true
	}
	if len(j.keys) < maxDistinct {
		j.keys[header.Redaction.Key] = true
	}
	const every = 1000
	if j.reviews%every == 0 {
		j.progress(j.reviews)
	}
}

// open begins a segment, unless it is that of the last review.
func (j *joiner) open(segment *record.Segment) error {
	if j.writer != nil && j.segment == segment {
		return nil
	}
	err := j.close()
	if err == nil {
		j.segment, j.written = segment, map[int]bool{}
		if j.writer, err = record.NewWriter(j.out, &segment.Header); err != nil {
			return &writeError{err}
		}
	}
	return err
}

// finish adds the gaps of a file and ends its last segment.
func (j *joiner) finish(reader *record.Reader) error {
	for _, gap := range reader.Gaps() {
		if gap.To.Before(j.since) {
			continue
		}
		if err := j.open(reader.Segment()); err != nil {
			return err
		}
		if err := j.writer.Write(&record.Line{Gap: &gap}); err != nil {
			return &writeError{err}
		}
		j.gaps += gap.Reviews
	}
	return j.close()
}

// close ends a segment.
func (j *joiner) close() error {
	if j.writer == nil {
		return nil
	}
	err := j.writer.Close()
	j.writer = nil
	if err != nil {
		return &writeError{err}
	}
	return nil
}

// sortedNames returns names in order.
func sortedNames(names map[string]bool) []string { return slices.Sorted(maps.Keys(names)) }
