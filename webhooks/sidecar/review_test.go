package sidecar_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
	"github.com/gatehouse-dev/gatehouse/webhooks/workload"
)

// TestReasonsAreTold: every reason has words of its own, and one name.
func TestReasonsAreTold(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, r := range sidecar.Reasons() {
		text := r.Text()
		if text == "" || text == string(r) || seen[text] || seen[string(r)] {
			t.Errorf("reason %q is told as %q", r, text)
		}
		seen[text], seen[string(r)] = true, true
	}
}

// TestObserver sees the verdicts of what is not a dry run, which is to leave no
// trace.
func TestObserver(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("a", "{}", "OptOut"), spec("b", "{}", "OptIn"))
	for _, tc := range []struct {
		name  string
		dry   *bool
		calls int
	}{{"unset", nil, 1}, {"no dry run", new(bool), 1}, {"a dry run", new(true), 0}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := request("shop", `{"spec":{}}`)
			r.DryRun = tc.dry
			var seen []sidecar.Reason
			calls := 0
			observed := set.ReviewObserved(t.Context(), r, nil, func(verdicts []sidecar.Verdict) {
				calls++
				for _, v := range verdicts {
					seen = append(seen, v.Reason)
				}
			})
			if calls != tc.calls || calls > 0 && !slices.Equal(seen, []sidecar.Reason{sidecar.Applied, sidecar.NotAsked}) {
				t.Errorf("%d calls saw %v", calls, seen)
			}
			// A dry run has the same answer as any other.
			plain := set.Review(t.Context(), request("shop", `{"spec":{}}`))
			check(t, "pod", apply(t, `{"spec":{}}`, observed.Patches), apply(t, `{"spec":{}}`, plain.Patches))
		})
	}
}

// TestElements: a pod with more elements than are looked at is refused, and not left to
// the webhook that fails open, by which it would do without what all others get.
func TestElements(t *testing.T) {
	t.Parallel()
	set := compile(t, spec("a", "{}", "OptOut"))
	for n, code := range map[int]int32{workload.MaxElements: 0, workload.MaxElements + 1: 422} {
		volumes := strings.TrimSuffix(strings.Repeat(`{"name":"v","emptyDir":{}},`, n), ",")
		got := set.Review(t.Context(), request("shop", `{"spec":{"containers":[{"name":"app","image":"x"}],"volumes":[`+volumes+`]}}`))
		if got.Allowed != (code == 0) || code != 0 && got.Result.Code != code {
			t.Errorf("%d volumes: allowed %t, %+v", n, got.Allowed, got.Result)
		}
	}
}
