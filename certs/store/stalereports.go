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

// staleReports are the reports of earlier processes with the name of this replica.
// They are removed once they are silent for unreachableTime, so that a crash loop
// leaves one report and not hundreds: only one process at a time has a name.
//
// They are listed once, when this process begins: a process that begins to use the name
// later, or writes again, is alive, and its report stays.
type staleReports struct {
	mu    sync.Mutex
	found bool
	// foundAt is when they were listed, and writtenAt when the report of this process was
	// written by the clock of the store. reports are those not removed yet.
	foundAt, writtenAt time.Time
	reports            []*storedReport
}

// remove deletes those that have been silent for long enough. now is monotonic, and own
// the report of this process.
func (p *staleReports) remove(ctx context.Context, now time.Time, own *storedReport, stored storedReports) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.found {
		var found []*storedReport
		err := stored.each(ctx, func(t *storedReport) {
			if t.replica == own.replica && t.place != own.place {
				found = append(found, t)
			}
		})
		if err != nil {
			return // List reports the error
		}
		p.found, p.foundAt, p.writtenAt, p.reports = true, now, own.written, found
	}
	p.reports = slices.DeleteFunc(p.reports, func(t *storedReport) bool {
		if p.writtenAt.Sub(t.written)+now.Sub(p.foundAt) < unreachableTime {
			return false
		}
		t.remove(ctx)
		return true
	})
}
