package admission_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/internal/race"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// expensive are objects that take much memory and time to compile, and why each is
// refused.
func expensive() map[string][2]string {
	list := func(n int, format string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(format, i)
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	pattern := func(length int) string {
		return strings.Repeat(`(abcdefgh){900}`, length/15)
	}
	const together = "are too large in total"
	return map[string][2]string{
		"patterns of parameters, 20 KiB":  {profile("a", "proxy", "  parameters: "+list(20, "{name: p%d, type: string, pattern: '"+pattern(1000)+"'}")), "too large to check"},
		"patterns of parameters, 101 KiB": {profile("a", "proxy", "  parameters: "+list(100, "{name: p%d, type: string, pattern: '"+pattern(1000)+"'}")), "too large to check"},
		"many small patterns":             {profile("a", "proxy", "  parameters: "+list(900, "{name: p%d, type: string, pattern: '(ab){50}'}")), together},
		"conditions of a profile":         {profile("a", "proxy", "  match: {matchConditions: "+list(900, "{name: c%d, expression: \"pod.metadata.name == 'x%[1]d'\"}")+"}"), together},
		"placeholders":                    {profile("a", "proxy", "  appContainers: [{template: {env: "+list(900, "{name: E%d, value: \"${pod.metadata.name + 'x%[1]d'}\"}")+"}}]"), together},
		"rules, 490 KiB":                  {admissionPolicy("p", "  validations: "+list(990, "{expression: \"object.metadata.name != 'x%d' && object.metadata.name != '"+strings.Repeat("x", 400)+"'\"}")), together},
		"many short rules":                {admissionPolicy("p", "  validations: "+list(990, "{expression: \"%d == 1\"}")), together},
		"one long rule":                   {admissionPolicy("p", "  validations: [{expression: \""+strings.Repeat("true && ", 20_000)+"true\"}]"), "too large"},
		"too many rules to look at":       {admissionPolicy("p", "  validations: "+list(2000, "{expression: \"%d == 1\"}")), "has a list of 2000 elements, the maximum is 1000"},
	}
}

// TestExpensive refuses what is expensive to compile before it is compiled: the memory
// that a review takes from the heap, what is freed meanwhile included, stays far below
// what the program may have.
func TestExpensive(t *testing.T) { //nolint:paralleltest // it counts what is allocated meanwhile
	for name, tc := range expensive() {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			r := reviewer(configOf(t))
			req := about(t, tc[0], "")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			response := r.Review(t.Context(), req, false)
			runtime.ReadMemStats(&after)
			if response.Allowed || response.Result.Code != 422 || !strings.Contains(response.Result.Message, tc[1]) {
				t.Errorf("answered %.300s, want %q", response.Result.Message, tc[1])
			}
			allocated := int64(after.TotalAlloc-before.TotalAlloc) >> 20 //#nosec G115 -- it grows
			t.Logf("a request of %d KiB allocates %d MiB", len(req.Object.Raw)>>10, allocated)
			// The race detector drops what sync.Pool keeps, at random.
			if allocated > 96 && !race.Enabled {
				t.Errorf("%d MiB were allocated", allocated)
			}
		})
	}
}

// TestWaiting holds that callers without a certificate wait for each other, until their
// contexts end, and that callers with one do not wait for them.
func TestWaiting(t *testing.T) {
	t.Parallel()
	c := configOf(t)
	document := profile("a", "proxy", "")
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, make(chan struct{})
		r := crdadmission.New(func() *config.Config {
			if asked++; asked == 1 {
				<-answer
			}
			return c
		})
		first := make(chan string)
		go func() { first <- text(t, r.Review(t.Context(), about(t, document, ""), false)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := text(t, r.Review(ctx, about(t, document, ""), false)); got != "cannot decide: no decision in time: context deadline exceeded" {
			t.Errorf("one that waits is answered %s", got)
		}
		if got := text(t, r.Review(t.Context(), about(t, document, ""), true)); !strings.HasPrefix(got, "allowed") {
			t.Errorf("one with a certificate is answered %s", got)
		}
		close(answer)
		if got := <-first; !strings.HasPrefix(got, "allowed") {
			t.Errorf("the first is answered %s", got)
		}
	})
}
