package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/build"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
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

	// A Reader has the objects of a segment in memory. Those of a segment are bounded by segmentObjects and segmentBytes, and
	// those that one review has looked up by lookedObjects and lookedBytes, whether or not they are new.
	segmentObjects, segmentBytes = 10_000, 16 << 20
	lookedObjects, lookedBytes   = 5000, 8 << 20
	// keptBuffer is the size of the largest buffer that is kept for the next review, in bytes.
	keptBuffer = 1 << 20
	// window is the zstd window of a segment, in bytes: many reviews of a rollout.
	window = 1 << 20

	timeFormat = "20060102T150405.000Z"
)

// segment is the state of writing. It belongs to Run.
type segment struct {
	file    *os.File
	writer  *zstd.Encoder
	size    int64 // bytes on disk
	reviews int
	begun   time.Time
	dirty   bool
	// configurations are those that the segment has. Objects has the digests of the objects by their address, which is not used again
	// while the map refers to them, and of ConfigMaps by their content.
	configurations map[string]bool
	objects        map[any]object
	digests        map[string]bool
	objectBytes    int
	// looked and lookedBytes are about the current review.
	looked, lookedBytes int
	lines               []byte

	// While nothing can be written, the next attempt is at retryAt.
	retryAt time.Time
	pause   time.Duration
	// pruned is when prune was called last.
	pruned time.Time
}

// object is an object that a segment has, and its size in bytes.
type object struct {
	digest string
	bytes  int
}

// Write implements io.Writer for the compressor.
func (s *segment) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.size += int64(n)
	return n, err //nolint:wrapcheck // an os.File names its path
}

// NewWriter returns the compressor of a segment.
func NewWriter(file io.Writer) (*zstd.Encoder, error) {
	return zstd.NewWriter(file, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window)) //nolint:wrapcheck // it does not fail
}

// write records one review.
func (r *Recorder) write(t *Trace) {
	err := r.open(time.Now())
	if err == nil {
		err = r.append(t)
	}
	switch {
	case err == nil:
		r.update(func(s *Stats) { s.Recorded++ })
	case errors.Is(err, errTooLarge):
		r.drop(t.review.Time, reasonSize)
	default:
		r.drop(t.review.Time, reasonDisk)
	}
}

// append adds a review to the segment, with the objects and the configuration that are new in it.
func (r *Recorder) append(t *Trace) error {
	s := &r.writing
	if cap(s.lines) > keptBuffer {
		s.lines = nil
	}
	err := r.encode(t)
	s.dirty = true
	s.reviews++
	_, failed := s.writer.Write(s.lines)
	if s.lines = s.lines[:0]; failed != nil {
		r.fail(time.Now(), failed)
		return failed
	}
	return err
}

// encode appends the lines of a review. With an error they are those of objects alone, which later reviews refer to.
func (r *Recorder) encode(t *Trace) error {
	s, redactor, one := &r.writing, r.options.Rules.Redactor, &t.review
	if digest := one.Config; digest != "" && !s.configurations[digest] {
		if documents := r.documents(digest); documents != "" {
			if err := s.add(&Line{Config: &Configuration{digest, documents}}); err != nil {
				return err
			}
		}
		s.configurations[digest] = true
	}
	if t.traced {
		if err := s.lookups(redactor, &t.lookups); err != nil {
			return err
		}
	}
	begin := len(s.lines)
	var found Found
	text := s.lines
	text = append(text, `{"review":{"request":`...)
	var err error
	switch {
	case len(t.body) == 0:
		text = append(text, "null"...)
	case t.isAccess:
		text, err = appendAccess(text, t.body)
	default:
		text, found, err = redactor.Request(text, t.body, t.isSecret)
	}
	if err != nil {
		return err
	}
	text = append(text, `,"response":`...)
	switch {
	case len(t.answer) == 0:
		text = append(text, "null"...)
	case one.Token != nil || t.isAccess:
		text = redactor.StatusAnswer(text, t.answer)
	default:
		if text, err = redactor.Answer(text, t.answer, &found); err != nil {
			return err
		}
	}
	one.Redacted = found.Paths
	if t.traced {
		one.Lookups = &t.lookups
	}
	rest, err := json.Marshal(one) // request and response are nil
	if err != nil {
		return fmt.Errorf("encode a review: %w", err)
	}
	text = append(append(text, ','), rest[1:]...)
	text = append(text, "}\n"...)
	if len(text)-begin > maxLine {
		return errTooLarge
	}
	s.lines = text
	return nil
}

// AppendLine appends a line with its end.
func AppendLine(dst []byte, line *Line) ([]byte, error) {
	text, err := json.Marshal(line)
	if err != nil {
		return dst, fmt.Errorf("encode a line of the recording: %w", err)
	}
	return append(append(dst, text...), '\n'), nil
}

// add appends a line.
func (s *segment) add(line *Line) (err error) {
	s.lines, err = AppendLine(s.lines, line)
	return err
}

// lookups sets the digests of what was looked up, and appends the objects that are new.
func (s *segment) lookups(r *Redactor, l *Lookups) (err error) {
	s.looked, s.lookedBytes = 0, 0
	for i := range l.Namespaces {
		if n := &l.Namespaces[i]; n.found != nil && err == nil {
			n.Object, err = s.object(n.found, func() ([]byte, error) {
				bare := *n.found
				bare.ManagedFields, bare.Kind, bare.APIVersion = nil, "Namespace", "v1"
				return r.encode(&bare)
			})
		}
	}
	for i := range l.Objects {
		if o := &l.Objects[i]; o.found != nil && err == nil {
			o.Object, err = s.object(o.found, func() ([]byte, error) { return r.encode(o.found.Object) })
		}
	}
	for i := range l.Lists {
		list := &l.Lists[i]
		for _, found := range list.found {
			if err == nil {
				var digest string
				digest, err = s.object(found, func() ([]byte, error) { return r.encode(found.Object) })
				list.Objects = append(list.Objects, digest)
			}
		}
	}
	for i := range l.ConfigMaps {
		if c := &l.ConfigMaps[i]; c.known && err == nil {
			var text []byte
			text, err = r.encode(&corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Data: c.data,
			})
			if err == nil { // each lookup returns new maps
				c.Object, err = s.object(string(text), func() ([]byte, error) { return text, nil })
			}
		}
	}
	return err
}

// encode returns an object as JSON. Params and presets are configuration, which a replay cannot do without; of Secrets it must.
func (r *Redactor) encode(object any) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode an object: %w", err)
	}
	if rawjson.Value(text).Get("kind").Is("Secret") {
		return r.Object(text), nil
	}
	return r.walk(nil, text, r.template).dst, nil
}

// object returns the digest of an object, whose line is appended if it is new.
func (s *segment) object(of any, encode func() ([]byte, error)) (string, error) {
	known, met := s.objects[of]
	var text []byte
	if !met {
		var err error
		if text, err = encode(); err != nil {
			return "", err
		}
		sum := sha256.Sum256(text)
		known = object{hex.EncodeToString(sum[:16]), len(text)}
		s.objects[of] = known
	}
	s.looked++
	if s.lookedBytes += known.bytes; s.looked > lookedObjects || s.lookedBytes > lookedBytes {
		return "", errTooLarge
	}
	if s.digests[known.digest] {
		return known.digest, nil
	}
	if text == nil { // it was too large for the review that met it
		var err error
		if text, err = encode(); err != nil {
			return "", err
		}
	}
	s.digests[known.digest] = true
	s.objectBytes += known.bytes
	s.lines = append(append(append(append(append(s.lines, `{"object":{"digest":"`...), known.digest...), `","value":`...), text...), "}}\n"...)
	return known.digest, nil
}

// isFull reports whether a segment should end.
func (r *Recorder) isFull(now time.Time) bool {
	s := &r.writing
	return s.size > r.options.MaxBytes/segmentParts || now.Sub(s.begun) > maxSegmentAge || s.reviews >= MaxSegmentReviews || len(s.objects) >= segmentObjects || s.objectBytes >= segmentBytes
}

// errPaused is returned while nothing can be written.
var errPaused = errors.New("the directory cannot be written to")

// open begins a segment, unless there is one with space for more.
func (r *Recorder) open(now time.Time) error {
	s := &r.writing
	if s.file != nil && r.isFull(now) {
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
	replica := strings.ReplaceAll(o.Replica, string(filepath.Separator), "-")
	name := filepath.Join(o.Dir, now.UTC().Format(timeFormat)+"-"+replica+SegmentSuffix)
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- in the operator's directory
	if err != nil {
		return err //nolint:wrapcheck // it names the path
	}
	*s = segment{
		file: file, begun: now, pause: s.pause, pruned: s.pruned, lines: s.lines[:0],
		configurations: map[string]bool{}, objects: map[any]object{}, digests: map[string]bool{},
	}
	if s.writer, err = NewWriter(s); err != nil {
		return err
	}
	header := &Header{
		Format: FormatVersion, Program: build.Version(), Kubernetes: policy.CompatibilityVersion, CEL: build.ModuleVersion("github.com/google/cel-go"),
		Replica: o.Replica, Started: now.UTC(), Redaction: o.Rules.Redactor.Redaction(),
	}
	if o.Rules.Share < 1 {
		header.Share = max(o.Rules.Share, 1e-9) // 0 is all
	}
	if err = s.add(&Line{Header: header}); err == nil {
		err = r.flush()
	}
	if err != nil {
		return err
	}
	if s.pause > 0 {
		s.pause = 0
		// Logged when reviews are recorded again after a failure.
		o.Log.Info("recording again", "dir", o.Dir)
	}
	r.update(func(s *Stats) { s.Err, s.Since = nil, time.Time{} })
	return nil
}

// flush writes out the lines that are waiting, and the gaps.
func (r *Recorder) flush() error {
	s := &r.writing
	for _, gap := range r.takeGaps() {
		if err := s.add(&Line{Gap: gap}); err != nil {
			return err
		}
	}
	if len(s.lines) > 0 {
		if _, err := s.writer.Write(s.lines); err != nil {
			return err //nolint:wrapcheck // it names the path
		}
		s.lines = s.lines[:0]
	}
	s.dirty = false
	return s.writer.Flush() //nolint:wrapcheck // it names the path
}

// tend writes out what is in memory, and begins a segment if there was an error or a gap.
func (r *Recorder) tend(now time.Time) {
	s := &r.writing
	r.mu.Lock()
	waiting := len(r.gaps) > 0
	r.mu.Unlock()
	if s.file != nil {
		if _, err := os.Stat(s.file.Name()); errors.Is(err, fs.ErrNotExist) {
			// Logged when somebody removed the file to which reviews are recorded.
			r.options.Log.Warn("the segment that was being written is gone, another one is begun", "segment", s.file.Name())
			r.close()
			waiting = true
		}
	}
	switch {
	case s.file == nil && waiting:
		_ = r.open(now) // the error is noted
	case s.file != nil && (waiting || s.dirty):
		if err := r.flush(); err != nil {
			r.fail(now, err)
		}
	}
	if s.file != nil && now.Sub(s.pruned) > time.Minute {
		r.prune(now)
	}
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
		// Logged when the directory of --record cannot be written.
		r.options.Log.Error("recording failed, reviews are answered but not recorded", "dir", r.options.Dir, "error", err.Error(),
			"hint", "the recording goes on by itself when the directory can be written to")
	}
}

// prune removes the oldest segments until the directory keeps to its bounds. Other replicas may do the same in the same directory: what
// they write was changed last.
func (r *Recorder) prune(now time.Time) {
	o, s := &r.options, &r.writing
	s.pruned = now
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return // opening a segment tells why
	}
	var files []fs.FileInfo
	var total int64
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !IsSegmentName(entry.Name()) {
			continue
		}
		total += info.Size()
		if s.file == nil || entry.Name() != filepath.Base(s.file.Name()) {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	for _, info := range files {
		if total <= o.MaxBytes-2*o.MaxBytes/segmentParts && now.Sub(info.ModTime()) < o.MaxAge {
			break
		}
		if os.Remove(filepath.Join(o.Dir, info.Name())) == nil {
			total -= info.Size()
		}
	}
	r.update(func(s *Stats) { s.Bytes = total })
}
