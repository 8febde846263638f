package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"
)

// unreachableTime is how long a replica may be silent before it is away.
const unreachableTime = 4 * ReportInterval

// newInstance is a name for this process that no other one has.
func newInstance() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails
	return hex.EncodeToString(random)
}

// staleReport is the report of another process that has this replica's name.
type staleReport struct {
	// silent is for how long it had not been written when it was found, by the
	// clock of whoever keeps it.
	silent time.Duration
	// remove takes it away, unless it has been written since it was found.
	remove func(context.Context)
}

// staleReports are the reports of processes in whose place this one came. They are
// removed, so that a replica that is killed again and again leaves one and not
// hundreds: a name belongs to one process at a time, and whoever has it and is
// silent is dead.
//
// It looks once, when this process begins: who begins to use the name later, or is
// heard of once more, is no predecessor, and its report stays.
type staleReports struct {
	mu    sync.Mutex
	found bool
	// foundAt is when it looked, and left are those that may live still.
	foundAt time.Time
	reports []staleReport
}

// remove removes those that have been silent for long enough. Now is a time by
// which to measure how much has passed. Find is called until it succeeds once.
func (p *staleReports) remove(ctx context.Context, now time.Time, find func() ([]staleReport, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.found {
		left, err := find()
		if err != nil {
			return // whoever needs the list tells what is wrong with it
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
