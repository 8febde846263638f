// Package auditlog reads audit logs of API servers: Events of audit.k8s.io/v1 as JSON lines, also compressed with gzip.
package auditlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// maxLine bounds a line, in bytes: an Event with the largest object that etcd takes by default, as JSON, in the request and in the
	// response, or a batch of them.
	maxLine = 32 << 20
	// maxBetween bounds the bytes from one Event to the next: a file that expands without end ends there.
	maxBetween = 2 * maxLine
	// buffered is how much of a file is read at once.
	buffered = 64 << 10
)

// ErrUnfinished is the error of a log that ends within a line: one that is being written, or that was cut off. What was read before is
// valid.
var ErrUnfinished = errors.New("the log ends within a line")

// LineError is a line that is no Event. The next one can be read.
type LineError struct {
	// Line is its number, from 1.
	Line int
	text string
}

// Error says what is wrong.
func (e *LineError) Error() string { return fmt.Sprintf("line %d %s", e.Line, e.text) }

// Reader reads the Events of a log in their order. It is for one goroutine. Whoever has written the log, it takes no more memory than a few
// lines.
type Reader struct {
	lines *bufio.Reader
	line  int
	// between is the number of bytes since the last Event.
	between int
	// buffer is the line, and batch what is left of an EventList in it.
	buffer []byte
	batch  []auditv1.Event
	err    error
}

// NewReader returns a Reader of a file. The error is about the beginning of the file.
func NewReader(file io.Reader) (*Reader, error) {
	r := &Reader{lines: bufio.NewReaderSize(file, buffered)}
	if begin, _ := r.lines.Peek(2); bytes.Equal(begin, []byte{0x1f, 0x8b}) {
		compressed, err := gzip.NewReader(r.lines)
		if err != nil {
			return nil, fmt.Errorf("is damaged: %w", err)
		}
		r.lines = bufio.NewReaderSize(compressed, buffered)
	}
	return r, nil
}

// Next returns the next Event, which the caller may keep. The error is io.EOF at the end, ErrUnfinished, a *LineError, after which the next
// one can be read, or why the file cannot be read on.
func (r *Reader) Next() (*auditv1.Event, error) {
	for len(r.batch) == 0 {
		if r.err != nil {
			return nil, r.err
		}
		if err := r.readLine(); err != nil {
			r.err = err
			return nil, err
		}
		if text := bytes.TrimSpace(r.buffer); len(text) > 0 {
			if err := r.decode(text); err != nil {
				return nil, err
			}
		}
	}
	event := &r.batch[0]
	r.batch = r.batch[1:]
	return event, nil
}

// readLine reads a line into the buffer.
func (r *Reader) readLine() error {
	if cap(r.buffer) > 1<<20 {
		r.buffer = nil // not kept for one large line
	}
	r.buffer = r.buffer[:0]
	r.line++
	for {
		part, err := r.lines.ReadSlice('\n')
		r.buffer = append(r.buffer, part...)
		r.between += len(part)
		switch {
		case r.between > maxBetween:
			return fmt.Errorf("line %d: there is no Event in %d MiB: the file is not read on", r.line, maxBetween>>20)
		case len(r.buffer) > maxLine:
			return fmt.Errorf("line %d is longer than %d MiB", r.line, maxLine>>20)
		case err == nil:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(r.buffer)) == 0:
			return io.EOF
		case errors.Is(err, io.EOF) && json.Valid(r.buffer):
			return nil // the last line needs no end
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return ErrUnfinished
		default:
			return fmt.Errorf("line %d: cannot be read: %w", r.line, err)
		}
	}
}

// decode makes a batch of the line.
func (r *Reader) decode(text []byte) error {
	var list auditv1.EventList
	if err := json.Unmarshal(text, &list.TypeMeta); err != nil {
		return &LineError{r.line, "is not JSON: " + truncate.Runes(err.Error(), 200)}
	}
	var err error
	switch {
	case list.APIVersion != auditv1.SchemeGroupVersion.String():
	case list.Kind == "Event":
		var event auditv1.Event
		err = json.Unmarshal(text, &event)
		list.Items = []auditv1.Event{event}
	case list.Kind == "EventList":
		if err = json.Unmarshal(text, &list); err == nil && len(list.Items) == 0 {
			return nil
		}
	}
	switch {
	case err != nil:
		return &LineError{r.line, "is not an Event: " + truncate.Runes(err.Error(), 200)}
	case len(list.Items) == 0:
		return &LineError{r.line, "is not an Event of audit.k8s.io/v1 (hint: give the file of kube-apiserver's --audit-log-path, or take the Events out of what a cloud wraps around them)"}
	}
	r.batch, r.between = list.Items, 0
	return nil
}
