// Package merge makes one recording of many, whose reviews are in the order of time.
package merge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
)

const (
	// slack is how much earlier than a segment its first reviews can have arrived: reviews time out
	// before.
	slack = time.Minute
	// maxOpen bounds the files that are open at one time, each of which needs a few MiB. Two of a
	// replica overlap at most.
	maxOpen = 64
	// maxObjects and maxObjectBytes bound the objects of a segment, so that readers need little
	// memory.
	maxObjects     = 1000
	maxObjectBytes = 32 << 20
	// maxConfigurations bounds Result.Configurations.
	maxConfigurations = 1000
)

// Input is a file of a recording.
type Input struct {
	// Name is the name of the file, for messages.
	Name string
	// Open opens the file. It is called twice: once for the header, and once for all of it.
	Open func() (io.ReadCloser, error)
}

// Options are what Merge needs.
type Options struct {
	Inputs []Input
	// Since excludes earlier reviews, unless it is zero.
	Since time.Time
	// Progress is called now and then with the number of reviews so far. It may be nil.
	Progress func(reviews int64)
}

// Result says what was merged.
type Result struct {
	// Reviews is the number of reviews, and Begin and End are the times of the first and the last.
	Reviews    int64
	Begin, End time.Time
	// Gaps is the number of reviews that servers could not record.
	Gaps int64
	// Configurations are the digests of the configurations that have decided, sorted.
	Configurations []string
	// Keys are the identifiers of the redaction keys, sorted.
	Keys []string
	// Problems are the inputs that could not be read to their end, in the order of the inputs. What
	// was read before is merged.
	Problems []FileError
}

// FileError is the error of an input that could not be read to its end.
type FileError struct {
	Name string
	Err  error
}

// Error names the file.
func (p *FileError) Error() string { return p.Name + ": " + p.Err.Error() }

// Unwrap returns the cause.
func (p *FileError) Unwrap() error { return p.Err }

// merger is the state of Merge.
type merger struct {
	options *Options
	// waiting are sources that are not open yet, the earliest first, and open are the others.
	waiting, open []*source
	problems      map[string]error

	out    *output
	result Result
	seen   map[string]bool
	keys   map[string]bool
}

// Merge writes the reviews of all inputs in the order of time. Reviews that need another program,
// redaction or source than those before begin a segment. Nothing is written if there are no
// reviews. The error is that of the context or of out; problems of inputs are in the Result.
//
// Memory does not depend on the number and size of the inputs, as long as few of them overlap in
// time. If more than 64 do, the order of their reviews is not strict.
func Merge(ctx context.Context, out io.Writer, o Options) (*Result, error) {
	m := &merger{options: &o, problems: map[string]error{}, out: &output{file: out}, seen: map[string]bool{}, keys: map[string]bool{}}
	defer func() {
		for _, s := range m.open {
			s.close()
		}
	}()
	if err := m.plan(ctx); err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s := m.earliest()
		if s == nil {
			break
		}
		i := s.pop()
		m.drop(s)
		if err := m.write(i); err != nil {
			return nil, err
		}
	}
	if err := m.out.close(); err != nil {
		return nil, err
	}
	m.result.Configurations, m.result.Keys = sortedKeys(m.seen), sortedKeys(m.keys)
	for _, input := range o.Inputs {
		if err := m.problems[input.Name]; err != nil {
			m.result.Problems = append(m.result.Problems, FileError{input.Name, err})
		}
	}
	return &m.result, nil
}

// plan reads when each input begins.
func (m *merger) plan(ctx context.Context) error {
	for i := range m.options.Inputs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s := &source{input: &m.options.Inputs[i], since: m.options.Since}
		if err := s.open(); err != nil {
			m.problems[s.input.Name] = err
			continue
		}
		s.started = s.reader.Header().Started
		s.close()
		m.waiting = append(m.waiting, s)
	}
	slices.SortStableFunc(m.waiting, func(a, b *source) int {
		return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.input.Name, b.input.Name))
	})
	return nil
}

// earliest returns the source with the earliest item, nil if nothing is left.
func (m *merger) earliest() *source {
	for {
		var best *source
		for _, s := range m.open {
			if best == nil || s.pending[0].at.Before(best.pending[0].at) {
				best = s
			}
		}
		if len(m.waiting) == 0 || best != nil && (len(m.open) >= maxOpen || m.waiting[0].started.Add(-slack).After(best.pending[0].at)) {
			return best
		}
		s := m.waiting[0]
		m.waiting = m.waiting[1:]
		if s.err = s.open(); s.err == nil {
			s.fill()
		}
		m.open = append(m.open, s)
		m.drop(s)
	}
}

// drop removes a source of which nothing is left.
func (m *merger) drop(s *source) {
	if !s.isDone() {
		return
	}
	if err := s.problem(); err != nil {
		m.problems[s.input.Name] = err
	}
	m.open = slices.DeleteFunc(m.open, func(other *source) bool { return other == s })
}

// write writes an item.
func (m *merger) write(i *item) error {
	r := &m.result
	if i.gap != nil {
		r.Gaps += i.gap.Reviews
		return m.out.gap(i)
	}
	if r.Reviews++; r.Begin.IsZero() || i.at.Before(r.Begin) {
		r.Begin = i.at
	}
	if i.at.After(r.End) {
		r.End = i.at
	}
	config := cmp.Or(i.review.Config, i.segment.header.Config)
	if config != "" && len(m.seen) < maxConfigurations {
		m.seen[config] = true
	}
	if len(m.keys) < maxConfigurations {
		m.keys[i.segment.header.Redaction.Key] = true
	}
	const every = 1000
	if m.options.Progress != nil && r.Reviews%every == 0 {
		m.options.Progress(r.Reviews)
	}
	return m.out.review(i, config)
}

// output writes segments.
type output struct {
	file   io.Writer
	writer *record.Writer
	same   string
	config string
	// ids are the numbers of the objects of the segment, by the hash of their text.
	ids   map[[sha256.Size]byte]int
	bytes int
	text  []byte
	// reviews is the number of reviews since the beginning of the zstd frame.
	reviews int
}

// begin begins a segment for an item, unless the last one will do.
//
// A review of an unknown configuration cannot be in a segment of a known one: its own is that of the
// header where it names none.
func (o *output) begin(i *item, config string, full bool) error {
	tooMany := o.reviews >= record.MaxSegmentReviews
	if o.writer != nil && o.same == i.segment.same && !full && !tooMany && (config != "" || o.config == "") {
		return nil
	}
	header := i.segment.header
	header.Format, header.Config, header.Replica, header.Started = record.FormatVersion, config, "", i.at
	o.same, o.config, o.ids, o.bytes = i.segment.same, config, map[[sha256.Size]byte]int{}, 0
	if o.writer != nil && !tooMany {
		return o.failed(o.writer.Write(&record.Line{Header: &header}))
	}
	err := o.close() // a frame can be read without those before it
	if err == nil {
		o.writer, err = record.NewWriter(o.file, &header)
	}
	o.reviews = 0
	return o.failed(err)
}

func (*output) failed(err error) error {
	if err != nil {
		return fmt.Errorf("write the recording: %w", err)
	}
	return nil
}

func (o *output) gap(i *item) error {
	if err := o.begin(i, cmp.Or(i.segment.header.Config, o.config), false); err != nil {
		return err
	}
	return o.failed(o.writer.Write(&record.Line{Gap: i.gap}))
}

func (o *output) review(i *item, config string) error {
	size := 0
	for _, object := range i.objects {
		size += len(object)
	}
	full := len(o.ids)+len(i.objects) > maxObjects || o.bytes+size > maxObjectBytes
	if err := o.begin(i, config, full && len(o.ids) > 0); err != nil {
		return err
	}
	numbers := map[int]int{}
	for id, object := range i.objects {
		number, err := o.object(object)
		if err != nil {
			return err
		}
		numbers[id] = number
	}
	r := i.review
	r.Lookups.EachObject(func(id *int) {
		if *id > 0 {
			*id = numbers[*id]
		}
	})
	r.Replica = cmp.Or(r.Replica, i.segment.header.Replica)
	if r.Config = config; config == o.config {
		r.Config = ""
	}
	text, err := r.AppendLine(o.text[:0])
	if err != nil {
		return fmt.Errorf("encode review %.100q: %w", r.ID, err)
	}
	const kept = 1 << 20
	if o.text = text; cap(text) > kept {
		o.text = nil
	}
	o.reviews++
	return o.failed(o.writer.WriteText(text))
}

// unknown is the number of an object that the recording does not hold.
const unknown = -1

// object returns the number of an object in the segment, and writes it if it is new.
func (o *output) object(object json.RawMessage) (int, error) {
	if object == nil {
		return unknown, nil
	}
	key := sha256.Sum256(object)
	if id := o.ids[key]; id > 0 {
		return id, nil
	}
	id := len(o.ids) + 1
	o.ids[key] = id
	o.bytes += len(object)
	return id, o.failed(o.writer.Write(&record.Line{Object: &record.Object{ID: id, Value: object}}))
}

// close ends the file.
func (o *output) close() error {
	if o.writer == nil {
		return nil
	}
	return o.failed(o.writer.Close())
}
