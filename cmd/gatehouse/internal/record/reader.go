package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// The bounds of a file. Whoever has written it, reading it takes no more memory than this.
const (
	// maxLine bounds a line, in bytes: a review of the largest size with its answer and lookups.
	maxLine = review.MaxAdmissionBytes + 16<<20
	// maxWindow bounds the zstd window, in bytes.
	maxWindow = 8 << 20
	// maxObjects bounds the objects of a segment, and maxObjectBytes their size together. A
	// Recorder begins a new segment well before.
	maxObjects     = 100_000
	maxObjectBytes = 64 << 20
	// maxGaps bounds the gaps of a file.
	maxGaps = 1000
	// maxBetween bounds the bytes of lines from one review to the next, twice what the objects of
	// a segment may have: a file that expands without end ends there. How much larger the lines are
	// than the file has no bound, because equal reviews come to any ratio.
	maxBetween = 2 * maxObjectBytes
)

// ErrTruncated is wrapped by the error of a file that is damaged, or has no end. What was read before is valid.
var ErrTruncated = errors.New("the recording ends here: the rest is missing or damaged")

// ErrUnfinished is the error of a file that has no end: a segment that is being written, or was when its server was killed. It may
// end within a line, because blocks are written when they are full. It is an ErrTruncated, too, for those to whom it is the same.
var ErrUnfinished error = unfinishedError{}

type unfinishedError struct{}

func (unfinishedError) Error() string {
	return "the segment has no end yet: a server is writing it, or was killed"
}

// Is makes it ErrTruncated, without the text of that.
func (unfinishedError) Is(target error) bool { return target == ErrTruncated }

// A FormatError is a file that is no recording, or that this program cannot read.
type FormatError struct {
	// Line is the number of the line, from 1, and 0 for the file as a whole.
	Line    int
	Message string
	Hint    string
}

// Error names the line.
func (e *FormatError) Error() string {
	text := e.Message
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	if e.Hint != "" {
		text += " (hint: " + e.Hint + ")"
	}
	return text
}

// Reader reads the reviews of a file in their order. It is for one goroutine.
type Reader struct {
	compressed *counter
	zstd       *zstd.Decoder
	lines      *bufio.Reader
	buffer     []byte
	// expanded is the last line with its parts.
	expanded []byte

	segment *Segment
	gaps    []Gap
	line    int
	// between is the number of bytes of lines since the last review.
	between int
	err     error
}

// Segment is what the reviews of a segment share. It is safe for concurrent use: reviews that
// were read may refer to it while more is read.
type Segment struct {
	// Header must not be changed.
	Header Header

	mu      sync.RWMutex
	objects map[int]json.RawMessage
	bytes   int
}

// Object returns an object that a review of the segment refers to, nil if there is none. It must
// not be changed.
func (s *Segment) Object(id int) json.RawMessage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[id]
}

// add adds an object, and reports whether there was space for it.
func (s *Segment) add(o *Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += len(o.Value)
	if len(s.objects) >= maxObjects || s.bytes > maxObjectBytes {
		return false
	}
	s.objects[o.ID] = bytes.Clone(o.Value)
	return true
}

// counter counts the bytes that are read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // an io.Reader returns io.EOF as it is
}

// NewReader returns a Reader of a file, whose header it has read. The error is a *FormatError, an
// error that wraps ErrTruncated, or that of the io.Reader.
func NewReader(file io.Reader) (*Reader, error) {
	compressed := &counter{Reader: file}
	decoder, err := zstd.NewReader(compressed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("read zstd: %w", err)
	}
	r := &Reader{compressed: compressed, zstd: decoder, lines: bufio.NewReaderSize(decoder, 64<<10)}
	if _, err = r.nextText(); errors.Is(err, io.EOF) {
		err = &FormatError{Message: "is empty", Hint: "a recording begins with a header"}
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close frees the memory of the Reader.
func (r *Reader) Close() { r.zstd.Close() }

// Header returns that of the segment of the last review.
func (r *Reader) Header() *Header { return &r.segment.Header }

// Segment returns the segment of the last review.
func (r *Reader) Segment() *Segment { return r.segment }

// Line returns the number of the line that was read last, from 1.
func (r *Reader) Line() int { return r.line }

// Read returns how many bytes of the file were read.
func (r *Reader) Read() int64 { return r.compressed.n }

// Gaps returns the gaps that were met so far.
func (r *Reader) Gaps() []Gap { return r.gaps }

// Object returns an object that the last review refers to, nil if there is none. It must not be
// changed.
func (r *Reader) Object(id int) json.RawMessage { return r.segment.Object(id) }

// Next returns the next review. The error is io.EOF at the end of the file, ErrUnfinished, a *FormatError, or one
// that wraps ErrTruncated; it is returned by each later call too.
func (r *Reader) Next() (*Review, error) {
	text, err := r.NextText()
	if err != nil {
		return nil, err
	}
	review := new(Review)
	lookups, err := DecodeReview(bytes.Clone(text), review)
	if err == nil {
		review.Lookups, err = DecodeLookups(lookups)
	}
	if err != nil {
		r.err = &FormatError{Line: r.line, Message: err.Error()}
		return nil, r.err
	}
	return review, nil
}

// reviewPrefix begins the line of a review.
const reviewPrefix = `{"review":`

// NextText returns the text of the next review for DecodeReview, valid until the following call. Errors
// are those of Next, but that the text of the review is not checked.
func (r *Reader) NextText() ([]byte, error) {
	for {
		if r.err != nil {
			return nil, r.err
		}
		text, err := r.nextText()
		if err != nil {
			r.err = err
		}
		if text != nil || err != nil {
			r.between = 0
			return text, err
		}
	}
}

// nextText reads a line. The text is nil unless the line is a review.
func (r *Reader) nextText() ([]byte, error) {
	text, err := r.readLine()
	if err != nil {
		return nil, err
	}
	if review, ok := bytes.CutPrefix(text, []byte(reviewPrefix)); ok && r.segment != nil && len(review) > 0 && review[len(review)-1] == '}' {
		return review[:len(review)-1], nil
	}
	line, err := r.decode(text)
	switch {
	case err != nil:
		return nil, err
	case r.segment == nil && line.Header == nil:
		return nil, &FormatError{Line: 1, Message: "is no recording: it has no header", Hint: "serve --record writes recordings"}
	case line.Gap != nil:
		r.addGap(line.Gap)
	case line.Review != nil:
		value, err := rawjson.Parse(text)
		if err != nil {
			return nil, r.notALine(err)
		}
		return value.Get("review"), nil
	}
	return nil, nil
}

// addGap notes a gap. Those beyond maxGaps become one.
func (r *Reader) addGap(gap *Gap) {
	if len(r.gaps) < maxGaps {
		r.gaps = append(r.gaps, *gap)
		return
	}
	last := &r.gaps[maxGaps-1]
	last.Reviews += gap.Reviews
	last.To = gap.To
}

func (r *Reader) notALine(err error) error {
	return &FormatError{Line: r.line, Message: "is not a line of a recording: " + truncate.Runes(err.Error(), 200)}
}

// decode reads a line that need not be fast, and notes headers and objects.
func (r *Reader) decode(text []byte) (*Line, error) {
	line := new(Line)
	if err := json.Unmarshal(text, line); err != nil {
		return nil, r.notALine(err)
	}
	switch {
	case line.Header != nil:
		if f := line.Header.Format; f != FormatVersion {
			return nil, &FormatError{
				Line: r.line, Message: fmt.Sprintf("has format %d, and this program reads %d", f, FormatVersion),
				Hint: fmt.Sprintf("use gatehouse %s or later", truncate.Runes(line.Header.Program, 64)),
			}
		}
		if from := line.Header.Source; from != FromServer && from != "" {
			return nil, &FormatError{
				Line: r.line, Message: fmt.Sprintf("is made from %q, and this program reads recordings of servers", truncate.Runes(string(from), 64)),
				Hint: "record with serve --record",
			}
		}
		r.segment = &Segment{Header: *line.Header, objects: map[int]json.RawMessage{}}
	case line.Object != nil && r.segment != nil:
		if !r.segment.add(line.Object) {
			return nil, &FormatError{Line: r.line, Message: fmt.Sprintf("the segment has more than %d objects, or %d bytes of them", maxObjects, maxObjectBytes)}
		}
	}
	return line, nil
}

// readLine returns a line without its end, in a buffer that the next call uses again.
func (r *Reader) readLine() ([]byte, error) {
	r.buffer = r.buffer[:0]
	r.line++
	for {
		part, err := r.lines.ReadSlice('\n')
		r.buffer = append(r.buffer, part...)
		r.between += len(part)
		switch {
		case len(r.buffer) > maxLine:
			return nil, &FormatError{Line: r.line, Message: fmt.Sprintf("is longer than %d bytes", maxLine)}
		case r.between > maxBetween:
			return nil, &FormatError{Line: r.line, Message: fmt.Sprintf("there is no review in %d MiB: the file is not read on", maxBetween>>20)}
		case err == nil:
			return r.expand(r.buffer[:len(r.buffer)-1])
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(r.buffer) == 0:
			return nil, io.EOF
		case errors.Is(err, zstd.ErrMagicMismatch) && r.line == 1:
			return nil, &FormatError{Message: "is no recording: it is not compressed with zstd", Hint: "serve --record writes recordings"}
		case errors.Is(err, io.ErrUnexpectedEOF) && r.line > 1:
			return nil, ErrUnfinished
		default:
			return nil, r.damaged(err)
		}
	}
}

// partsPrefix begins the line of a review of which parts were left out, because the segment has them as
// objects already. It is followed by a list of [place, object], in order: at this many bytes
// behind "],", an object stands in place of one byte.
const partsPrefix = `{"parts":[`

// expand returns a line with its parts.
func (r *Reader) expand(line []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(line, []byte(partsPrefix))
	if !ok || r.line == 1 {
		return line, nil
	}
	fail := func(what string) error {
		return &FormatError{Line: r.line, Message: "is not a line of a recording: " + what}
	}
	list, text, ok := bytes.Cut(rest, []byte("]],"))
	if !ok {
		return nil, fail("its list of parts has no end")
	}
	r.expanded = append(r.expanded[:0], '{')
	copied := 0
	for one := range bytes.SplitSeq(list, []byte("],")) {
		place, object, _ := bytes.Cut(bytes.TrimPrefix(one, []byte("[")), []byte(","))
		at, wrongPlace := strconv.Atoi(string(place))
		id, wrongObject := strconv.Atoi(string(object))
		value := r.Object(id)
		if wrongPlace != nil || wrongObject != nil || at < copied || at >= len(text) || value == nil {
			return nil, fail("it refers to a part that is not there")
		}
		r.expanded = append(append(r.expanded, text[copied:at]...), value...)
		copied = at + 1
		if len(r.expanded) > maxLine {
			return nil, &FormatError{Line: r.line, Message: fmt.Sprintf("is longer than %d bytes", maxLine)}
		}
	}
	r.expanded = append(r.expanded, text[copied:]...)
	r.between += len(r.expanded) - len(line)
	return r.expanded, nil
}

// damaged returns the error of a file that cannot be read on.
func (r *Reader) damaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("line %d: %w", r.line, ErrTruncated)
	}
	return fmt.Errorf("line %d: %w: %w", r.line, ErrTruncated, err)
}
