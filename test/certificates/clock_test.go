package certificates

import (
	"sync/atomic"
	"time"
)

// clock is a replica's own, which may be wrong.
type clock struct{ offset atomic.Int64 }

func newClock(offset time.Duration) *clock {
	c := &clock{}
	c.set(offset)
	return c
}

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// set makes the clock wrong by that much.
func (c *clock) set(offset time.Duration) { c.offset.Store(int64(offset)) }
