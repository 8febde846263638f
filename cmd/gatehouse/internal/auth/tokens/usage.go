package tokens

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// usageInterval is how often the file of usages is written at most.
const usageInterval = 10 * time.Second

// Usage knows when access tokens were last used, to the second, and keeps it in a
// file over restarts. It knows the tokens that Know was told and no others, so
// that nobody who sends tokens can make it grow.
//
// It is safe for concurrent use, but for Know, whose calls come one after the
// other.
type Usage struct {
	file    string
	problem func(error)

	// used has the second of each known token's last use, 0 for none. The map is
	// never written to; a new one takes its place, with the same numbers in it.
	used  atomic.Pointer[map[string]*atomic.Int64]
	dirty atomic.Bool
	// loaded is what the file held, until the tokens are known.
	loaded map[string]time.Time
}

// OpenUsage reads what is in the state directory. The error is about a directory
// in which this user cannot write. A file that cannot be understood is a problem,
// and written anew, and so is a disk that is full or read-only: problem is called once
// for as long as that lasts, from the goroutine of OpenUsage or Run.
func OpenUsage(stateDir string, problem func(error)) (*Usage, error) {
	if err := checkDir(stateDir); err != nil {
		return nil, err
	}
	switch err := writable(stateDir); {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EROFS):
		problem(fmt.Errorf("cannot store when tokens are used: %w", err))
	case err != nil:
		return nil, err
	}
	u := &Usage{file: filepath.Join(stateDir, UsageFile), problem: problem}
	u.used.Store(&map[string]*atomic.Int64{})
	var err error
	if u.loaded, err = readUsage(u.file); err != nil {
		problem(fmt.Errorf("cannot read when tokens were last used: %w", err))
	}
	return u, nil
}

// Know makes these the tokens whose use is noted. Others are forgotten.
func (u *Usage) Know(tokens []authn.Token) {
	before := *u.used.Load()
	now := make(map[string]*atomic.Int64, len(tokens))
	kept, told := 0, 0
	for i := range tokens {
		id := tokens[i].Name
		at, known := before[id]
		if known {
			kept++
		} else {
			at = new(atomic.Int64)
			if used, ok := u.loaded[id]; ok {
				at.Store(used.Unix())
				told++
			}
		}
		// A copy, so that nothing holds on to the documents.
		now[strings.Clone(id)] = at
	}
	u.used.Store(&now)
	if kept < len(before) || told < len(u.loaded) { // some are gone
		u.dirty.Store(true)
	}
	u.loaded = nil
}

// Note notes that a token was used. It is fast, and does nothing for an id that is
// not known.
func (u *Usage) Note(id string, at time.Time) {
	used, known := (*u.used.Load())[id]
	if !known {
		return
	}
	second := at.Unix()
	for {
		last := used.Load()
		// Within a second nothing is written, so that processors do not take the
		// number from each other.
		if last >= second {
			return
		}
		if used.CompareAndSwap(last, second) {
			break
		}
	}
	if !u.dirty.Load() {
		u.dirty.Store(true)
	}
}

// Used returns when each token was last used.
func (u *Usage) Used() map[string]time.Time {
	return maps.Collect(u.all)
}

// all yields every token that was used.
func (u *Usage) all(yield func(string, time.Time) bool) {
	for id, used := range *u.used.Load() {
		if second := used.Load(); second != 0 && !yield(id, time.Unix(second, 0).UTC()) {
			return
		}
	}
}

// Run writes the file whenever there is something new, at most every ten seconds,
// and once more when ctx is done.
func (u *Usage) Run(ctx context.Context) {
	ticker := time.NewTicker(usageInterval)
	defer ticker.Stop()
	failing := false
	write := func() {
		if !u.dirty.Swap(false) {
			return
		}
		err := writeUsage(u.file, u.all)
		if err != nil {
			u.dirty.Store(true)
			if !failing {
				u.problem(fmt.Errorf("cannot store when tokens were last used: %w", err))
			}
		}
		failing = err != nil
	}
	for {
		select {
		case <-ctx.Done():
			write()
			return
		case <-ticker.C:
			write()
		}
	}
}
