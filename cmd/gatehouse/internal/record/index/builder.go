package index

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

const (
	// batchRows is how many rows are added to the table at a time.
	batchRows = 4096
	// maxCauses bounds the causes of a review.
	maxCauses = 20
	// maxKnown bounds the values of a column that a builder knows.
	maxKnown = 1 << 14
	// maxFrameText bounds the text of a frame, so that row.text fits.
	maxFrameText = math.MaxUint32 - maxEntry
)

// builder makes the rows of a frame. It is for one goroutine.
type builder struct {
	table *table
	frame *frame
	// progress is called with the number of bytes that were read since the last call.
	progress func(bytes int64)

	file   *os.File
	out    *bufio.Writer
	size   int64
	rows   []row
	known  [columns]map[string]uint32
	number uint32
	buffer []byte
	review record.Review
	read   int64
}

// temporary begins the names of files for the texts of frames that no index file has.
const temporary = "texts-"

// newBuilder returns a builder whose texts are in a new file of a directory.
func newBuilder(t *table, f *frame, dir string, progress func(int64)) (*builder, error) {
	file, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return nil, fmt.Errorf("make a temporary file for the index: %w", err)
	}
	const buffered = 64 << 10
	b := &builder{table: t, frame: f, progress: progress, file: file, out: bufio.NewWriterSize(file, buffered)}
	for c := range b.known {
		b.known[c] = map[string]uint32{}
	}
	f.text = texts{file: file}
	t.addFrame(f)
	return b, nil
}

// errTooLarge is the error for a frame of which there are too many texts.
var errTooLarge = errors.New("the recording has a segment that is too large: the rest of it is not shown")

// readAll adds all reviews of a reader. The error is nil at its end.
func (b *builder) readAll(ctx context.Context, reader *record.Reader) error {
	defer func() {
		b.table.mu.Lock()
		defer b.table.mu.Unlock()
		for _, gap := range reader.Gaps() {
			b.frame.missing += gap.Reviews
		}
	}()
	for {
		text, err := reader.NextText()
		if b.progress != nil {
			b.progress(reader.Read() - b.read)
			b.read = reader.Read()
		}
		if errors.Is(err, io.EOF) && !errors.Is(err, record.ErrTruncated) {
			return b.flush()
		}
		if err == nil {
			if err = b.add(text); err != nil {
				err = fmt.Errorf("line %d: %w", reader.Line(), err)
			}
		}
		if err == nil && b.number%64 == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return errors.Join(err, b.flush())
		}
	}
}

// add adds a review.
func (b *builder) add(text []byte) error {
	r := &b.review
	if _, err := record.DecodeReview(text, r); err != nil {
		return err //nolint:wrapcheck // the caller names the line
	}
	if b.size > maxFrameText || b.number == math.MaxUint32 {
		return errTooLarge
	}
	s := replay.SubjectOf(r)
	one := row{
		at: nanoseconds(r.Time), took: uint32(min(max(r.Took.Microseconds(), 0), math.MaxUint32)),
		frame: b.frame.number, number: b.number, text: uint32(b.size), id: hashOf(s.ID), //nolint:gosec // it is bounded
	}
	b.number++
	all := replay.RecordedCauses(r)
	for c, value := range [columns]string{
		users: s.User, namespaces: s.Namespace, kinds: s.Kind, causes: encodeCauses(all[:min(len(all), maxCauses)]),
		endpoints: s.Endpoint, decisions: string(r.Decision), operations: s.Operation,
	} {
		column(c).set(&one, b.intern(column(c), value))
	}
	answer := rawjson.Value(r.Response)
	for _, of := range [...]struct {
		bit uint8
		is  bool
	}{
		{isDryRun, s.DryRun},
		{isPatched, r.Token == nil && answer.Get("patch").Kind() != rawjson.Invalid && answer.Get("patch").Kind() != rawjson.Null},
		{isWarned, answer.Get("warnings").Len() > 0},
		{isRedacted, r.Redacted},
	} {
		if of.is {
			one.is |= of.bit
		}
	}
	e := entry{name: s.Name, subResource: s.SubResource, id: s.ID}
	if e.message = cmp.Or(answer.Get("status", "message").Text(), answer.Get("status", "error").Text()); e.message == "" && string(r.Decision) != "allowed" {
		e.message = r.Reason
	}
	b.buffer = e.append(b.buffer[:0])
	if _, err := b.out.Write(b.buffer); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	b.size += int64(len(b.buffer))
	if b.rows = append(b.rows, one); len(b.rows) >= batchRows {
		return b.flush()
	}
	return nil
}

// intern returns the number of a value.
func (b *builder) intern(c column, value string) uint32 {
	if id, ok := b.known[c][value]; ok {
		return id
	}
	id := b.table.intern(c, value)
	if len(b.known[c]) < maxKnown {
		b.known[c][value] = id
	}
	return id
}

// flush makes what was added visible.
func (b *builder) flush() error {
	if err := b.out.Flush(); err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	b.table.mu.Lock()
	b.frame.text.size = b.size
	b.table.mu.Unlock()
	b.table.add(b.frame, b.rows)
	b.rows = b.rows[:0]
	return nil
}

func hashOf(id string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, id) // it cannot fail
	return h.Sum32()
}

// nanoseconds returns a time as a number, 0 for one that is none.
func nanoseconds(t time.Time) int64 {
	const least, most = 1900, 2261
	if year := t.Year(); year < least || year > most {
		return 0
	}
	return t.UnixNano()
}
