// Package sleep has a pause that ends with a context.
package sleep

import (
	"context"
	"time"
)

// Context waits for a duration, or until the context ends. It reports whether the context has not ended.
func Context(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
