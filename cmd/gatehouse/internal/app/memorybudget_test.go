package app

import (
	"math"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// TestDivideMemory has what fits by default, and what is said of what does not fit.
func TestDivideMemory(t *testing.T) {
	t.Parallel()
	const mebibyte = 1 << 20
	for _, test := range []struct {
		name string
		// In mebibytes.
		limit, live, inFlight int64
		connections           int
		files                 uint64
		wantInFlight          int64 // mebibytes
		wantConnections       int
		problems              []string
	}{
		{name: "no limit", live: 6, wantInFlight: 128, wantConnections: 2048},
		{name: "the chart's limit", limit: 230, live: 8, wantInFlight: 87, wantConnections: 464},
		{name: "a large configuration", limit: 230, live: 60, wantInFlight: 35, wantConnections: 186, problems: []string{"reviews larger than"}},
		{name: "a large limit", limit: 2048, live: 8, wantInFlight: 996, wantConnections: 2048},
		{name: "a small limit", limit: 57, live: 8, wantInFlight: 8, wantConnections: 16, problems: []string{"under load the process can exceed its memory limit", "reviews larger than"}},
		{name: "less than the program takes", limit: 32, live: 8, wantInFlight: 8, wantConnections: 16, problems: []string{"under load the process can exceed its memory limit", "reviews larger than"}},
		{name: "flags that fit", limit: 1024, live: 8, inFlight: 256, connections: 4096, wantInFlight: 256, wantConnections: 4096},
		{name: "reviews that do not fit", limit: 230, live: 8, inFlight: 512, wantInFlight: 512, wantConnections: 464, problems: []string{"under load the process can exceed its memory limit"}},
		{name: "connections that do not fit", limit: 230, live: 8, connections: 4096, wantInFlight: 87, wantConnections: 4096, problems: []string{"under load the process can exceed its memory limit"}},
		{name: "few open files", live: 8, files: 64, wantInFlight: 128, wantConnections: 32},
		{name: "open files as usual", live: 8, files: 1024, wantInFlight: 128, wantConnections: 768},
		{name: "more connections than open files", live: 8, files: 1024, connections: 1000, wantInFlight: 128, wantConnections: 1000, problems: []string{"leave no file descriptors"}},
		{name: "small reviews by a flag", live: 8, inFlight: 40, wantInFlight: 40, wantConnections: 2048, problems: []string{"reviews larger than"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := divideMemory(test.limit*mebibyte, test.live*mebibyte, 0, test.inFlight*mebibyte, test.connections, test.files)
			if b.inFlight/mebibyte != test.wantInFlight || b.connections != test.wantConnections {
				t.Errorf("%d MiB and %d connections, want %d and %d", b.inFlight/mebibyte, b.connections, test.wantInFlight, test.wantConnections)
			}
			problems := b.problems(test.files)
			if len(problems) != len(test.problems) {
				t.Fatalf("the problems are %q, want %q", problems, test.problems)
			}
			for i, want := range test.problems {
				if !strings.HasPrefix(problems[i], want) && !strings.Contains(problems[i], want) || !strings.Contains(problems[i], "(hint: ") {
					t.Errorf("problem %d is %q, want %q", i, problems[i], want)
				}
			}
			if test.limit > 100 && test.inFlight == 0 && test.connections == 0 {
				if sum := b.inFlight + int64(b.connections)*connectionBytes; sum > (b.limit-b.base)*2/3 {
					t.Errorf("%d bytes are given away of %d beside the program", sum, b.limit-b.base)
				}
			}
		})
	}
	if largest := server.LargestReview(70<<20, false); largest != review.MaxAdmissionBytes {
		t.Errorf("with 70 MiB, the largest review has %d bytes", largest)
	}
}

// TestAvailableMemory is the smallest of what Go keeps to and the cgroup's part.
func TestAvailableMemory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		soft   int64
		cgroup uint64
		err    error
		want   int64
	}{
		{"none", math.MaxInt64, 0, memlimit.ErrNoLimit, 0},
		{"a cgroup", math.MaxInt64, 1000, nil, 900},
		{"GOMEMLIMIT", 500, 0, memlimit.ErrNoLimit, 500},
		{"GOMEMLIMIT beside a cgroup", 500, 1000, nil, 500},
		{"GOMEMLIMIT beside a smaller cgroup", 5000, 1000, nil, 900},
	} {
		m := &memoryLimit{read: func() (uint64, error) { return test.cgroup, test.err }, set: func(limit int64) int64 {
			if limit >= 0 {
				t.Errorf("%s: Go's limit is changed", test.name)
			}
			return test.soft
		}}
		if got := m.available(); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
