package config

import (
	"context"
	"time"
)

const (
	// pollInterval is how often a directory is read. A change is used when two readings in a row
	// agree, so that a configuration is not used while several files are written.
	pollInterval = 500 * time.Millisecond
	// pauseFactor is the least pause between two readings, in the time that the first took:
	// polling takes 2 % of a processor at most.
	pauseFactor = 50
)

// Watch reads the directory again and again, and calls onChange with each new configuration, and with
// the error if one keeps it from being used; it is then as Inspect returns it. It returns when ctx is
// done.
//
// known is the State of the configuration that the caller already has. Every
// change is reported once: onChange is not called for what known or the call
// before it stands for. If a configuration breaks and is then put back as it
// was, both are reported. Calls come one after the other, from the goroutine
// that called Watch.
//
// The directory is read whole, because many file systems give no events, and none for what links lead
// to.
func Watch(ctx context.Context, dir, known string, onChange func(*Config, error)) {
	w := watcher{read: func() tree { return readTree(dir, defaultLimits()) }, known: known, onChange: onChange}
	w.run(ctx)
}

// WatchBeside is Watch for a directory as InspectBeside reads it. Without a
// directory it waits for ctx.
func WatchBeside(ctx context.Context, dir, known string, onChange func(*Config, error)) {
	if dir == "" {
		<-ctx.Done()
		return
	}
	w := watcher{known: known, onChange: onChange, read: func() tree {
		t := readTree(dir, defaultLimits())
		t.mayBeEmpty = true
		return t
	}}
	w.run(ctx)
}

// watcher decides what to report.
type watcher struct {
	read     func() tree
	known    string // the state that was reported last without an error, "" after an error
	state    string // the state that was reported last
	onChange func(*Config, error)
}

// run reads the directory at once, and then after each pause.
func (w *watcher) run(ctx context.Context) {
	last, restless := "", 0
	for {
		start := time.Now()
		t := w.read()
		pause := max(pollInterval, pauseFactor*time.Since(start))
		state := t.state
		if restless++; state == w.state {
			restless = 0
		} else if state == last || w.state == "" || restless == maxReadings { // at last, though a writer never rests
			w.report(stable(t, w.read))
			restless = 0
		}
		last = state
		t.release()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// report reports a change.
func (w *watcher) report(t tree) {
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
	w.known = config.State
	w.onChange(config, nil)
}
