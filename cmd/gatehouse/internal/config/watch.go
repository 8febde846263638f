package config

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long nothing may happen in a directory before it is read,
	// so that a writer of several files is not read half-way. A kubelet's swap
	// of a volume is a handful of events within a millisecond.
	settle = 200 * time.Millisecond
	// poll is how often a directory is read without any event: some file
	// systems give none, links may lead to places that are not watched, and
	// the kernel's queue of events may overflow.
	poll = 10 * time.Second
	// rest is how many times as long as it took to look at a directory nobody looks
	// again. 100,000 files take a third of a second.
	rest = 50
	// reread is how often a directory is read that looks the same from outside. It
	// is for file systems that show less than they should.
	reread = 5 * time.Minute
)

// Watch reads the directory again whenever something changes in it, and calls
// onChange with the new configuration, and with the error if one keeps it from
// being used; it is then as Inspect returns it. It returns when ctx is done, and never because of an error.
//
// known is the State of the configuration that the caller already has. Every
// change is reported once: onChange is not called for what known or the call
// before it stands for. If a configuration breaks and is then put back as it
// was, both are reported. Calls come one after the other, from the goroutine
// that called Watch.
func Watch(ctx context.Context, dir, known string, onChange func(*Config, error)) {
	follow(ctx, dir, known, false, onChange)
}

// WatchBeside is Watch for a directory as InspectBeside reads it. Without a
// directory it waits for ctx.
func WatchBeside(ctx context.Context, dir, known string, onChange func(*Config, error)) {
	if dir == "" {
		<-ctx.Done()
		return
	}
	follow(ctx, dir, known, true, onChange)
}

func follow(ctx context.Context, dir, known string, mayBeEmpty bool, onChange func(*Config, error)) {
	events, sync, closeEvents := watchFiles(dir)
	defer closeEvents()
	w := watcher{
		read: func() tree {
			t := readStable(dir)
			// What came into a new directory before it was watched gave no event.
			for sync(t.dirs) {
				t = readStable(dir)
			}
			t.mayBeEmpty = mayBeEmpty
			return t
		},
		looksAs:  func(last *tree) bool { return looksAs(dir, last) },
		known:    known,
		onChange: onChange,
	}
	w.run(ctx, events)
}

// watcher decides when to read and what to report.
type watcher struct {
	read func() tree
	// looksAs reports whether a directory still looks from outside as when it was read.
	looksAs  func(last *tree) bool
	known    string // the state that was reported last without an error, "" after an error
	state    string // the state that was reported last
	last     *tree  // what was read last, without the data
	lastRead time.Time
	onChange func(*Config, error)
}

// run reads once at the beginning, for what happened before the watch began,
// and then after events and now and then.
func (w *watcher) run(ctx context.Context, events <-chan struct{}) {
	w.look()
	polled := time.NewTimer(poll)
	defer polled.Stop()
	settled := time.NewTimer(settle)
	settled.Stop()
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			// A writer that never rests is read when the directory is polled.
			settled.Reset(settle)
		case <-settled.C:
			w.look()
		case <-polled.C:
			start := time.Now()
			if w.last == nil || start.Sub(w.lastRead) >= reread || !w.looksAs(w.last) {
				w.look()
			}
			polled.Reset(max(poll, rest*time.Since(start)))
		}
	}
}

// look reads the directory and reports a change.
func (w *watcher) look() {
	w.lastRead = time.Now()
	t := w.read()
	w.last = t.outline()
	defer t.release()
	if t.state == w.state {
		return
	}
	w.state = t.state
	if t.state == w.known {
		return // decoding would tell nothing new
	}
	config, found := t.decode()
	if err := found.Err(); err != nil {
		w.known = ""
		w.onChange(config, err)
		return
	}
	if config.State == w.known {
		return
	}
	w.known = config.State
	w.onChange(config, nil)
}

// watchFiles gives an event for everything that happens in the directories
// given to sync, and for the directory dir being replaced. sync reports whether
// any of them was not watched before. Without the kernel's help there are no
// events, and polling has to do.
func watchFiles(dir string) (events <-chan struct{}, sync func(dirs []string) bool, stop func()) {
	none := func([]string) bool { return false }
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, none, func() {}
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		root = filepath.Clean(dir)
	}
	parent := filepath.Dir(root)
	_ = watch.Add(parent) // where it is not allowed, polling has to do

	out := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case event, open := <-watch.Events:
				if !open {
					return
				}
				if filepath.Dir(event.Name) == parent && event.Name != root {
					continue // a neighbour
				}
			case _, open := <-watch.Errors:
				if !open {
					return
				}
				// Events were lost: as good as an event.
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	watched := map[string]bool{parent: true}
	sync = func(dirs []string) bool {
		now := map[string]bool{parent: true}
		added := false
		for _, d := range dirs {
			path, err := filepath.Abs(d)
			if err != nil {
				continue
			}
			// Also when it is watched: behind the path may be a new directory.
			_ = watch.Add(path)
			now[path] = true
			added = added || !watched[path]
		}
		for path := range watched {
			if !now[path] {
				_ = watch.Remove(path)
			}
		}
		watched = now
		return added
	}
	return out, sync, func() {
		_ = watch.Close()
		<-done
	}
}
