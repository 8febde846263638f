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

// memoryLook is how often the limit is read: that of a pod can be changed while it
// runs.
const memoryLook = time.Minute

// memoryLimit keeps Go's soft memory limit below that of the cgroup, so that before
// the kernel ends the process garbage is collected as hard as is needed. How often
// that is done below the limit is for pace.
type memoryLimit struct {
	ratio float64
	log   *slog.Logger
	// read reads the limit of the cgroup, in bytes. It is memlimit.ErrNoLimit if
	// there is none.
	read func() (uint64, error)
	// set is debug.SetMemoryLimit.
	set func(int64) int64
	// told is what was said last, and of what limit.
	told string
	of   uint64
}

// memoryLimit is what keeps the limit. It is used by one goroutine at a time.
func (f *OperationOptions) memoryLimit(log *slog.Logger) *memoryLimit {
	return &memoryLimit{ratio: f.memoryRatio, log: log, read: memlimit.FromCgroup, set: debug.SetMemoryLimit}
}

// apply sets the limit, and says what it is and why when that has changed. Without
// anything to set nothing is touched: GOMEMLIMIT is read by Go's runtime.
func (m *memoryLimit) apply() {
	if own := os.Getenv("GOMEMLIMIT"); own != "" {
		m.tell(0, "GOMEMLIMIT", "limit", own)
		return
	}
	if m.ratio == 0 {
		m.tell(0, "--memory-limit-ratio 0", "limit", "none")
		return
	}
	limit, err := m.read()
	switch {
	case errors.Is(err, memlimit.ErrNoLimit):
		if m.of != 0 {
			m.set(math.MaxInt64)
		}
		m.tell(0, "the cgroup has none", "limit", "none")
	case errors.Is(err, memlimit.ErrCgroupsNotSupported):
		m.tell(0, "there are no cgroups", "limit", "none")
	case err != nil:
		if m.told != "error" {
			m.log.Warn("memory limit of the cgroup cannot be read; the one before holds, at the start none", "error", err.Error(),
				"hint", "set GOMEMLIMIT in the environment")
		}
		m.told = "error"
	default:
		part := int64(math.MaxInt64)
		if allowed := m.ratio * float64(limit); allowed < math.MaxInt64 {
			part = int64(allowed)
		}
		m.set(part)
		m.tell(limit, "cgroup", "limit", part, "cgroupLimit", limit)
	}
}

// tell logs what holds from now on.
func (m *memoryLimit) tell(of uint64, source string, attrs ...any) {
	if m.told != source || m.of != of {
		m.log.Info("memory limit", append([]any{"source", source}, attrs...)...)
	}
	m.told, m.of = source, of
}

// run follows the limit of the cgroup until ctx ends.
func (m *memoryLimit) run(ctx context.Context) {
	look := time.NewTicker(memoryLook)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			m.apply()
		case <-ctx.Done():
			return
		}
	}
}
