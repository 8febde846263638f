package telemetry

import (
	"sync"
	"time"
)

// remindEvery is how often a Reminder says again what lasts: often enough to be
// found by whoever looks at the end of a log, and too seldom to fill one.
const remindEvery = 10 * time.Minute

// Reminder says again what somebody must act on, every ten minutes while it
// lasts. Its zero value says nothing. It is safe for concurrent use.
type Reminder struct {
	mu    sync.Mutex
	timer *time.Timer
}

// Remind says this from now on, for the first time in ten minutes, and nothing
// else any more.
func (r *Reminder) Remind(say func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
	var timer *time.Timer
	timer = time.AfterFunc(remindEvery, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		// It may have been stopped too late.
		if r.timer == timer {
			say()
			timer.Reset(remindEvery)
		}
	})
	r.timer = timer
}

// Stop says nothing any more.
func (r *Reminder) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
}

func (r *Reminder) stop() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}
