package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

const lockSuffix = ".lock"

// lock waits until no other process holds the entry, at most as long as timeout
// lasts. Waiting is called once if that takes more than a second. The kernel releases
// the lock when the process ends, however it ends; the file stays and is empty.
func (e entry) lock(ctx context.Context, timeout time.Duration, waiting func()) (unlock func(), err error) {
	const pause = 50 * time.Millisecond
	held := flock.New(filepath.Join(e.cache.Dir, e.name+lockSuffix), flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("another login has not finished within %s (hint: finish or stop it, then try again)", timeout))
	defer cancel()
	quiet, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	ok, err := held.TryLockContext(quiet, pause)
	if !ok && ctx.Err() == nil && quiet.Err() != nil {
		waiting()
		_, err = held.TryLockContext(ctx, pause)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return func() { _ = held.Close() }, nil // it is released at the latest when the process ends
}
