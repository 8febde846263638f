// Package index finds reviews in recordings without reading them again: it keeps a row of each review in memory, and the rest
// in a file beside the recording.
//
// An Index reads recordings that grow, as those that a server writes, and it can be asked while it reads.
package index

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/patherr"
)

// poll is how often the Index looks for what was added to files.
const poll = 500 * time.Millisecond

// Options are what an Index needs.
type Options struct {
	// Paths are files of recordings, and directories with segments, which may be empty at first.
	Paths []string
	// Fallback is a directory for temporary files. It is required.
	Fallback string
}

// Index is an index of recordings. It is safe for concurrent use.
type Index struct {
	options Options
	table   *table
	// slots bound the frames that are decoded at a time.
	slots *semaphore.Weighted

	mu      sync.Mutex
	files   map[string]*file
	started bool
	// problems are those of Options.Paths.
	problems map[string]string
}

// New returns an Index without rows. Run fills it.
func New(o Options) *Index {
	return &Index{
		options: o, table: newTable(), slots: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))), files: map[string]*file{}, problems: map[string]string{},
	}
}

// Run reads the recordings, and follows what is written to them, until the context ends.
func (x *Index) Run(ctx context.Context) {
	defer x.close()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		x.look(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// close waits for the goroutines, which the end of their context ends, and closes files.
func (x *Index) close() {
	for _, f := range x.sorted() {
		f.cancel()
		<-f.ended
		x.table.mu.Lock()
		for _, one := range f.opened {
			closeText(one)
		}
		x.table.mu.Unlock()
	}
}

// look finds files that are new, have grown, or are gone.
func (x *Index) look(ctx context.Context) {
	found, problems := x.list()
	x.mu.Lock()
	var gone []*file
	for path, f := range x.files {
		if info := found[path]; info == nil || !os.SameFile(info, f.info) || info.Size() < f.size.Load() {
			gone = append(gone, f)
			delete(x.files, path)
		}
	}
	x.mu.Unlock()
	for _, f := range gone {
		f.cancel()
		<-f.ended
		f.drop(func(*frame) bool { return true })
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.started, x.problems = true, problems
	newest := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(found[b].ModTime().Compare(found[a].ModTime()), cmp.Compare(b, a))
	})
	for _, path := range newest {
		info := found[path]
		f := x.files[path]
		switch {
		case f == nil:
			x.add(ctx, path, info)
		case info.Size() > f.size.Load():
			f.size.Store(info.Size())
			select {
			case f.grown <- struct{}{}:
			default:
			}
		}
	}
}

// add begins to read a file.
func (x *Index) add(ctx context.Context, path string, info os.FileInfo) {
	f := &file{index: x, path: path, info: info, grown: make(chan struct{}, 1), ended: make(chan struct{})}
	f.size.Store(info.Size())
	ctx, f.cancel = context.WithCancel(ctx)
	x.files[path] = f
	go f.run(ctx)
}

// list returns the files of the paths. Index files of segments that are gone are removed.
func (x *Index) list() (found map[string]os.FileInfo, problems map[string]string) {
	found, problems = map[string]os.FileInfo{}, map[string]string{}
	for _, path := range x.options.Paths {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			if info.Mode().IsRegular() {
				found[path] = info
			} else {
				problems[path] = "it is not a file"
			}
			continue
		}
		var entries []os.DirEntry
		if err == nil {
			entries, err = os.ReadDir(path)
		}
		if err != nil {
			problems[path] = "cannot be read: " + patherr.Cause(err).Error()
		}
		names := map[string]bool{}
		for _, entry := range entries {
			info, gone := entry.Info() // a server may have removed it meanwhile
			if gone == nil && info.Mode().IsRegular() && record.IsSegmentName(entry.Name()) {
				names[entry.Name()], found[filepath.Join(path, entry.Name())] = true, info
			}
		}
		for _, entry := range entries {
			if of, ok := strings.CutSuffix(entry.Name(), record.IndexSuffix); ok && record.IsSegmentName(of) && !names[of] {
				_ = os.Remove(filepath.Join(path, entry.Name())) // another attempt comes soon
			}
		}
	}
	return found, problems
}

// sorted returns the files in the order of their paths.
func (x *Index) sorted() []*file {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.SortedFunc(maps.Values(x.files), func(a, b *file) int { return cmp.Compare(a.path, b.path) })
}

// State says how far an Index is.
type State struct {
	// Rows is the number of reviews, and First and Last are the times of the oldest and the newest.
	Rows        int
	First, Last time.Time
	// Missing is the number of reviews that servers could not record.
	Missing int64
	// Done and Total are bytes of the files.
	Done, Total int64
	// Ready is true once everything has been read that was there at the beginning.
	Ready bool
	// Live is true if a file is being written.
	Live bool
	// Files are sorted by their names.
	Files []FileState
	// Problems are paths that cannot be read, files that cannot be read to their end, and bounds that were reached, for people.
	Problems []string
}

// FileState is a file of a recording.
type FileState struct {
	Name string
	Size int64
	Rows int
	// Live is true if it is being written.
	Live bool
	// Problem says what of it cannot be read, and Note more about it. Both may be empty.
	Problem, Note string
}

// State returns how far the Index is.
func (x *Index) State() State {
	s := State{Ready: true}
	x.mu.Lock()
	for _, path := range slices.Sorted(maps.Keys(x.problems)) {
		s.Problems = append(s.Problems, path+": "+x.problems[path])
	}
	s.Ready = x.started
	x.mu.Unlock()
	files := x.sorted()
	rows, problems := map[*file]int{}, map[*file]string{}
	x.table.mu.RLock()
	s.Rows = len(x.table.order)
	s.First, s.Last = x.table.times()
	for _, one := range x.table.frames {
		if !one.gone {
			rows[one.file] += one.rows
			s.Missing += one.missing
			problems[one.file] = cmp.Or(problems[one.file], one.problem)
		}
	}
	if x.table.full {
		s.Problems = append(s.Problems, fmt.Sprintf("there are more than %d reviews, and the others are not shown (hint: name fewer recordings)", maxRows))
	}
	x.table.mu.RUnlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range files {
		one := FileState{Name: filepath.ToSlash(f.path), Size: f.size.Load(), Rows: rows[f], Live: f.live, Problem: cmp.Or(f.problem, problems[f]), Note: f.note}
		s.Files = append(s.Files, one)
		s.Total += one.Size
		s.Done += min(one.Size, f.done.Load())
		s.Ready = s.Ready && f.caughtUp
		s.Live = s.Live || f.live
		if one.Problem != "" {
			s.Problems = append(s.Problems, one.Name+": "+one.Problem)
		}
	}
	return s
}

// Sources returns the files for a replay, in the order of their names.
func (x *Index) Sources() (out []replay.Source) {
	for _, f := range x.sorted() {
		out = append(out, f.source())
	}
	return out
}
