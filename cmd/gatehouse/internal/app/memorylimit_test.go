package app

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestMemoryLimit follows the limit of a cgroup as it changes.
func TestMemoryLimit(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	type look struct {
		limit uint64
		err   error
		// set is what Go's limit is set to, 0 for not at all.
		set int64
		log string
	}
	const gibibyte = 1 << 30
	for _, tc := range []struct {
		name  string
		ratio float64
		looks []look
	}{
		{"a limit", 0.5, []look{{limit: gibibyte, set: gibibyte / 2, log: "level=INFO msg=\"memory limit\" source=cgroup limit=536870912 cgroupLimit=1073741824"}}},
		{"all of it", 1, []look{{limit: gibibyte, set: gibibyte, log: "limit=1073741824"}}},
		{"it grows while this runs", 0.5, []look{
			{limit: gibibyte, set: gibibyte / 2, log: "limit=536870912"}, {limit: gibibyte, set: gibibyte / 2}, {limit: 2 * gibibyte, set: gibibyte, log: "limit=1073741824"},
		}},
		{"it goes away", 0.5, []look{
			{limit: gibibyte, set: gibibyte / 2, log: "source=cgroup"}, {err: memlimit.ErrNoLimit, set: math.MaxInt64, log: "source=\"the cgroup has no memory limit\" limit=none"}, {err: memlimit.ErrNoLimit},
		}},
		{"none", 0.9, []look{{err: memlimit.ErrNoLimit, log: "source=\"the cgroup has no memory limit\" limit=none"}}},
		{"no cgroups", 0.9, []look{{err: memlimit.ErrCgroupsNotSupported, log: "source=\"cgroups are not available\""}}},
		{"not wanted", 0, []look{{limit: gibibyte, log: "source=\"--memory-limit-ratio 0\" limit=none"}}},
		{"a cgroup that cannot be read", 0.5, []look{
			{limit: gibibyte, set: gibibyte / 2, log: "source=cgroup"},
			{err: errors.New("no such file"), log: "level=WARN msg=\"cannot read the memory limit of the cgroup"},
			{err: errors.New("no such file")},
			{limit: gibibyte, set: gibibyte / 2, log: "source=cgroup"},
		}},
		{"more than there are numbers", 1, []look{{limit: math.MaxUint64, set: math.MaxInt64, log: "source=cgroup"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var (
				log bytes.Buffer
				now look
				set int64
			)
			m := (&OperationOptions{memoryRatio: tc.ratio}).memoryLimit(slog.New(slog.NewTextHandler(&log, nil)))
			m.read = func() (uint64, error) { return now.limit, now.err }
			m.set = func(limit int64) int64 {
				set = limit
				return math.MaxInt64
			}
			for i, l := range tc.looks {
				now, set = l, 0
				log.Reset()
				m.apply()
				if set != l.set || !strings.Contains(log.String(), l.log) || (l.log == "") != (log.Len() == 0) {
					t.Errorf("look %d sets %d, want %d, and logs %s", i, set, l.set, &log)
				}
			}
		})
	}
}

// TestMemoryLimitOfTheEnvironment is left to Go.
func TestMemoryLimitOfTheEnvironment(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "100MiB")
	var log bytes.Buffer
	m := (&OperationOptions{memoryRatio: 0.9}).memoryLimit(slog.New(slog.NewTextHandler(&log, nil)))
	m.read = func() (uint64, error) { return 1 << 30, nil }
	m.set = func(int64) int64 {
		t.Error("Go's limit is changed")
		return 0
	}
	m.apply()
	m.apply()
	if want := "source=GOMEMLIMIT limit=100MiB"; strings.Count(log.String(), want) != 1 {
		t.Errorf("the log is %s", &log)
	}
}
