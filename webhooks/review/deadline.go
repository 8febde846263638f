package review

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadline is the context of a decision: it ends with that of the request, and at a time. Most decisions call Err alone, so
// that only Done makes a timer.
type deadline struct {
	request context.Context //nolint:containedctx // it is a context itself
	at      time.Time
	now     func() time.Time

	once  sync.Once
	timed atomic.Pointer[timedContext]
}

// timedContext is a context with a timer.
type timedContext struct {
	context.Context

	stop context.CancelFunc
}

// Deadline implements context.Context.
func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

// Done implements context.Context.
func (d *deadline) Done() <-chan struct{} {
	d.once.Do(func() {
		ctx, stop := context.WithDeadline(d.request, d.at)
		d.timed.Store(&timedContext{ctx, stop})
	})
	return d.timed.Load().Done()
}

// Err implements context.Context.
func (d *deadline) Err() error {
	if timed := d.timed.Load(); timed != nil {
		return timed.Err()
	}
	if d.request.Err() == nil && d.now().Before(d.at) {
		return nil
	}
	d.Done() // from here on the error stays
	return d.timed.Load().Err()
}

// Value implements context.Context. Package context looks for a context that descends from this one and was made after Done, and starts a
// goroutine for it if it does not find the timer's.
func (d *deadline) Value(key any) any {
	if timed := d.timed.Load(); timed != nil {
		return timed.Value(key)
	}
	return nil
}

// end stops the timer, if there is one.
func (d *deadline) end() {
	if timed := d.timed.Load(); timed != nil {
		timed.stop()
	}
}
