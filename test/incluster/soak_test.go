//go:build soak

package incluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/kubelet"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// soakVariable is for how long, as a duration.
const soakVariable = "SOAK"

// gauges are what must not grow, and by how much it may without being a leak: a tenth, and this.
var gauges = []struct {
	metric string
	unit   float64
	spare  float64
}{
	{"process_resident_memory_bytes", 1 << 20, 4},
	{"go_memstats_heap_alloc_bytes", 1 << 20, 4},
	{"go_goroutines", 1, 20},
	{"process_open_fds", 1, 10},
}

// Two replicas answer for a long time while configuration changes, and a third comes and goes. Their memory, goroutines and
// files are the same in the end as in the beginning, and no call fails.
func TestSoak(t *testing.T) {
	const usual = 30 * time.Minute
	lasts := usual
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		must(t, err)
	}
	if lasts < time.Minute {
		t.Fatalf("%s is %s: nothing is seen in less than a minute", soakVariable, lasts)
	}
	s := newSite(t, cluster.Options{})
	s.applyInstall(t, adjusted(t, s.kustomized(t), 3))
	s.waitForReplicas(t, 3)
	s.createWorkloads(t)
	pods := s.kubelet.Pods()
	stay := pods[:2]

	l := s.steadyLoad(t)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var group sync.WaitGroup
	var churned, replaced int
	var churnErr, replaceErr error
	group.Go(func() { churned, churnErr = s.churn(ctx) })
	group.Go(func() { replaced, replaceErr = s.replaceOthers(ctx, stay, lasts/10) })
	samples := sample(ctx, stay, lasts/300)
	group.Wait()
	l.End()

	t.Logf("%s; %d changes of configuration; %d replicas were replaced\n%s", l, churned, replaced, samples.table(stay))
	must(t, errors.Join(churnErr, replaceErr))
	for _, pod := range stay {
		const least = 50
		if n := len(samples[pod.Name]); n < least {
			t.Fatalf("%s was looked at %d times, want %d at least", pod.Name, n, least)
		}
	}
	if l.Failed() > 0 {
		t.Errorf("calls failed: %s", l.Why())
	}
	for _, pod := range stay {
		if pod.Restarts() > 0 {
			t.Errorf("%s was started again", pod.Name)
		}
		for i, g := range gauges {
			first, last := samples.ends(pod, i)
			if most := first*1.1 + g.spare; last > most {
				t.Errorf("%s: %s grew from %.1f to %.1f, want %.1f at most", pod.Name, g.metric, first, last, most)
			}
		}
	}
	if churned == 0 || replaced == 0 {
		t.Errorf("there were %d changes and %d replacements, want some", churned, replaced)
	}
}

// steadyLoad makes calls of all kinds, as many a second as leave some of the machine to others.
func (s *site) steadyLoad(t *testing.T) *load.Load {
	t.Helper()
	const pace = 5 * time.Millisecond
	c := s.caller(t)
	tick := time.NewTicker(pace)
	t.Cleanup(tick.Stop)
	callers := make([]int, load.Callers)
	l := load.Start(t.Context(), func(ctx context.Context, caller int) error {
		<-tick.C
		callers[caller]++ // each has its own
		return c.call(ctx, caller+callers[caller])
	})
	t.Cleanup(func() { l.End() })
	return l
}

// churn changes configuration until the context ends: a profile and a policy are changed, others come and go.
func (s *site) churn(ctx context.Context) (changes int, err error) {
	const pause = time.Second
	for i := 0; sleep.Context(ctx, pause); i++ {
		name := fmt.Sprintf("churn-%d", i%5)
		documents := []string{largePolicy(i%7, fmt.Sprintf("mark-%d", i)), largeProfile(i%7, fmt.Sprintf("mark-%d", i))}
		_, err = s.kubectl(ctx, strings.Join(documents, "\n---\n")+"\n---"+profile(name), "apply", "--server-side", "--filename", "-")
		if err == nil && i%5 == 4 {
			_, err = s.kubectl(ctx, "", "delete", "sidecarprofile", name, fmt.Sprintf("profile-%d", i%7))
		}
		switch {
		case ctx.Err() != nil: // it was cut off
		case err != nil:
			return changes, err
		default:
			changes++
		}
	}
	return changes, nil
}

// replaceOthers deletes a replica that is not to stay again and again, until the context ends.
func (s *site) replaceOthers(ctx context.Context, stay []*kubelet.Pod, every time.Duration) (replaced int, err error) {
	for sleep.Context(ctx, every) {
		for _, pod := range s.kubelet.Pods() {
			if slices.Contains(stay, pod) || !pod.Ready() {
				continue
			}
			err := s.Client().CoreV1().Pods(system).Delete(ctx, pod.Name, metav1.DeleteOptions{})
			if err != nil && ctx.Err() == nil {
				return replaced, err
			}
			replaced++
			break
		}
	}
	return replaced, nil
}

// sampled are the values of the gauges by the name of a replica, in the order of time.
type sampled map[string][][]float64

// sample looks at replicas until the context ends.
func sample(ctx context.Context, pods []*kubelet.Pod, every time.Duration) sampled {
	found := sampled{}
	for sleep.Context(ctx, every) {
		for _, pod := range pods {
			values := make([]float64, len(gauges))
			complete := true
			for i, g := range gauges {
				value, err := metric(ctx, pod, g.metric)
				values[i] = value / g.unit
				complete = complete && err == nil
			}
			if complete { // a busy machine may be late, and a replica that is gone is told by its restarts
				found[pod.Name] = append(found[pod.Name], values)
			}
		}
	}
	return found
}

// ends are the medians of the first third and of the last third of a gauge, after a warm-up of a sixth.
func (s sampled) ends(pod *kubelet.Pod, gauge int) (first, last float64) {
	values := s[pod.Name]
	values = values[len(values)/6:]
	third := len(values) / 3
	return median(values[:third], gauge), median(values[len(values)-third:], gauge)
}

func median(values [][]float64, gauge int) float64 {
	if len(values) == 0 {
		return 0
	}
	var one []float64
	for _, v := range values {
		one = append(one, v[gauge])
	}
	slices.Sort(one)
	return one[len(one)/2]
}

// table is what was sampled, in tenths of the time.
func (s sampled) table(pods []*kubelet.Pod) string {
	const columns = 10
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, pod := range pods {
		values := s[pod.Name]
		for i, g := range gauges {
			line := pod.Name + "\t" + g.metric + "\t"
			for c := range columns {
				line += fmt.Sprintf("%.1f\t", median(values[c*len(values)/columns:(c+1)*len(values)/columns], i))
			}
			_, _ = w.Write([]byte(line + "\n")) // it ends in a strings.Builder, which takes everything
		}
	}
	_ = w.Flush()
	return text.String()
}
