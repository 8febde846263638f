package telemetry

import (
	"sync"
	"time"
)

// remindEvery is the interval of reminders: short enough to be at the end of a log, long
// enough not to fill it.
const remindEvery = 10 * time.Minute

// Reminder repeats a message every ten minutes while a problem lasts. The zero Reminder is
// stopped. It is safe for concurrent use.
type Reminder struct {
	mu    sync.Mutex
	timer *time.Timer
}

// Remind calls a function every ten minutes from now on, instead of any earlier one.
func (r *Reminder) Remind(remind func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
	var timer *time.Timer
	timer = time.AfterFunc(remindEvery, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		// it may have fired before it was stopped
		if r.timer == timer {
			remind()
			timer.Reset(remindEvery)
		}
	})
	r.timer = timer
}

// Stop stops the reminder.
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
