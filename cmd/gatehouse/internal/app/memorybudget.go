package app

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	// defaultInFlight and defaultConnections are --max-in-flight-bytes and --max-connections
	// without a memory limit.
	defaultInFlight    = 128 << 20
	defaultConnections = 2048
	// minInFlight and minConnections are the least, however small the memory limit is.
	minInFlight    = 8 << 20
	minConnections = 16
	// programBytes is the memory of the program beside the live heap (measured: RSS of 52
	// MiB with a heap of 6 MiB). The heap counts twice, because a changed configuration is
	// read beside the old one.
	programBytes = 40 << 20
	// connectionBytes is the memory of a connection (measured: HTTP/1.1 43 KiB, HTTP/2 61
	// KiB, with half a header of 15 KiB 79 KiB). One over HTTP/2 counts as up to 16, because of its streams and what it may have received.
	connectionBytes = 64 << 10
	// memoryRatio is the part of the cgroup's limit that the process may take.
	memoryRatio = 0.9
)

// memoryBudget divides the memory of the process.
type memoryBudget struct {
	// limit is the soft limit of the process, 0 without one, and base its memory without any
	// connection.
	limit, base int64
	// inFlight bounds the memory of reviews, and connections the connections without a
	// client certificate.
	inFlight    int64
	connections int
	// authorize reports whether a part of the memory of reviews is for those of access.
	authorize bool
}

// divideMemory returns a budget. Flags that are 0 default to what fits: of the memory beside
// the program, half is for reviews and a sixth for connections. The last third is for
// uncollected garbage and for decisions. Others is the memory of background work. Files is
// the limit of open files, 0 without one: a connection is an open file.
func divideMemory(limit, liveHeap, others, inFlight int64, connections int, files uint64) memoryBudget {
	b := memoryBudget{limit: limit, base: programBytes + 2*liveHeap + others, inFlight: inFlight, connections: connections}
	left := max(0, limit-b.base)
	if b.connections == 0 {
		b.connections = defaultConnections
		if limit > 0 {
			b.connections = int(min(defaultConnections, max(minConnections, left/6/connectionBytes)))
		}
		if files > 0 {
			b.connections = min(b.connections, openFilesFor(files))
		}
	}
	if b.inFlight == 0 {
		b.inFlight = defaultInFlight
		if limit > 0 {
			b.inFlight = max(minInFlight, left/2)
		}
	}
	return b
}

// openFilesFor returns how many of the process's open files are for connections without a
// client certificate. The others are for certified connections, health and metrics, files,
// and the API server.
func openFilesFor(files uint64) int {
	const others = 256
	return int(files - min(others, files/2)) //nolint:gosec // a limit of open files
}

// problems returns the problems of the budget, with hints.
func (b *memoryBudget) problems(files uint64) []string {
	var all []string
	need := b.base + int64(b.connections)*connectionBytes + b.inFlight
	if b.limit > 0 && need > b.limit {
		all = append(all, fmt.Sprintf("under load the process can exceed its memory limit: it uses %d bytes, %d connections %d and reviews %d, in total %d; the limit is %d (hint: raise the memory limit, or omit --max-in-flight-bytes and --max-connections)",
			b.base, b.connections, int64(b.connections)*connectionBytes, b.inFlight, need, b.limit))
	}
	if largest := server.LargestReview(b.inFlight, b.authorize); largest < review.MaxAdmissionBytes {
		all = append(all, fmt.Sprintf("reviews larger than %d bytes are rejected, but API servers send up to %d: all reviews together have %d bytes of memory (hint: raise the memory limit, or --max-in-flight-bytes)",
			largest, review.MaxAdmissionBytes, b.inFlight))
	}
	if files > 0 && b.connections > openFilesFor(files) {
		all = append(all, fmt.Sprintf("%d connections leave no file descriptors for health checks and the API server: the limit of open files is %d (hint: raise the limit, or lower --max-connections)",
			b.connections, files))
	}
	return all
}

// budget divides the memory of the process and logs the result.
func (f *Options) budget(m *memoryLimit, log *slog.Logger) memoryBudget {
	runtime.GC() // what was read for the configuration is garbage by now
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	files := openFiles()
	var others int64
	if f.Auditing.Every > 0 {
		others = auditBytes
	}
	b := divideMemory(m.available(), int64(min(stats.HeapAlloc, math.MaxInt64/4)), others, f.InFlight, f.Connections, files)
	b.authorize = f.Authorize
	// Logged when serve starts, with the limits that follow from the memory limit and the flags.
	log.Info("limits", "maxInFlightBytes", b.inFlight, "maxConnections", b.connections, "largestReviewBytes", server.LargestReview(b.inFlight, b.authorize))
	for _, problem := range b.problems(files) {
		log.Warn("limits", "problem", problem)
	}
	return b
}

// available returns the memory that the process may take, 0 without a limit: Go's soft
// limit, and at most a part of the cgroup's limit.
func (m *memoryLimit) available() int64 {
	limit := m.set(-1) // changes nothing
	if of, err := m.read(); err == nil {
		if part := memoryRatio * float64(of); part < float64(limit) {
			limit = int64(part)
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}
