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
	// read reads the limit of the cgroup, in bytes. It is memlimit.ErrNoLimit if
	// there is none.
	read func() (uint64, error)
	// set is debug.SetMemoryLimit.
	set func(int64) int64
}

// newMemoryLimit returns that of this process.
func newMemoryLimit() *memoryLimit {
	return &memoryLimit{read: memlimit.FromCgroup, set: debug.SetMemoryLimit}
}

// apply sets the limit and follows that of the cgroup until the context ends. It leaves GOMEMLIMIT to Go's
// runtime.
func (m *memoryLimit) apply(ctx context.Context, log *slog.Logger) {
	own := os.Getenv("GOMEMLIMIT")
	of, err := m.read()
	switch {
	case own != "":
		// Logged when serve starts and when the limit of the cgroup changes.
		log.Info("memory limit", "source", "GOMEMLIMIT", "limit", own)
		return
	case errors.Is(err, memlimit.ErrCgroupsNotSupported):
		log.Info("memory limit", "source", "cgroups are not available", "limit", "none")
		return
	case err != nil && !errors.Is(err, memlimit.ErrNoLimit):
		// Logged when the limit cannot be read: memory is then bounded as if there were no limit.
		log.Warn("cannot read the memory limit of the cgroup, so none is set", "error", err.Error(), "hint", "set GOMEMLIMIT in the environment")
		return
	}
	limit, err := memlimit.Set(memlimit.WithRatio(memoryRatio), memlimit.WithProvider(m.read), memlimit.WithRefreshInterval(ctx, memoryInterval), memlimit.WithLogger(log))
	switch {
	case err != nil:
		// Logged when Go does not accept a memory limit.
		log.Warn("cannot set the memory limit", "error", err.Error(), "hint", "set GOMEMLIMIT in the environment")
	case limit == math.MaxInt64:
		log.Info("memory limit", "source", "the cgroup has no memory limit", "limit", "none")
	default:
		log.Info("memory limit", "source", "cgroup", "limit", limit, "cgroupLimit", of)
	}
}
