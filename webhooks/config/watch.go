package config

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// debounce is how long a directory must not change before it is read, so that a
	// configuration is not read while several files are written. A kubelet's swap
	// of a volume is a handful of events within a millisecond.
	debounce = 200 * time.Millisecond
	// pollInterval is how often a directory is read without any event: some file
	// systems give none, links may lead to places that are not watched, and
	// the kernel's queue of events may overflow.
	pollInterval = 10 * time.Second
	// pauseFactor is the least pause between two polls, in the time that the first took:
	// polling takes 2 % of a processor at most.
	pauseFactor = 50
)

// Watch reads the directory again whenever something changes in it, and calls
// onChange with the new configuration, and with the error if one keeps it from
// being used; it is then as Inspect returns it. It returns when ctx is done.
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
		poll:     func() tree { return readTree(dir, defaultLimits()) },
		known:    known,
		onChange: onChange,
	}
	w.run(ctx, events)
}

// watcher decides when to read and what to report.
type watcher struct {
	read func() tree
	// poll reads once: what it returns may be half-written.
	poll     func() tree
	known    string // the state that was reported last without an error, "" after an error
	state    string // the state that was reported last
	onChange func(*Config, error)
}

// run reads the directory at once, after events, and when a poll finds a change.
func (w *watcher) run(ctx context.Context, events <-chan struct{}) {
	w.reconcile()
	polled := time.NewTimer(pollInterval)
	defer polled.Stop()
	debounced := time.NewTimer(debounce)
	debounced.Stop()
	defer debounced.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			// Events without a pause between them are handled by the next poll.
			debounced.Reset(debounce)
		case <-debounced.C:
			w.reconcile()
		case <-polled.C:
			start := time.Now()
			t := w.poll()
			changed := t.state != w.state
			t.release()
			if changed {
				w.reconcile()
			}
			polled.Reset(max(pollInterval, pauseFactor*time.Since(start)))
		}
	}
}

// reconcile reads the directory and reports a change.
func (w *watcher) reconcile() {
	t := w.read()
	defer t.release()
	if t.state == w.state {
		return
	}
	w.state = t.state
	if t.state == w.known {
		return // the caller has it
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

// watchFiles returns a channel of events in the directories given to sync, and of the
// replacement of the directory dir. sync reports whether any of them was not watched
// before. On systems without file events there are none, and only polls find changes.
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
