package app

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryInterval is the interval at which the limit is read: that of a running pod can
// change.
const memoryInterval = time.Minute

// memoryLimit keeps Go's soft memory limit below that of the cgroup, so that garbage is
// collected harder before the kernel kills the process. Package active sets how often it is
// collected below the limit.
type memoryLimit struct {
	ratio float64
	log   *slog.Logger
	// read reads the limit of the cgroup, in bytes. It is memlimit.ErrNoLimit if
	// there is none.
	read func() (uint64, error)
	// set is debug.SetMemoryLimit.
	set func(int64) int64
	// logged is the source that was logged last, and of the cgroup's limit then.
	logged string
	of     uint64
}

// memoryLimit returns the memoryLimit of the flags. It is used by one goroutine at a time.
func (f *OperationOptions) memoryLimit(log *slog.Logger) *memoryLimit {
	return &memoryLimit{ratio: f.memoryRatio, log: log, read: memlimit.FromCgroup, set: debug.SetMemoryLimit}
}

// apply sets the limit, and logs it and its source if they have changed. It leaves
// GOMEMLIMIT to Go's runtime.
func (m *memoryLimit) apply() {
	if own := os.Getenv("GOMEMLIMIT"); own != "" {
		m.logLimit(0, "GOMEMLIMIT", "limit", own)
		return
	}
	if m.ratio == 0 {
		m.logLimit(0, "--memory-limit-ratio 0", "limit", "none")
		return
	}
	limit, err := m.read()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit):
		if m.of != 0 {
			m.set(math.MaxInt64)
		}
		m.logLimit(0, "the cgroup has no memory limit", "limit", "none")
	case errors.Is(err, memlimit.ErrCgroupsNotSupported):
		m.logLimit(0, "cgroups are not available", "limit", "none")
	case err != nil:
		if m.logged != "error" {
			m.log.Warn("cannot read the memory limit of the cgroup; the previous limit stays, at the start none", "error", err.Error(),
				"hint", "set GOMEMLIMIT in the environment")
		}
		m.logged = "error"
	default:
		part := int64(math.MaxInt64)
		if allowed := m.ratio * float64(limit); allowed < math.MaxInt64 {
			part = int64(allowed)
		}
		m.set(part)
		m.logLimit(limit, "cgroup", "limit", part, "cgroupLimit", limit)
	}
}

// logLimit logs the limit if it has changed.
func (m *memoryLimit) logLimit(of uint64, source string, attrs ...any) {
	if m.logged != source || m.of != of {
		m.log.Info("memory limit", append([]any{"source", source}, attrs...)...)
	}
	m.logged, m.of = source, of
}

// run follows the limit of the cgroup until ctx ends.
func (m *memoryLimit) run(ctx context.Context) {
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.apply()
		case <-ctx.Done():
			return
		}
	}
}
