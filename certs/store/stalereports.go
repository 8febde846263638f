package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"
)

// unreachableTime is after how long without a heartbeat a replica is unreachable.
const unreachableTime = 4 * ReportInterval

// newInstance returns a random name for this process.
func newInstance() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails
	return hex.EncodeToString(random)
}

// staleReport is a report of another process with the name of this replica.
type staleReport struct {
	// silent is how long before it was found it had been written, by the clock of the
	// store.
	silent time.Duration
	// remove deletes it unless it has been written since.
	remove func(context.Context)
}

// staleReports are the reports of earlier processes with the name of this replica.
// They are removed once they are silent for unreachableTime, so that a crash loop
// leaves one report and not hundreds: only one process at a time has a name.
//
// They are listed once, when this process begins: a process that begins to use the name
// later, or writes again, is alive, and its report stays.
type staleReports struct {
	mu    sync.Mutex
	found bool
	// foundAt is when they were listed, and reports are those not removed yet.
	foundAt time.Time
	reports []staleReport
}

// remove deletes those that have been silent for long enough. now is monotonic. find is
// called until it succeeds once.
func (p *staleReports) remove(ctx context.Context, now time.Time, find func() ([]staleReport, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.found {
		left, err := find()
		if err != nil {
			return // List reports the error
		}
		p.found, p.foundAt, p.reports = true, now, left
	}
	passed := now.Sub(p.foundAt)
	p.reports = slices.DeleteFunc(p.reports, func(one staleReport) bool {
		if one.silent+passed < unreachableTime {
			return false
		}
		one.remove(ctx)
		return true
	})
}
