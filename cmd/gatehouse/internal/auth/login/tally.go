package login

import "time"

// busyWait is what is asked for if nothing but others that are under way is in the
// way.
const busyWait = time.Second

// tally counts what somebody does: against a Rate, and at one time. The zero tally
// is of somebody who has done nothing. It is not safe for concurrent use.
type tally struct {
	bucket  bucket
	pending int
}

// wait returns how long it is until one more may begin. A nil tally is as good as a
// zero one.
func (t *tally) wait(now time.Time, r Rate, atOnce int) time.Duration {
	switch {
	case t == nil:
		return 0
	case t.pending >= atOnce:
		return max(busyWait, t.bucket.wait(now, r))
	default:
		return t.bucket.wait(now, r)
	}
}
