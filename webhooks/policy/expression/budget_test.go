package expression_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
)

// TestSameWithin has several comparisons share what they may spend.
func TestSameWithin(t *testing.T) {
	t.Parallel()
	reads := compile(t, sharedCompiler(), nil, "object.a.all(x, x.b == 1) && object.c == 1 && object.d.e == 1").Reads()
	object := parse(t, `{"a": [{"b": 2}, {"b": 1}], "c": 1, "d": {"e": 1}}`)
	old := parse(t, `{"d": {"e": 1}, "c": 1, "a": [{"b": 3}, {"b": 2}, {"b": 1}]}`)
	budget := expression.MostCompared
	if !reads.SameWithin(object, old, &budget) {
		t.Fatal("not the same")
	}
	cost := expression.MostCompared - budget
	if cost <= 0 || cost > 100*len(object) {
		t.Errorf("it cost %d", cost)
	}
	budget = 3 * cost
	for i := range 3 {
		if !reads.SameWithin(object, old, &budget) {
			t.Errorf("%d: not the same with %d left", i, budget)
		}
	}
	if budget != 0 {
		t.Errorf("%d left: a comparison does not cost the same each time", budget)
	}
	if reads.SameWithin(object, old, &budget) || reads.SameWithin(object, object, &budget) {
		t.Error("the same with nothing left")
	}
}

// TestMostCompared has how much CPU time it takes to spend all that there is, and how much
// is remembered meanwhile. It is not parallel: what others remember would count.
//
//nolint:paralleltest // it measures
func TestMostCompared(t *testing.T) {
	size := race.Cases(3 << 20)
	compiler := sharedCompiler()
	fill := func(open, end string, element func(i int) string) string {
		var text strings.Builder
		text.WriteString(open)
		for i := 0; text.Len() < size; i++ {
			if i > 0 {
				text.WriteByte(',')
			}
			text.WriteString(element(i))
		}
		return text.String() + end
	}
	member := func(from, by int) func(i int) string {
		return func(i int) string { return fmt.Sprintf(`"%d":0`, from+by*i) }
	}
	for name, test := range map[string]struct{ expression, old, object string }{
		"numbers": {
			"object.a.all(x, x == 1)", fill(`{"a":[`, `]}`, func(int) string { return "1" }), fill(`{"a":[2,`, `]}`, func(int) string { return "1" }),
		},
		"lists": {
			"object.a.all(x, x.size() == 1)", fill(`{"a":[[],`, `]}`, func(int) string { return "[0]" }), fill(`{"a":[`, `,[]]}`, func(int) string { return "[0]" }),
		},
		"members":        {"object.a.all(x, x == '')", fill(`{"a":{`, `}}`, member(1e6, 1)), fill(`{"a":{`, `}}`, member(2e6, -1))},
		"members, whole": {"object.a == object.b", fill(`{"a":{`, `}}`, member(1e6, 1)), fill(`{"a":{`, `}}`, member(2e6, -1))},
		"names with escapes": {
			"object.a.all(x, x == '')",
			fill(`{"a":{`, `}}`, func(i int) string { return fmt.Sprintf(`"\u0061%d":0`, i) }),
			fill(`{"a":{"":0,`, `}}`, func(i int) string { return fmt.Sprintf(`"\u0061%d":0`, i) }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			reads := compile(t, compiler, nil, test.expression).Reads()
			object, old := parse(t, test.object), parse(t, test.old)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			budget, inTime := expression.MostCompared, timely(t, 2*time.Second)
			for range 100 {
				reads.SameWithin(object, old, &budget)
			}
			inTime()
			runtime.ReadMemStats(&after)
			bytes := after.TotalAlloc - before.TotalAlloc
			t.Logf("remembered %d bytes; %d left", bytes, budget)
			// It is half as much without the race detector.
			if bytes > 20<<20 {
				t.Errorf("remembered %d bytes", bytes)
			}
		})
	}
}
