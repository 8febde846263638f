package cluster

import (
	"fmt"
	"runtime"
	"testing"
)

// A cluster of ten thousand namespaces as people have them, with what tools write
// into them, must not cost more than a handful of profiles.
func TestMemory(t *testing.T) {
	const count, most = 10_000, 2 << 10
	a := newAPIServer()
	for i := range count {
		put(t, a, namespaceKind, fmt.Sprintf(`{"metadata":{"name":"team-%[1]d-production","uid":"0c6f1a8e-4f6b-4c55-9d8e-%012[1]d","creationTimestamp":"2026-11-20T11:00:00Z",
			"labels":{"kubernetes.io/metadata.name":"team-%[1]d-production","pod-security.kubernetes.io/enforce":"baseline","team":"team-%[1]d","env":"production"},
			"annotations":{"owner":"team-%[1]d@example.com","cost-centre":"%[1]d"}},
			"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`, i))
	}
	c, _ := connected(t, a)
	before := heap()
	v := c.view(WatchTargets{Namespaces: true})
	read(t, v)
	used := heap() - before
	if _, known := v.Namespace("team-9999-production"); !known {
		t.Fatal("it has not been read")
	}
	t.Logf("%d bytes for each of %d namespaces, %.1f MiB in all", used/count, count, float64(used)/(1<<20))
	if used/count > most {
		t.Errorf("%d bytes for a namespace, want at most %d", used/count, most)
	}
	runtime.KeepAlive(v)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
