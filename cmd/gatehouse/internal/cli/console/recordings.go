package console

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/replay"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

const (
	// maxRows bounds the decisions in memory, maxMessage what a message and each warning takes of it, in bytes, and maxTexts their number.
	maxRows, maxMessage, maxTexts = 100_000, 1 << 10, 20
	// liveTime is how long after its last change a recording counts as being written.
	liveTime = time.Minute
	// readPause is how many times as long as it was read a file that grows is left alone.
	readPause = 3
)

// row is a review of a recording, as record show prints it.
type row struct {
	ID, Endpoint, User, Operation, Kind, SubResource, Namespace, Name string

	Time                    time.Time
	DryRun                  bool
	Took, Decision, Message string
	Warnings                []string
	Causes                  []cause

	file string
}

// cause is a rule that refused or warned, or a profile that was injected.
type cause struct{ Kind, Name, Rule, Effect string }

// Messages returns the lines of the message and the warnings.
func (r *row) Messages() (lines []string) {
	for _, text := range append([]string{r.Message}, r.Warnings...) {
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// reason is a policy or profile that took part in a decision, with its rules and what it says; without a name, what the answer says else.
type reason struct {
	Kind, Name, Effect string
	Rules, Texts       []string
}

// Reasons returns what led to the decision: each policy once, with each line of the answer about it once.
func (r *row) Reasons() (all []reason) {
	for _, c := range r.Causes {
		i := slices.IndexFunc(all, func(of reason) bool { return of.Kind == c.Kind && of.Name == c.Name && of.Effect == c.Effect })
		if i < 0 {
			i, all = len(all), append(all, reason{Kind: c.Kind, Name: c.Name, Effect: c.Effect})
		}
		if c.Rule != "" {
			all[i].Rules = append(all[i].Rules, c.Rule)
		}
	}
	var rest reason
	for _, line := range r.Messages() {
		// A line begins with the policy, and may name its binding behind it.
		of, text, first := &rest, line, len(line)
		for i := range all {
			for _, quote := range []string{"'", `"`} {
				name := quote + all[i].Name + quote
				if at := strings.Index(line, name); at >= 0 && at < first {
					of, first = &all[i], at
					if _, behind, found := strings.Cut(line[at+len(name):], ": "); found {
						text = behind
					}
				}
			}
		}
		of.Texts = append(of.Texts, text)
	}
	if len(rest.Texts) > 0 {
		all = append(all, rest)
	}
	return all
}

// bound bounds the memory that a row takes. Names are bounded by record show.
func (r *row) bound() {
	r.Message = truncate.Bytes(r.Message, maxMessage)
	r.Warnings = r.Warnings[:min(len(r.Warnings), maxTexts)]
	for i := range r.Warnings {
		r.Warnings[i] = truncate.Bytes(r.Warnings[i], maxMessage)
	}
	r.Causes = r.Causes[:min(len(r.Causes), maxTexts)]
}

// recordings has the newest decisions of recordings in memory. A file is read again when it has grown and a page looks.
type recordings struct {
	mu    sync.Mutex
	files map[string]*recordingFile
	// rows are in the order of time. The slice is never written to.
	rows []*row
	// isDropped reports whether older rows were left out.
	isDropped, isReading bool
}

// recordingFile is a file of a recording, as it was when it was read last.
type recordingFile struct {
	// info is nil until then.
	info    os.FileInfo
	problem string
	// next is when it may be read again.
	next time.Time
}

// recordingPaths returns the recordings that are shown: those of the command line, or a directory for those of the replicas of the
// cluster.
func (c *console) recordingPaths() []string {
	switch {
	case len(c.recordings) > 0:
		return c.recordings
	case c.isOffline():
		return nil
	default:
		return []string{filepath.Join(c.work, "recordings")}
	}
}

// decisionsView is what is known of the decisions.
type decisionsView struct {
	// Rows are in the order of time.
	Rows []*row
	// IsDropped reports whether there are older ones that are not in memory.
	IsDropped bool
	// Read and Files are numbers of files. IsLive reports whether any is being written.
	Read, Files int
	IsLive      bool
	Problems    []string
	// Mirror says what is known of the replicas' recordings.
	Mirror []string
}

// IsReady reports whether everything was read that was there.
func (v *decisionsView) IsReady() bool { return v.Read == v.Files }

// lookAtDecisions returns what is known, and reads files that are new or have changed in the background.
func (c *console) lookAtDecisions() *decisionsView {
	v := &decisionsView{Mirror: c.followReplicas()}
	sources, problems := replay.Sources(c.recordingPaths())
	l := &c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files == nil {
		l.files = map[string]*recordingFile{}
	}
	if !c.isMirrored() { // there may be none yet
		for _, err := range problems {
			v.Problems = append(v.Problems, err.Error())
		}
	}
	found, changed := map[string]os.FileInfo{}, []string(nil)
	for i := range sources {
		path := filepath.FromSlash(sources[i].Name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		found[path] = info
		f := l.files[path]
		if f == nil {
			f = &recordingFile{}
			l.files[path] = f
		}
		if f.info == nil || (info.Size() != f.info.Size() || !info.ModTime().Equal(f.info.ModTime())) && time.Now().After(f.next) {
			changed = append(changed, path)
		}
		if v.Files++; f.info != nil {
			v.Read++
		}
		v.IsLive = v.IsLive || time.Since(info.ModTime()) < liveTime
		if f.problem != "" {
			v.Problems = append(v.Problems, f.problem)
		}
	}
	for path := range l.files {
		if found[path] == nil {
			delete(l.files, path)
			l.replace(path, nil)
		}
	}
	v.Rows, v.IsDropped = l.rows, l.isDropped
	slices.SortFunc(changed, func(a, b string) int { return found[b].ModTime().Compare(found[a].ModTime()) })
	if !l.isReading && len(changed) > 0 {
		l.isReading = true
		c.background.Go(func() {
			for _, path := range changed {
				c.readRecording(path, found[path])
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.isReading = false
		})
	}
	return v
}

// readRecording reads a file that was like this when it was found.
func (c *console) readRecording(path string, info os.FileInfo) {
	l, begin := &c.log, time.Now()
	rows, problem := c.showRecording(path)
	if c.ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.files[path]; f != nil {
		f.info, f.problem, f.next = info, problem, time.Now().Add(readPause*time.Since(begin))
		l.replace(path, rows)
	}
}

// replace replaces the rows of a file. The caller has the lock.
func (l *recordings) replace(path string, rows []*row) {
	all := slices.Concat(slices.DeleteFunc(slices.Clone(l.rows), func(r *row) bool { return r.file == path }), rows)
	slices.SortStableFunc(all, func(a, b *row) int { return a.Time.Compare(b.Time) })
	if len(all) > maxRows {
		all, l.isDropped = slices.Clone(all[len(all)-maxRows:]), true
	}
	l.rows = all
}

// showRecording returns what record show prints of a file, the newest rows if there are too many.
func (c *console) showRecording(path string) (rows []*row, problem string) {
	in, out := io.Pipe()
	messages := &limitedBuffer{left: maxOutput}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(c.ctx, []string{"record", "show", "-o", "json", path}, cli.Streams{In: bytes.NewReader(nil), Out: out, Err: messages})
		_ = out.Close() // it returns nil
	}()
	for lines := json.NewDecoder(in); ; {
		one := &row{file: path}
		if err := lines.Decode(one); err != nil {
			_ = in.CloseWithError(err) // it returns nil
			break
		}
		one.bound()
		if rows = append(rows, one); len(rows) == 2*maxRows {
			rows = slices.Clone(rows[maxRows:])
		}
	}
	<-done
	return rows, strings.TrimSpace(strings.ReplaceAll(messages.String(), "gatehouse: ", ""))
}

// fileNamed returns the path of a recording with this name, "" for none.
func (c *console) fileNamed(name string) string {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	for path := range c.log.files {
		if filepath.Base(path) == name {
			return path
		}
	}
	return ""
}

// replayWords returns the command that replays recordings. Policies and profiles decide nothing about logins.
func replayWords(paths []string, configuration ...string) []string {
	return slices.Concat([]string{"replay"}, configuration, []string{"--endpoint", "mutate", "--endpoint", "validate"}, paths)
}

// replayTimeout bounds a replay while the browser waits.
const replayTimeout = 5 * time.Minute

// replayCandidate replays the recordings with a candidate.
func (c *console) replayCandidate(ctx context.Context, x *candidate) (*commandOutput, error) {
	paths := c.recordingPaths()
	if c.isMirrored() {
		c.followReplicas()
	}
	if sources, _ := replay.Sources(paths); len(sources) == 0 {
		return nil, web.BadRequest("there is no recording to replay (hint: gatehouse console --recording FILE; those of replicas are read while the page Decisions is open)")
	}
	return c.execute(ctx, nil, replayWords(paths, "--config", x.dir)...).show(x.cleanText), nil
}
