package review

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadline checks that the context of a decision ends as one of context.WithDeadline does, with and without a call of Done.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// end has the context end, and want is the error then.
		end  func(cancel context.CancelFunc)
		want error
	}{
		{"time", func(context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded},
		{"request", func(cancel context.CancelFunc) { cancel() }, context.Canceled},
	} {
		for _, timed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				request, cancel := context.WithCancel(t.Context())
				defer cancel()
				d := &deadline{request: request, at: time.Now().Add(time.Second), now: time.Now}
				defer d.end()
				var child context.Context
				if timed {
					var stop context.CancelFunc
					child, stop = context.WithCancel(d)
					defer stop()
				}
				time.Sleep(time.Second - time.Nanosecond)
				if err := errors.Join(d.Err(), context.Cause(d)); err != nil {
					t.Fatalf("%s: %v before the end", test.name, err)
				}
				test.end(cancel)
				synctest.Wait()
				if !errors.Is(d.Err(), test.want) || !errors.Is(context.Cause(d), test.want) {
					t.Errorf("%s: the error is %v, and the cause %v", test.name, d.Err(), context.Cause(d))
				}
				if timed && !errors.Is(child.Err(), test.want) {
					t.Errorf("%s: the error of a context that descends is %v", test.name, child.Err())
				}
				select {
				case <-d.Done():
				default:
					t.Errorf("%s: Done is open", test.name)
				}
			})
		}
	}
}
