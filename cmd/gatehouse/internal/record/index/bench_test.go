package index_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record/index"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
)

// BenchmarkMillion measures an index of a million reviews: the first start, later ones, and filters.
func BenchmarkMillion(b *testing.B) {
	const million = 1_000_000
	path := recording(b, filepath.Join(b.TempDir(), "all.gatehouse.zst"), 0, million, record.MaxSegmentReviews)
	b.Run("Build", func(b *testing.B) {
		for range b.N {
			_ = os.Remove(path + record.IndexSuffix)
			x, stop := start(b, path)
			wait(b, x, hasRows(million))
			stop()
		}
	})
	b.Run("Open", func(b *testing.B) {
		for range b.N {
			x, stop := start(b, path)
			wait(b, x, hasRows(million))
			stop()
		}
	})
	x, _ := start(b, path)
	wait(b, x, hasRows(million))
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	b.Logf("%d MiB of heap", memory.HeapAlloc>>20)
	for _, bench := range []struct {
		name   string
		filter index.Filter
	}{
		{"All", index.Filter{}},
		{"User", index.Filter{Users: []string{"system:serviceaccount:team-7:deployer"}}},
		{"NamespaceKindDenied", index.Filter{Namespaces: []string{"team-7"}, Kinds: []string{"Pod"}, Decisions: []string{"denied"}}},
		{"Policy", index.Filter{Policies: []string{"limits"}}},
		{"Time", index.Filter{From: begin.Add(time.Hour), To: begin.Add(2 * time.Hour)}},
		{"Name", index.Filter{Text: "out-40-0"}},
	} {
		b.Run("Find/"+bench.name, func(b *testing.B) {
			for range b.N {
				find(b, x, bench.filter, 0, 50)
			}
		})
	}
	b.Run("LastPage", func(b *testing.B) {
		for range b.N {
			find(b, x, index.Filter{}, million-50, 50)
		}
	})
	b.Run("Histogram", func(b *testing.B) {
		for range b.N {
			_, err := x.Histogram(b.Context(), index.Filter{}, 60)
			check(b, err)
		}
	})
	b.Run("TopCauses", func(b *testing.B) {
		for range b.N {
			_, err := x.TopCauses(b.Context(), index.Filter{Effects: []replay.Effect{replay.Refused}}, false, 10)
			check(b, err)
		}
	})
	b.Run("ReadLastOfSegment", func(b *testing.B) {
		for range b.N {
			rows, err := x.ByID(fmt.Sprintf("7c0f8d9e-5d53-4d3e-9a54-%012x", record.MaxSegmentReviews-1))
			check(b, err)
			_, err = x.Read(b.Context(), &rows[0])
			check(b, err)
		}
	})
}
