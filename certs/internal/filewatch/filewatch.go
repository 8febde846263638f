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
	// Interval is how often files are read again without any sign of a
	// change: links to other directories, network file systems and exhausted
	// inotify limits give no sign.
	Interval = 10 * time.Second
	// settleTime is how long a change is left alone before files are read, so
	// that a pair of files written one after the other is mostly seen whole.
	settleTime = 100 * time.Millisecond
)

// Follow calls load at once, soon after a change in a directory of the files,
// and at every tick, until the context ends. Directories are watched and not the
// files: the kubelet never writes to a mounted file but swaps the link ..data
// beside it, and others rename a new file over the old one. What keeps changes
// from being noticed is told to problem and does not end anything: the ticks
// remain. Load and problem are called from one goroutine.
func Follow(ctx context.Context, files []string, ticks <-chan time.Time, problem func(error), load func()) {
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
	// Adding a directory again is how a watch is found again after the directory
	// was removed and made anew; it does nothing while the watch holds.
	watchDirs := func() {}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		problem(fmt.Errorf("changes are noticed every %s only: %w: raise fs.inotify.max_user_instances", Interval, err))
	} else {
		defer func() { _ = watcher.Close() }()
		events, errs = watcher.Events, watcher.Errors
		watchDirs = func() {
			for _, dir := range dirs {
				if err := watcher.Add(dir); err != nil {
					problem(fmt.Errorf("changes in %s are noticed every %s only: %w", dir, Interval, err))
				}
			}
		}
	}

	// Watched first and read afterwards, so that no change falls in between.
	watchDirs()
	load()
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			if settled == nil {
				settled = time.After(settleTime)
			}
		case err := <-errs:
			problem(fmt.Errorf("changes may have been missed: %w", err))
			load()
		case <-settled:
			settled = nil
			load()
		case <-ticks:
			watchDirs()
			load()
		}
	}
}

// TickOr is the ticks of a test, or those of a ticker that ends with stop.
func TickOr(ticks <-chan time.Time, every time.Duration) (c <-chan time.Time, stop func()) {
	if ticks != nil {
		return ticks, func() {}
	}
	ticker := time.NewTicker(every)
	return ticker.C, ticker.Stop
}
