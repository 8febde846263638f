package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// The bounds of a file. Whoever has written it, reading it takes no more memory than this.
const (
	// maxLine bounds a line, in bytes: a review of the largest size with its answer and lookups.
	maxLine = review.MaxAdmissionBytes + 16<<20
	// maxWindow bounds the zstd window, in bytes.
	maxWindow = 8 << 20
	// maxObjects bounds the objects and configurations of a segment, and maxObjectBytes their size together. A
	// Recorder begins a new segment well before.
	maxObjects     = 100_000
	maxObjectBytes = 64 << 20
	// maxBetween bounds the bytes of lines from one review to the next: a file that expands without end ends there.
	maxBetween = 2 * maxObjectBytes
)

// ErrUnfinished is the error of a file that ends within a line: a segment that is being written, or was when its server was killed. What
// was read before is valid.
var ErrUnfinished = errors.New("the segment has no end: a server is writing it, or was killed")

// Segment is what the reviews of a segment share. It is safe for concurrent use: reviews that
// were read may refer to it while more is read.
type Segment struct {
	// Header must not be changed.
	Header Header

	mu             sync.RWMutex
	objects        map[string]json.RawMessage
	configurations map[string]string
	bytes          int
}

// Object returns an object that a review of the segment refers to, nil if there is none. It must
// not be changed.
func (s *Segment) Object(digest string) json.RawMessage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[digest]
}

// Configuration returns the documents of a configuration that has decided on reviews of the segment, and false if the segment does
// not have it.
func (s *Segment) Configuration(digest string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	documents, ok := s.configurations[digest]
	return documents, ok
}

// add adds an object or configuration, and reports whether there was space for it.
func (s *Segment) add(line *Line) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := line.Object; o != nil {
		s.bytes += len(o.Value)
		s.objects[o.Digest] = o.Value
	}
	if c := line.Config; c != nil {
		s.bytes += len(c.Documents)
		s.configurations[c.Digest] = c.Documents
	}
	return len(s.objects)+len(s.configurations) <= maxObjects && s.bytes <= maxObjectBytes
}

// Reader reads the reviews of a file in their order. It is for one goroutine.
type Reader struct {
	zstd   *zstd.Decoder
	lines  *bufio.Reader
	buffer []byte

	segment *Segment
	missing int64
	line    int
	// between is the number of bytes of lines since the last review.
	between int
	err     error
}

// NewReader returns a Reader of a file. The error is that of zstd, which does not fail.
func NewReader(file io.Reader) (*Reader, error) {
	decoder, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("read zstd: %w", err)
	}
	return &Reader{zstd: decoder, lines: bufio.NewReaderSize(decoder, 64<<10)}, nil
}

// Close frees the memory of the Reader.
func (r *Reader) Close() { r.zstd.Close() }

// Segment returns the segment of the last review.
func (r *Reader) Segment() *Segment { return r.segment }

// Missing returns how many reviews are in none of the lines so far, because the server could not record them.
func (r *Reader) Missing() int64 { return r.missing }

// Next returns the next review. The error is io.EOF at the end of the file, ErrUnfinished, or why the file is damaged, is no
// recording, or cannot be read by this program: what was read before is valid. It is returned by each later call too.
func (r *Reader) Next() (review *Review, err error) {
	for r.err == nil && review == nil {
		var text []byte
		if text, r.err = r.readLine(); r.err == nil {
			review, r.err = r.decode(text)
		}
	}
	return review, r.err
}

func (r *Reader) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{r.line}, args...)...)
}

// readLine returns a line with its end, in a buffer that the next call uses again.
func (r *Reader) readLine() ([]byte, error) {
	r.buffer = r.buffer[:0]
	r.line++
	for {
		part, err := r.lines.ReadSlice('\n')
		r.buffer = append(r.buffer, part...)
		r.between += len(part)
		switch {
		case len(r.buffer) > maxLine:
			return nil, r.fail("is longer than %d bytes", maxLine)
		case r.between > maxBetween:
			return nil, r.fail("there is no review in %d MiB: the file is not read on", maxBetween>>20)
		case err == nil:
			return r.buffer, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(r.buffer) == 0 && r.segment != nil:
			return nil, io.EOF
		case errors.Is(err, io.EOF) && len(r.buffer) == 0:
			return nil, errors.New("is empty (hint: a recording begins with a header)")
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, ErrUnfinished
		case errors.Is(err, zstd.ErrMagicMismatch) && r.line == 1:
			return nil, errors.New("is no recording: it is not compressed with zstd (hint: serve --record writes recordings)")
		default:
			return nil, r.fail("the recording is damaged: %v", err)
		}
	}
}

// reviewPrefix begins the line of a review.
const reviewPrefix = `{"review":`

// decode notes what a line holds, and returns its review, nil for another line.
func (r *Reader) decode(text []byte) (*Review, error) {
	if r.segment != nil && bytes.HasPrefix(text, []byte(reviewPrefix)) {
		r.between = 0
		return r.review(bytes.Clone(text))
	}
	line := new(Line)
	if err := json.Unmarshal(text, line); err != nil {
		return nil, r.fail("is not a line of a recording: %s", truncate.Runes(err.Error(), 200))
	}
	switch {
	case line.Header != nil:
		if f := line.Header.Format; f != FormatVersion {
			return nil, r.fail("has format %d, and this program reads %d (hint: use gatehouse %s or later)", f, FormatVersion, truncate.Runes(line.Header.Program, 64))
		}
		r.segment = &Segment{Header: *line.Header, objects: map[string]json.RawMessage{}, configurations: map[string]string{}}
	case r.segment == nil:
		return nil, r.fail("is no recording: it has no header (hint: serve --record writes recordings)")
	case line.Gap != nil:
		r.missing += max(line.Gap.Reviews, 0)
	case !r.segment.add(line):
		return nil, r.fail("the segment has more than %d objects, or %d bytes of them", maxObjects, maxObjectBytes)
	}
	return nil, nil //nolint:nilnil // it is no review
}

// review decodes the line of a review, whose Request and Response share its memory. It checks the text once: json.Unmarshal would read the
// request five times.
func (r *Reader) review(text []byte) (*Review, error) {
	value, err := rawjson.Parse(text)
	if err == nil && value.Get("review").Kind() != rawjson.Object {
		err = errors.New("it is no object")
	}
	out, rest := new(Review), []byte{'{'}
	if err == nil {
		for name, member := range value.Get("review").Members() {
			switch {
			case member.Kind() == rawjson.Null:
			case name.Is("request"):
				out.Request = json.RawMessage(member)
			case name.Is("response"):
				out.Response = json.RawMessage(member)
			default:
				if len(rest) > 1 {
					rest = append(rest, ',')
				}
				rest = append(append(append(rest, name...), ':'), member...)
			}
		}
		err = json.Unmarshal(append(rest, '}'), out)
	}
	if err != nil {
		return nil, r.fail("is not a review of a recording: %s", truncate.Runes(err.Error(), 200))
	}
	return out, nil
}
