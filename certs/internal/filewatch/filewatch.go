// Package filewatch reads files again when they change.
package filewatch

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// Interval is how often files are read again without a notification: links to other
	// directories, network file systems and exhausted inotify limits send none.
	Interval = 10 * time.Second
	// quietPeriod is how long after a change files are read, so that a pair of files
	// written one after the other is mostly complete.
	quietPeriod = 100 * time.Millisecond
)

// Follow calls load at once, soon after a change in a directory of the files, at every
// tick, and when a channel of changed is closed, which may be nil, until the context ends.
// It watches directories and not the files: the kubelet never writes to a mounted file but
// swaps the link ..data beside it, and others rename a new file over the old one. It passes
// errors of watching to problem, and goes on with the ticks. load and problem are called
// from one goroutine.
func Follow(ctx context.Context, files []string, ticks <-chan time.Time, changed func() <-chan struct{}, problem func(error), load func()) {
	var dirs []string
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file))
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)

	var (
		events <-chan fsnotify.Event
		errs   <-chan error
	)
	// Adding a directory again restores the watch after the directory was removed and
	// made anew; otherwise it does nothing.
	watchDirs := func() {}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		problem(fmt.Errorf("changes are detected only every %s: %w: raise fs.inotify.max_user_instances", Interval, err))
	} else {
		defer func() { _ = watcher.Close() }()
		events, errs = watcher.Events, watcher.Errors
		watchDirs = func() {
			for _, dir := range dirs {
				if err := watcher.Add(dir); err != nil {
					problem(fmt.Errorf("changes in %s are detected only every %s: %w", dir, Interval, err))
				}
			}
		}
	}

	var changes <-chan struct{}
	reload := func() {
		if changed != nil {
			changes = changed() // before load, so that no change falls in between
		}
		load()
	}
	watchDirs() // before load too
	reload()
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			if quiet == nil {
				quiet = time.After(quietPeriod)
			}
		case err := <-errs:
			problem(fmt.Errorf("changes may have been missed: %w", err))
			reload()
		case <-quiet:
			quiet = nil
			reload()
		case <-changes:
			reload()
		case <-ticks:
			watchDirs()
			reload()
		}
	}
}

// TickOr returns the ticks of a test, or those of a clock if they are nil.
func TickOr(ticks <-chan time.Time, every time.Duration) <-chan time.Time {
	if ticks != nil {
		return ticks
	}
	return time.Tick(every)
}
