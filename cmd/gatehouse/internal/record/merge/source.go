package merge

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
)

const (
	// ahead and aheadBytes bound how many reviews of a file are read ahead, to sort them: a server
	// writes a review when it is answered, and so behind later ones that took less time.
	ahead      = 512
	aheadBytes = 2 << 20
)

// item is a review or a gap, and what it refers to.
type item struct {
	at time.Time
	// number is its place in the file, which decides between items of the same time.
	number  int64
	segment *segment
	review  *record.Review
	gap     *record.Gap
	// objects are those that the lookups of the review name.
	objects map[int]json.RawMessage
	size    int
}

// segment is the header of a segment.
type segment struct {
	header record.Header
	// same is equal for segments whose reviews can be in one segment.
	same string
}

// newSegment returns the segment of a header.
func newSegment(header *record.Header) (*segment, error) {
	s := &segment{header: *header}
	common := *header
	common.Config, common.Replica, common.Started = "", "", time.Time{}
	same, err := json.Marshal(&common)
	s.same = string(same)
	return s, err //nolint:wrapcheck // a header that was decoded can be encoded
}

// source is an input that is being read.
type source struct {
	input   *Input
	since   time.Time
	started time.Time

	file    io.Closer
	reader  *record.Reader
	last    *record.Header
	segment *segment
	pending items
	// bytes is the size of the reviews in pending, and older the number of items in it that are of
	// another segment than the last one. Objects stay in memory with the reviews that name them, so
	// that reviews of two segments are never read ahead.
	bytes, older int

	read int64
	// gaps is the number of gaps that were read, and missing that of their reviews.
	gaps    int
	missing int64
	// err is why nothing more is read: io.EOF at the end of the file.
	err error
}

// open opens the file of a source.
func (s *source) open() error {
	file, err := s.input.Open()
	if err != nil {
		return err
	}
	if s.reader, err = record.NewReader(file); err != nil {
		_ = file.Close()
		return err //nolint:wrapcheck // the caller names the file
	}
	s.file = file
	return nil
}

// close frees the memory of a source.
func (s *source) close() {
	if s.reader != nil {
		s.reader.Close()
		_ = s.file.Close()
		s.reader = nil
	}
}

// fill reads ahead.
func (s *source) fill() {
	for s.err == nil && (len(s.pending) == 0 || s.older == 0 && len(s.pending) < ahead && s.bytes < aheadBytes) {
		s.err = s.next()
	}
	if s.err != nil {
		s.close()
	}
}

// next reads a review, and the gaps before it.
func (s *source) next() error {
	review, err := s.reader.Next()
	if failed := s.noteSegment(); failed != nil {
		return failed
	}
	s.noteGaps(err != nil)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the file
	}
	if review.Time.Before(s.since) {
		return nil
	}
	kept := *review
	// The reader uses the memory again.
	kept.Request, kept.Response = bytes.Clone(review.Request), bytes.Clone(review.Response)
	i := &item{at: review.Time, segment: s.segment, review: &kept, objects: map[int]json.RawMessage{}}
	kept.Lookups.EachObject(func(id *int) {
		if *id > 0 {
			i.objects[*id] = s.reader.Object(*id)
		}
	})
	i.size = len(kept.Request) + len(kept.Response)
	s.push(i)
	return nil
}

// noteSegment notes a header that was read.
func (s *source) noteSegment() error {
	header := s.reader.Header()
	if s.segment != nil && sameHeader(s.last, header) {
		return nil
	}
	kept := *header
	s.last, s.older = &kept, len(s.pending)
	var err error
	s.segment, err = newSegment(header)
	return err
}

// sameHeader reports whether two headers are equal.
func sameHeader(a, b *record.Header) bool {
	return a.Started.Equal(b.Started) && a.Config == b.Config && a.Replica == b.Replica && a.Program == b.Program && a.Kubernetes == b.Kubernetes &&
		a.CEL == b.CEL && a.Source == b.Source && a.Sampling == b.Sampling && a.Redaction.Key == b.Redaction.Key &&
		slices.Equal(a.Redaction.Paths, b.Redaction.Paths) && slices.Equal(a.Redaction.Annotations, b.Redaction.Annotations)
}

// noteGaps adds the gaps that were read. A reader adds those beyond its limit to the last one, which
// end tells at the end of the file.
func (s *source) noteGaps(end bool) {
	gaps := s.reader.Gaps()
	for _, gap := range gaps[s.gaps:] {
		s.pushGap(gap)
	}
	s.gaps = len(gaps)
	if !end || len(gaps) == 0 {
		return
	}
	var total int64
	for _, gap := range gaps {
		total += gap.Reviews
	}
	if rest := total - s.missing; rest > 0 {
		last := gaps[len(gaps)-1]
		last.Reviews = rest
		s.pushGap(last)
	}
}

func (s *source) pushGap(gap record.Gap) {
	s.missing += gap.Reviews
	if !gap.To.Before(s.since) {
		s.push(&item{at: gap.From, segment: s.segment, gap: &gap})
	}
}

func (s *source) push(i *item) {
	s.read++
	i.number = s.read
	s.bytes += i.size
	heap.Push(&s.pending, i)
}

// pop takes the earliest item, and reads on.
func (s *source) pop() *item {
	i, _ := heap.Pop(&s.pending).(*item)
	s.bytes -= i.size
	if i.segment != s.segment {
		s.older--
	}
	s.fill()
	return i
}

// isDone reports whether nothing is left of a source.
func (s *source) isDone() bool { return s.err != nil && len(s.pending) == 0 }

// problem returns why the file could not be read to its end, nil if it could.
func (s *source) problem() error {
	if errors.Is(s.err, io.EOF) && !errors.Is(s.err, record.ErrTruncated) {
		return nil
	}
	return s.err
}

// items is a heap, the earliest first.
type items []*item

func (h items) Len() int { return len(h) }
func (h items) Less(a, b int) bool {
	return cmp.Or(h[a].at.Compare(h[b].at), cmp.Compare(h[a].number, h[b].number)) < 0
}
func (h items) Swap(a, b int) { h[a], h[b] = h[b], h[a] }

// Push implements heap.Interface.
func (h *items) Push(x any) {
	if i, ok := x.(*item); ok {
		*h = append(*h, i)
	}
}

// Pop implements heap.Interface.
func (h *items) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return i
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
