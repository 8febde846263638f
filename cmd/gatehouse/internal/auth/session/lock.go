package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

const lockSuffix = ".lock"

// lock waits until no other process holds the entry, at most as long as timeout
// lasts. Waiting is called once if that takes a moment. The kernel lets go of the
// lock when the process ends, however it ends; the file stays and is empty.
func (e entry) lock(ctx context.Context, timeout time.Duration, waiting func()) (unlock func(), err error) {
	const (
		firstTry = time.Second
		pause    = 50 * time.Millisecond
	)
	held := flock.New(filepath.Join(e.cache.Dir, e.name+lockSuffix), flock.SetPermissions(0o600))
	try := func(most time.Duration) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		ok, err := held.TryLockContext(ctx, pause)
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		return ok, err
	}
	ok, err := try(min(firstTry, timeout))
	if err == nil && !ok && ctx.Err() == nil && timeout > firstTry {
		waiting()
		ok, err = try(timeout - firstTry)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && !ok:
		err = fmt.Errorf("another login has not finished within %s (hint: finish or stop it, then try again)", timeout)
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return func() { _ = held.Close() }, nil // it is let go at the latest when the process ends
}

// failure says when a login failed, for those that waited for it: each of them
// would open a browser of its own, one after the other.
type failure struct {
	FailedAt time.Time `json:"failedAt"`
}

func (e entry) failureFile() string { return e.name + ".failed" }

func (e entry) markFailed(now time.Time) {
	data, _ := json.Marshal(failure{now}) //nolint:errchkjson // a time
	_ = e.replace(e.failureFile(), data)  // without it, others try for themselves
}

func (e entry) failedSince(began time.Time) bool {
	root, err := e.cache.open()
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }() // it was only read
	data, err := root.ReadFile(e.failureFile())
	var f failure
	return err == nil && json.Unmarshal(data, &f) == nil && !f.FailedAt.Before(began)
}
