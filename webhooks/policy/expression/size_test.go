package expression_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// TestSize has how much memory a compiled expression takes: a cel.Program takes 15
// KiB more. It is not parallel: what others allocate would count.
//
//nolint:paralleltest // it measures
func TestSize(t *testing.T) {
	const count, most = 500, 6 << 10 // bytes for each
	compiler := sharedCompiler()
	compile(t, compiler, nil, "object.metadata.name == 'first'")
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	programs := make([]*expression.Program, count)
	for i := range programs {
		programs[i] = compile(t, compiler, nil, fmt.Sprintf("object.spec.containers.all(c, c.image.startsWith('registry-%d.example.com/'))", i))
	}
	each := (int64(heap()) - int64(before)) / count
	runtime.KeepAlive(programs)
	t.Logf("%d bytes each", each)
	if each > most {
		t.Errorf("an expression takes %d bytes, more than %d", each, most)
	}
}
