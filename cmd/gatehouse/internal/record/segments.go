package record

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

const (
	// flushEvery bounds how much a server that is killed loses.
	flushEvery = 2 * time.Second
	// maxSegmentAge bounds the time of a segment.
	maxSegmentAge = time.Hour
	// segmentParts is how many segments fit into Options.MaxBytes.
	segmentParts = 16
	// MaxSegmentReviews bounds the reviews of a segment: to read one of them, a program reads those before it.
	MaxSegmentReviews = 1 << 16
	// maxPause bounds the time between two attempts to write to a directory.
	maxPause = 30 * time.Second
)

const (
	// SegmentSuffix ends the names of segments. They begin with the time of their header.
	SegmentSuffix = ".gatehouse.zst"
	// configurationPrefix and configurationSuffix are around the digest in names of configurations.
	configurationPrefix, configurationSuffix = "configuration-", ".yaml"

	timeFormat = "20060102T150405.000Z"
)

// segments is the state of writing. It belongs to Run.
type segments struct {
	file    *os.File
	writer  *Writer
	size    int64 // bytes on disk
	reviews int
	begun   time.Time
	dirty   bool
	header  Header
	objects objectTable
	// number distinguishes the segment from others of this process.
	number uint64
	// Buffers of encode.
	line, review, request, answer []byte
	cuts                          []cut
	parts                         []*part
	// inParts is the size of the parts that the current review refers to, in bytes.
	inParts int
	// While nothing can be written, the next attempt is at retryAt.
	retryAt time.Time
	pause   time.Duration
	// pruned is when prune was called last.
	pruned time.Time
	// drops are those that were logged last, by reason.
	drops map[string]*drops
}

// drops say when drops were logged last, and how many there were since.
type drops struct {
	logged time.Time
	since  int64
}

// Write implements io.Writer for the compressor.
func (s *segments) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.size += int64(n)
	return n, err //nolint:wrapcheck // an os.File names its path
}

// write records one review.
func (r *Recorder) write(e *entry) {
	defer r.free(e)
	if !r.keeps(e) {
		r.update(func(s *Stats) { s.Skipped++ })
		return
	}
	err := r.open(time.Now())
	if err == nil {
		err = r.append(e)
	}
	switch {
	case err == nil:
		r.update(func(s *Stats) { s.Recorded++ })
	case errors.Is(err, errCredential):
		r.update(func(s *Stats) { s.Skipped++ })
	case errors.Is(err, errTooLarge):
		r.drop(e.review.Time, reasonSize)
	default:
		r.drop(e.review.Time, reasonDisk)
	}
}

// keeps reports whether to record a review.
func (r *Recorder) keeps(e *entry) bool {
	rules := r.options.Rules
	if rules == nil {
		return true
	}
	c := Candidate{Review: &e.review, Namespace: e.namespace, Warned: e.warned}
	if len(e.body) > 0 {
		c.Body = e.body
		c.Object, _ = e.trace.findNamespace(e.namespace)
	}
	return rules.Keep(context.Background(), &c) // what is in the queue is written after the end
}

// errPaused is returned while nothing can be written.
var errPaused = errors.New("the directory cannot be written to")

// open begins a segment, unless there is one with space for more.
func (r *Recorder) open(now time.Time) error {
	s := &r.writing
	if s.file != nil && (s.size > r.options.MaxBytes/segmentParts || now.Sub(s.begun) > maxSegmentAge || s.reviews >= MaxSegmentReviews || s.objects.isFull()) {
		r.close()
	}
	if s.file != nil {
		return nil
	}
	if now.Before(s.retryAt) {
		return errPaused
	}
	err := r.begin(now)
	if err != nil {
		if s.file != nil {
			_ = os.Remove(s.file.Name()) // attempts on a full disk must not pile up files
		}
		r.fail(now, err)
	}
	return err
}

// begin begins a segment. What was dropped before is its first gap.
func (r *Recorder) begin(now time.Time) error {
	s, o := &r.writing, &r.options
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	r.prune(now)
	name := filepath.Join(o.Dir, now.UTC().Format(timeFormat)+"-"+o.fileReplica()+SegmentSuffix)
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- in the operator's directory
	if err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	*s = segments{file: file, begun: now, pause: s.pause, number: s.number + 1, drops: s.drops, header: Header{
		Format: FormatVersion, Program: build.Version(), Kubernetes: policy.CompatibilityVersion, CEL: build.ModuleVersion("github.com/google/cel-go"),
		Source: FromServer, Replica: o.Replica, Started: now.UTC(), Redaction: o.Redactor.Redaction(), Sampling: o.sampling(),
	}}
	if s.header.Config, err = r.writeConfigurations(); err != nil {
		return err
	}
	if s.writer, err = NewWriter(s, &s.header); err != nil {
		return err
	}
	for _, gap := range r.takeGaps() {
		if err := s.writer.Write(&Line{Gap: gap}); err != nil {
			return err
		}
	}
	if err := s.writer.Flush(); err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	if s.pause > 0 {
		s.pause = 0
		o.Log.Info("recording again", "dir", o.Dir)
		o.notify(nil)
	}
	r.update(func(s *Stats) { s.Err, s.Since = nil, time.Time{} })
	return nil
}

// append adds a review to the segment.
func (r *Recorder) append(e *entry) error {
	s := &r.writing
	text, left := s.encode(r.options.Redactor, e)
	err := left
	if left == nil || errors.Is(left, errTooLarge) || errors.Is(left, errCredential) {
		err = s.writer.WriteText(text)
	}
	s.dirty = true
	s.reviews++
	if err != nil {
		r.fail(time.Now(), err)
		return err
	}
	return left
}

// tend writes out what is in memory, and begins a segment if there was an error or a gap.
func (r *Recorder) tend() {
	s, now := &r.writing, time.Now()
	r.mu.Lock()
	waiting := len(r.gaps) > 0 || len(r.configurations) > 0
	r.mu.Unlock()
	if s.file == nil && waiting {
		_ = r.open(now) // the error is noted
		return
	}
	if s.file == nil {
		return
	}
	if s.isGone() {
		r.options.Log.Warn("the segment that was being written is gone, another one is begun", "segment", s.file.Name(),
			"hint", "give each replica a directory of its own, or raise --record-max-bytes")
		r.close()
		_ = r.open(now) // the error is noted
		return
	}
	for _, gap := range r.takeGaps() {
		r.logDrops(now, gap)
		if err := s.writer.Write(&Line{Gap: gap}); err != nil {
			r.fail(now, err)
			return
		}
		s.dirty = true
	}
	if _, err := r.writeConfigurations(); err != nil {
		r.fail(now, err)
		return
	}
	if now.Sub(s.pruned) > time.Minute {
		r.prune(now)
	}
	if !s.dirty {
		return
	}
	if err := s.writer.Flush(); err != nil {
		r.fail(now, err)
		return
	}
	s.dirty = false
}

// isGone reports whether the file was removed: by another replica that keeps to its bounds, or by an
// operator.
func (s *segments) isGone() bool {
	there, err := os.Stat(s.file.Name())
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	open, err := s.file.Stat()
	return err == nil && !os.SameFile(there, open)
}

// logDrops logs that reviews were too fast or too large, each at most once a minute. Failures of the disk
// are logged when they begin.
func (r *Recorder) logDrops(now time.Time, gap *Gap) {
	var message, hint string
	switch gap.Reason {
	case reasonQueue:
		message, hint = "they came faster than they could be written", "record a share of them, with sampling in --record-config"
	case reasonSize:
		message, hint = "with the objects that they looked up they are too large for a recording", "exclude them with match in --record-config, or use fewer or smaller params"
	default:
		return
	}
	s := &r.writing
	if s.drops == nil {
		s.drops = map[string]*drops{}
	}
	d := s.drops[gap.Reason]
	if d == nil {
		d = new(drops)
		s.drops[gap.Reason] = d
	}
	if d.since += gap.Reviews; now.Sub(d.logged) < time.Minute {
		return
	}
	r.options.Log.Warn("reviews were answered but not recorded: "+message, "dir", r.options.Dir, "reviews", d.since, "hint", hint)
	*d = drops{logged: now}
}

// close ends the segment.
func (r *Recorder) close() {
	s := &r.writing
	if s.file == nil {
		return
	}
	err := errors.Join(s.writer.Close(), s.file.Close())
	s.file, s.writer = nil, nil
	if err != nil {
		r.fail(time.Now(), err)
	}
}

// fail notes that nothing can be written. Another attempt is made after a pause.
func (r *Recorder) fail(now time.Time, err error) {
	s := &r.writing
	if s.file != nil {
		if s.writer != nil {
			_ = s.writer.Close() // it frees memory; the error is known
		}
		_ = s.file.Close() // the segment is damaged at its end
		s.file, s.writer = nil, nil
	}
	s.pause = min(max(2*s.pause, time.Second), maxPause)
	s.retryAt = now.Add(s.pause)
	first := false
	r.update(func(s *Stats) {
		if first = s.Err == nil; first {
			s.Since = now
		}
		s.Err = err
	})
	if first {
		r.options.Log.Error("recording failed, reviews are answered but not recorded", "dir", r.options.Dir, "error", err.Error(),
			"hint", "the recording goes on by itself when the directory can be written to")
		r.options.notify(err)
	}
}

func (o *Options) notify(err error) {
	if o.Notify != nil {
		o.Notify(err)
	}
}

// fileReplica returns the name of the server as a part of a file name.
func (o *Options) fileReplica() string {
	return strings.ReplaceAll(o.Replica, string(filepath.Separator), "-")
}

// sampling describes which reviews are recorded.
func (o *Options) sampling() string {
	if o.Rules == nil {
		return AllReviews
	}
	return cmp.Or(o.Rules.String(), AllReviews)
}

// writeConfigurations stores the configurations that were not stored yet, and returns the digest
// of the active one. One that cannot be stored is tried again.
func (r *Recorder) writeConfigurations() (active string, err error) {
	r.mu.Lock()
	waiting := r.configurations
	r.configurations, active = map[string][]byte{}, r.active
	r.mu.Unlock()
	for digest, documents := range waiting {
		if err := r.options.writeConfiguration(digest, documents); err != nil {
			r.mu.Lock()
			maps.Copy(r.configurations, waiting)
			r.mu.Unlock()
			return active, err
		}
		delete(waiting, digest)
	}
	return active, nil
}

// writeConfiguration stores a configuration, unless it is stored already. Its file is whole or not there.
func (o *Options) writeConfiguration(digest string, documents []byte) error {
	name := filepath.Join(o.Dir, ConfigurationName(digest))
	if info, err := os.Stat(name); err == nil && info.Size() == int64(len(documents)) {
		return nil
	}
	temporary := name + "." + o.fileReplica() + ".tmp"
	err := os.WriteFile(temporary, documents, 0o600)
	if err == nil {
		err = os.Rename(temporary, name)
	}
	if err != nil {
		_ = os.Remove(temporary) // it may not be there
	}
	return err //nolint:wrapcheck // it names the path
}

// prune removes the oldest segments and configurations until the directory keeps to its bounds.
// Another replica may do the same at the same time.
func (r *Recorder) prune(now time.Time) {
	o, s := &r.options, &r.writing
	s.pruned = now
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return // opening a segment tells why
	}
	own, active := "", r.touchActive(now)
	if s.file != nil {
		own = filepath.Base(s.file.Name())
	}
	var recorded, configurations []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		switch name := entry.Name(); {
		case err != nil || name == own || name == active:
		case strings.HasSuffix(name, SegmentSuffix):
			recorded = append(recorded, info)
		case strings.HasPrefix(name, configurationPrefix) && strings.HasSuffix(name, configurationSuffix):
			configurations = append(configurations, info)
		}
	}
	bytes := o.remove(recorded, o.MaxBytes-3*o.MaxBytes/segmentParts, now.Add(-o.MaxAge), o.open(recorded, now)) +
		// A segment may be written after the configuration that it began with has been replaced.
		o.remove(configurations, o.MaxBytes/segmentParts, now.Add(-o.MaxAge-2*maxSegmentAge), nil)
	r.update(func(s *Stats) { s.Bytes = bytes })
}

// open returns the names of the segments that other replicas may be writing: the last one of each, if
// it has changed within maxSegmentAge.
func (o *Options) open(recorded []fs.FileInfo, now time.Time) map[string]bool {
	last := map[string]fs.FileInfo{}
	for _, info := range recorded {
		replica := info.Name()[min(len(timeFormat), len(info.Name())):]
		if replica == "-"+o.fileReplica()+SegmentSuffix || now.Sub(info.ModTime()) > maxSegmentAge {
			continue
		}
		if other := last[replica]; other == nil || other.Name() < info.Name() {
			last[replica] = info
		}
	}
	names := map[string]bool{}
	for _, info := range last {
		names[info.Name()] = true
	}
	return names
}

// remove removes the oldest files until the rest has at most so many bytes and is younger than a
// time, and returns the bytes of the rest. Those that are open are removed last.
func (o *Options) remove(files []fs.FileInfo, most int64, after time.Time, open map[string]bool) int64 {
	rank := func(info fs.FileInfo) int {
		if open[info.Name()] {
			return 1
		}
		return 0
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(rank(a)-rank(b), a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	var total int64
	for _, info := range files {
		total += info.Size()
	}
	for _, info := range files {
		if total <= most && info.ModTime().After(after) {
			break
		}
		if os.Remove(filepath.Join(o.Dir, info.Name())) == nil {
			total -= info.Size()
		}
	}
	return total
}

// ConfigurationName returns the name of the file that holds the configuration of a digest.
func ConfigurationName(digest string) string {
	return configurationPrefix + digest + configurationSuffix
}

// touchActive returns the name of the file that holds the active configuration. The time of the file
// becomes that of the last review that the configuration may have decided, so that it is removed
// after them. A file that is gone is written again.
func (r *Recorder) touchActive(now time.Time) string {
	r.mu.Lock()
	digest, documents := r.active, r.documents
	r.mu.Unlock()
	name := ConfigurationName(digest)
	if err := os.Chtimes(filepath.Join(r.options.Dir, name), now, now); errors.Is(err, fs.ErrNotExist) && digest != "" {
		r.mu.Lock()
		r.configurations[digest] = documents
		r.mu.Unlock()
	}
	return name
}
