package telemetry_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
)

// TestReminder wants what lasts to be said every ten minutes, and what does not
// never again.
func TestReminder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reminder telemetry.Reminder
		var first, second atomic.Int32
		check := func(when string, wantFirst, wantSecond int32) {
			t.Helper()
			synctest.Wait()
			if first.Load() != wantFirst || second.Load() != wantSecond {
				t.Errorf("%s the first has been said %d times and the second %d times, want %d and %d", when, first.Load(), second.Load(), wantFirst, wantSecond)
			}
		}
		reminder.Stop() // of what was never begun
		reminder.Remind(func() { first.Add(1) })
		check("at once", 0, 0)
		time.Sleep(9 * time.Minute)
		check("after 9 minutes", 0, 0)
		time.Sleep(time.Minute)
		check("after 10 minutes", 1, 0)
		time.Sleep(25 * time.Minute)
		check("after 35 minutes", 3, 0)
		reminder.Remind(func() { second.Add(1) })
		time.Sleep(9 * time.Minute)
		check("9 minutes after the second", 3, 0)
		time.Sleep(time.Minute)
		check("10 minutes after the second", 3, 1)
		reminder.Stop()
		time.Sleep(time.Hour)
		check("after the end", 3, 1)
	})
}
