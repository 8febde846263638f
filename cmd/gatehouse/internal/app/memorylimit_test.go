package app

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestMemoryLimit has the limit come from each source. It changes the limit of the process.
func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const gibibyte = 1 << 30
	for _, tc := range []struct {
		name, own string
		of        uint64
		err       error
		// limit is that of Go afterwards, 0 for the one before.
		limit int64
		log   string
	}{
		{"a cgroup", "", 4 * gibibyte, nil, 3865470566, "level=INFO msg=\"memory limit\" source=cgroup limit=3865470566 cgroupLimit=4294967296"},
		{"no limit", "", 0, memlimit.ErrNoLimit, math.MaxInt64, "source=\"the cgroup has no memory limit\" limit=none"},
		{"no cgroups", "", 0, memlimit.ErrCgroupsNotSupported, 0, "source=\"cgroups are not available\""},
		{"a cgroup that cannot be read", "", 0, errors.New("no such file"), 0, "level=WARN msg=\"cannot read the memory limit of the cgroup"},
		{"the environment", "100MiB", gibibyte, nil, 0, "source=GOMEMLIMIT limit=100MiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if t.Setenv("GOMEMLIMIT", tc.own); tc.own == "" {
				_ = os.Unsetenv("GOMEMLIMIT") // the end of the test restores it
			}
			debug.SetMemoryLimit(before)
			var log bytes.Buffer
			m := newMemoryLimit()
			m.read = func() (uint64, error) { return tc.of, tc.err }
			m.apply(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
			want := tc.limit
			if want == 0 {
				want = before
			}
			if got := debug.SetMemoryLimit(-1); got != want || !strings.Contains(log.String(), tc.log) {
				t.Errorf("the limit is %d, want %d, and the log is %s", got, want, &log)
			}
		})
	}
}
