package status

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/fakeapi"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// TestCountsThereAndBack writes counts and reads them.
func TestCountsThereAndBack(t *testing.T) {
	t.Parallel()
	many := map[string]PolicyCount{}
	for i := range 5000 {
		many[fmt.Sprintf("policy-%04d", i)] = PolicyCount{Evaluations: int64(i*i*7919) + 1, Refusals: int64(i * 31)}
	}
	for _, tc := range []struct {
		name   string
		counts map[string]PolicyCount
		limit  int
		// kept is how many come back, the most evaluated ones.
		kept int
	}{
		{"none", nil, maxCounts, 0},
		{"never asked", map[string]PolicyCount{"p": {}}, maxCounts, 0},
		{"one", map[string]PolicyCount{"p": {7, 1}}, maxCounts, 1},
		{"the most", map[string]PolicyCount{"p": {mostCount, mostCount}}, maxCounts, 1},
		{"many", many, maxCounts, 5000},
		{"more than there is room for", many, 10_000, -1},
		{"room for none", map[string]PolicyCount{"p": {7, 1}}, 5, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			text := encodeCounts(tc.counts, tc.limit)
			if len(text) > tc.limit {
				t.Errorf("%d bytes, which begin with %.5q", len(text), text)
			}
			back, err := decodeCounts(text)
			if err != nil {
				t.Fatal(err)
			}
			if tc.kept >= 0 && len(back) != tc.kept {
				t.Errorf("%d come back, want %d", len(back), tc.kept)
			}
			least := int64(math.MaxInt64)
			for name, count := range back {
				if tc.counts[name] != count {
					t.Errorf("%s is %v, want %v", name, count, tc.counts[name])
				}
				least = min(least, count.Evaluations)
			}
			if tc.kept >= 0 {
				return
			}
			if len(back) < 100 || len(back) == len(tc.counts) {
				t.Errorf("%d come back", len(back))
			}
			for name, count := range tc.counts {
				if _, is := back[name]; !is && count.Evaluations > least {
					t.Fatalf("%s with %d evaluations was left out, and one with %d was not", name, count.Evaluations, least)
				}
			}
		})
	}
}

// TestHostileCounts has what no replica of ours writes.
func TestHostileCounts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want string }{
		{"not an object", `[1,2]`, "not a JSON object"},
		{"no pairs", `{"p":{"a":1}}`, "not a JSON object"},
		{"half of an object", `{"p":[1,2]`, "not a JSON object"},
		{"no whole number", `{"p":[1.5,2]}`, "not a JSON object"},
		{"too large a number", `{"p":[9223372036854775808,2]}`, "not a JSON object"},
		{"below zero", `{"p":[-1,2]}`, "not within 0"},
		{"more than there can be", `{"p":[1,9007199254740993]}`, "not within 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if counts, err := decodeCounts(tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, %v, want an error with %q", counts, err, tc.want)
			}
		})
	}
}

func FuzzDecodeCounts(f *testing.F) {
	f.Add(`{"p":[1,2],"q":[3,0]}`)
	f.Fuzz(func(t *testing.T, text string) {
		counts, err := decodeCounts(text)
		if err != nil {
			return
		}
		for name, count := range counts {
			if count.Evaluations < 0 || count.Refusals < 0 {
				t.Errorf("%q has %v", name, count)
			}
		}
		again, err := decodeCounts(encodeCounts(counts, math.MaxInt))
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(counts, func(_ string, c PolicyCount) bool { return c == PolicyCount{} })
		if !maps.Equal(again, counts) {
			t.Errorf("%v came back as %v", counts, again)
		}
	})
}

// pods is a PodCounter.
type pods struct {
	running atomic.Int32
	counts  atomic.Pointer[map[string]v1alpha1.SidecarPodCounts]
	changed chan struct{}
}

func (p *pods) Run(ctx context.Context) {
	p.running.Add(1)
	<-ctx.Done()
	p.running.Add(-1)
}

func (p *pods) Counts() map[string]v1alpha1.SidecarPodCounts {
	if counts := p.counts.Load(); counts != nil {
		return *counts
	}
	return nil
}

func (p *pods) Changed() <-chan struct{} { return p.changed }

func (p *pods) now(injected int32) {
	p.counts.Store(&map[string]v1alpha1.SidecarPodCounts{"mesh": {Matched: 5, Injected: injected, CountedAt: metav1.Now()}})
	poke(p.changed)
}

// TestCounts adds up what replicas count.
func TestCounts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		policy, idle, profile := w.create("AdmissionPolicy", "p"), w.create("AdmissionPolicy", "idle"), w.create("SidecarProfile", "mesh")
		counter := &pods{changed: make(chan struct{}, 1)}
		var asked atomic.Int64
		counted := func(c *Config) {
			c.Pods = counter
			c.Policies = func() map[string]PolicyCount {
				return map[string]PolicyCount{"p": {asked.Load(), 2}, "unknown": {1, 1}}
			}
		}
		began := time.Now()
		asked.Store(10)
		a := w.start(t, "a", counted)
		a.Use(report("1", policy, idle, profile))
		elected()
		b := w.start(t, "b", counted)
		b.Use(report("1", policy, idle, profile))
		time.Sleep(2 * time.Minute)
		got := w.status(t, policy).Requests
		if got == nil || got.Evaluations != 20 || got.Refusals != 4 || !got.Since.Time.Equal(began) {
			t.Errorf("requests are %+v, want 20 and 4 since %s", got, began)
		}
		if w.status(t, idle).Requests != nil || w.status(t, profile).Pods != nil {
			t.Error("there are counts of what was not counted")
		}
		if counter.running.Load() != 1 {
			t.Errorf("pods are counted in %d replicas", counter.running.Load())
		}
		counter.now(3)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		first := w.status(t, profile).Pods
		if first == nil || first.Injected != 3 || first.Matched != 5 {
			t.Fatalf("pods are %+v", first)
		}
		// What changes all the time is written once a minute.
		start := time.Now()
		for i := range int32(600) {
			counter.now(i)
			asked.Add(1)
			time.Sleep(time.Second)
		}
		for _, resource := range []string{"sidecarprofiles/status", "admissionpolicies/status"} {
			if n := len(w.requests(start, func(a *fakeapi.Request) bool { return isStatusWrite(a) && a.Resource == resource })); n < 8 || n > 11 {
				t.Errorf("%d writes of %s in ten minutes", n, resource)
			}
		}
		time.Sleep(3 * time.Minute)
		if got := w.status(t, policy).Requests; got.Evaluations != 2*610 {
			t.Errorf("%d evaluations, want %d", got.Evaluations, 2*610)
		}
		// Conditions keep counts, and counts conditions.
		policy = w.edit(policy)
		a.Use(report("2", policy, idle, profile))
		b.Use(report("2", policy, idle, profile))
		settle()
		if got := w.wantStatus(t, policy, "observed 2, "+healthy); got.Requests == nil || got.Requests.Evaluations != 2*610 {
			t.Errorf("requests are %+v", got.Requests)
		}
		// Those of a replica that left do not count any more.
		a.stop()
		time.Sleep(3 * time.Minute)
		got = w.status(t, policy).Requests
		if got.Evaluations != 610 || !got.Since.After(began) {
			t.Errorf("requests are %+v, want those of one replica", got)
		}
		if counter.running.Load() != 1 {
			t.Errorf("pods are counted in %d replicas", counter.running.Load())
		}
		b.stop()
		if counter.running.Load() != 0 {
			t.Error("pods are counted after the end")
		}
	})
}

// TestHostileReports has Leases with our label that no replica wrote.
func TestHostileReports(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		policy := w.create("AdmissionPolicy", "p")
		for i, annotations := range []map[string]any{
			nil,
			{digestAnnotation: strings.Repeat("x", 10_000), startedAnnotation: "yesterday", countsAnnotation: "no"},
			{digestAnnotation: "1", startedAnnotation: "9999-12-31T23:59:59Z", countsAnnotation: `{"p":[9007199254740992,9007199254740992]}`},
			{digestAnnotation: "1", startedAnnotation: "0001-01-01T00:00:00Z", countsAnnotation: `{"p":[9007199254740992,1]}`},
		} {
			w.Put(map[string]any{
				"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
				"metadata": map[string]any{
					"name": fmt.Sprintf("l%d", i), "namespace": "gatehouse-system", "labels": map[string]any{reportLabel: "gatehouse"}, "annotations": annotations,
				},
			})
		}
		a := w.start(t, "a")
		a.Use(report("1", policy))
		settle()
		got := w.wantStatus(t, policy, "observed 1, Compiled True Compiled, Ready Unknown WaitingForReplicas, Degraded False Healthy")
		if text := conditionOf(got.Conditions, "Ready").Message; !strings.Contains(text, `"l0", "l1"`) {
			t.Errorf("Ready says %q", text)
		}
		time.Sleep(90 * time.Second)
		w.wantStatus(t, policy, "observed 1, "+healthy)
		if got := w.status(t, policy).Requests; got == nil || got.Evaluations != mostCount || got.Since.Year() != 1 {
			t.Errorf("requests are %+v", got)
		}
		time.Sleep(20 * time.Minute)
		if n := w.reports(); n != 1 {
			t.Errorf("%d reports are kept", n)
		}
		a.stop()
	})
}
