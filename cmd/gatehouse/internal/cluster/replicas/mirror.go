package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server/debug"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

const (
	// MirrorBytes is how much a Mirror keeps by default.
	MirrorBytes = 1 << 30

	// mirrorEvery is the time between two passes, while a page shows them.
	mirrorEvery = 2 * time.Second
	// lookTime is how long a look lasts.
	lookTime = time.Minute
	// grows is by how many bytes a segment may grow between its being listed and fetched.
	grows = 16 << 20
	// fetchers bounds the replicas that are read at one time.
	fetchers = 4
)

// Mirror keeps a directory in step with the recordings of all replicas. It has the newest segments, up
// to a number of bytes, and never changes what it has of one: a segment grows, or is removed.
type Mirror struct {
	// Dir is the directory. It is made with the first pass.
	Dir string
	// MaxBytes bounds it, unless it is 0.
	MaxBytes int64
	// Since excludes segments that were last written before, unless it is zero.
	Since time.Time
	// Now is the clock.
	Now func() time.Time

	cluster *Cluster

	mu        sync.Mutex
	running   bool
	lookUntil time.Time
	state     MirrorState
}

// MirrorState is what a Mirror has.
type MirrorState struct {
	// At is when this was noted, zero before the first pass.
	At time.Time
	// Replicas is the number of servers that run, and Recording that of those which record.
	Replicas, Recording int
	// Off are the errors of those which do not.
	Off []error
	// Segments and Bytes are those in the directory, and LeftOut is the number of segments that have no place there.
	Segments, LeftOut int
	Bytes             int64
	// Problems are what could not be read in the last pass.
	Problems []error
}

// NewMirror returns a Mirror of the recordings in a cluster.
func NewMirror(cluster *Cluster, dir string, now func() time.Time) *Mirror {
	return &Mirror{Dir: dir, MaxBytes: MirrorBytes, Now: now, cluster: cluster}
}

// State returns what the Mirror has.
func (m *Mirror) State() MirrorState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Look makes the Mirror follow the replicas for the next minute. The context is that of the program, and
// background runs a function in a goroutine that the program waits for.
func (m *Mirror) Look(ctx context.Context, background func(func())) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lookUntil = m.Now().Add(lookTime)
	if m.running {
		return
	}
	m.running = true
	background(func() {
		for m.mayRun(ctx) {
			m.Sync(ctx)
			sleep.Context(ctx, mirrorEvery)
		}
	})
}

// mayRun reports whether the last Look was less than a minute ago.
func (m *Mirror) mayRun(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = ctx.Err() == nil && m.Now().Before(m.lookUntil)
	return m.running
}

// mirrored is a segment, in the cluster, in the directory or in both.
type mirrored struct {
	debug.RecordingFile

	// from is the replica that has it, nil if none is known to have it, and local its size in the directory, -1 if it is not there.
	from  *Replica
	local int64
}

// Sync makes one pass over all replicas.
func (m *Mirror) Sync(ctx context.Context) {
	p := &pass{mirror: m, files: map[string]*mirrored{}}
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		p.problem(fmt.Errorf("the directory of the mirror: %w", patherr.Cause(err)))
	} else {
		servers := p.servers(ctx)
		Each(servers, func(r *Replica) { p.list(ctx, r) })
		p.listLocal()
		kept := p.choose()
		Each(servers, func(r *Replica) { p.fetch(ctx, r, kept) })
		p.count(kept)
	}
	p.state.At = m.Now()
	slices.SortFunc(p.state.Problems, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = p.state
}

// pass is the state of Sync.
type pass struct {
	mirror *Mirror

	mu    sync.Mutex
	files map[string]*mirrored
	state MirrorState
}

func (p *pass) problem(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Problems = append(p.state.Problems, err)
}

// servers returns the replicas that run.
func (p *pass) servers(ctx context.Context) []*Replica {
	pods, err := p.mirror.cluster.Pods(ctx)
	var servers []*Replica
	if err == nil {
		servers, err = p.mirror.cluster.Running(pods)
	}
	if err != nil {
		p.problem(err)
	}
	p.state.Replicas = len(servers)
	return servers
}

// Each runs a function for each replica, some at a time.
func Each(servers []*Replica, run func(*Replica)) {
	turns := make(chan struct{}, fetchers)
	var group sync.WaitGroup
	for _, r := range servers {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			run(r)
		})
	}
	group.Wait()
}

// list lists the segments of a replica. Replicas that share a directory have the same ones: then the one is asked that has most.
func (p *pass) list(ctx context.Context, r *Replica) {
	files, err := r.List(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("replica %s: %w", r.Name, err)
		if isNotFound(err) {
			p.state.Off = append(p.state.Off, err)
		} else {
			p.state.Problems = append(p.state.Problems, err)
		}
		return
	}
	p.state.Recording++
	for _, file := range files {
		known := p.files[file.Name]
		if record.IsSegmentName(file.Name) && file.Bytes >= 0 && !file.Modified.Before(p.mirror.Since) && (known == nil || known.Bytes < file.Bytes) {
			p.files[file.Name] = &mirrored{file, r, -1}
		}
	}
}

// isNotFound reports whether a replica has answered that there is no recording, or no such file.
func isNotFound(err error) bool {
	answer, ok := errors.AsType[*answerError](err)
	return ok && answer.code == http.StatusNotFound
}

// listLocal notes what is in the directory.
func (p *pass) listLocal() {
	entries, err := os.ReadDir(p.mirror.Dir)
	if err != nil {
		p.problem(fmt.Errorf("the directory of the mirror: %w", patherr.Cause(err)))
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !record.IsSegmentName(entry.Name()) {
			continue // it was just removed, or is not of a recording
		}
		f := p.files[entry.Name()]
		if f == nil {
			f = &mirrored{RecordingFile: debug.RecordingFile{Name: entry.Name()}}
			p.files[entry.Name()] = f
		}
		f.local = info.Size()
	}
}

// choose returns the segments that have a place in the directory, the newest first, and removes the others. Names begin with a time.
func (p *pass) choose() []*mirrored {
	all := slices.SortedFunc(maps.Values(p.files), func(a, b *mirrored) int { return strings.Compare(b.Name, a.Name) })
	left := p.mirror.MaxBytes
	if left == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(f *mirrored) bool {
		if left -= max(f.Bytes, f.local); left >= 0 {
			return false
		}
		if f.local >= 0 {
			_ = os.Remove(filepath.Join(p.mirror.Dir, f.Name)) // the next pass tries again
		}
		p.state.LeftOut++
		return true
	})
}

// fetch fetches what the segments of a replica lack.
func (p *pass) fetch(ctx context.Context, r *Replica, files []*mirrored) {
	for _, f := range files {
		if f.from != r || f.local >= f.Bytes || ctx.Err() != nil {
			continue
		}
		path := filepath.Join(p.mirror.Dir, f.Name)
		err := r.Resume(ctx, f.Name, path, f.Bytes-max(f.local, 0)+grows)
		if err != nil && !errors.Is(err, errTooLarge) && !isNotFound(err) { // it was just removed, or the next pass goes on with it
			p.problem(fmt.Errorf("replica %s: %s: %w", r.Name, f.Name, err))
		}
		if info, err := os.Stat(path); err == nil {
			_ = os.Chtimes(path, time.Time{}, f.Modified) // the newest segments are shown first
			f.local = info.Size()
		}
	}
}

// count notes what is in the directory after the pass.
func (p *pass) count(files []*mirrored) {
	for _, f := range files {
		if f.local >= 0 {
			p.state.Segments++
			p.state.Bytes += f.local
		}
	}
}

// Resume writes what a file at a path lacks, and at most a number of bytes. It tries once.
func (r *Replica) Resume(ctx context.Context, name, path string, most int64) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) // #nosec G304 -- the path is made by the caller
	if err != nil {
		return fmt.Errorf("%s: %w", path, patherr.Cause(err))
	}
	info, err := out.Stat()
	if err == nil {
		err = r.part(ctx, name, out, info.Size(), most)
	}
	if closed := out.Close(); err == nil && closed != nil {
		err = fmt.Errorf("%s: %w", path, patherr.Cause(closed))
	}
	return err
}

// Text says what a Mirror has, for people: a line for each fact.
func (s *MirrorState) Text() []string {
	if s.At.IsZero() {
		return []string{"Fetching the recordings of the replicas."}
	}
	const mib = 1 << 20
	lines := []string{fmt.Sprintf("Recordings of %d of %s: %s, %.1f MiB.", s.Recording, diagnostic.Count(s.Replicas, "replica"), diagnostic.Count(s.Segments, "segment"), float64(s.Bytes)/mib)}
	if s.Replicas > 0 && s.Recording == 0 && len(s.Problems) == 0 {
		lines = append(lines, "No replica records (hint: gatehouse serve --record DIR).")
	}
	if s.LeftOut > 0 {
		lines = append(lines, fmt.Sprintf("Not fetched, because there is no space for them: %s (hint: gatehouse record get fetches everything).", diagnostic.Count(s.LeftOut, "older segment")))
	}
	for _, err := range s.Problems {
		lines = append(lines, "Not read: "+diagnostic.OneLine(err.Error()))
	}
	return lines
}
