package mutation_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// TestMemory holds how much memory 100 policies take, without the schemas of the kinds, of which there is one for all sets.
//
//nolint:paralleltest // it measures the memory of the process
func TestMemory(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	builtin.TypeConverter()
	schemas := heap() - before
	var text strings.Builder
	for i := range 100 {
		text.WriteString(one(fmt.Sprintf("p%03d", i), `matchConditions: [{name: c, expression: "object.metadata.name.startsWith('web')"}]
variables: [{name: v, expression: "object.spec.containers.filter(c, !has(c.resources))"}]`,
			`Object{metadata: Object.metadata{labels: {"x": string(size(variables.v))}}}`, `[JSONPatch{op: "add", path: "/metadata/annotations/x", value: "y"}]`))
	}
	spec := documents(t, text.String())
	first, err := mutation.Compile(mutation.Spec{Policies: spec.Policies[:1], Bindings: spec.Bindings[:1]})
	must(t, err)
	before = heap()
	set, err := mutation.Compile(spec)
	must(t, err)
	const most = 20 << 20
	if taken := heap() - before; taken > most {
		t.Errorf("100 policies take %d bytes, allowed are %d", taken, most)
	} else {
		t.Logf("100 policies take %d bytes, the schemas %d", taken, schemas)
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(set)
}
