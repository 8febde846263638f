package console

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
)

const (
	// sampleEvery is the time between samples of the metrics, and sampleAge how long one serves several parts of a page.
	sampleEvery = 15 * time.Second
	sampleAge   = 5 * time.Second
	// watchTime is how long samples are taken after a look at the page.
	watchTime = 5 * time.Minute
	// maxPoints bounds the samples that are kept: those of an hour.
	maxPoints = 240
)

// sample is what the replicas show at one time. It is immutable.
type sample struct {
	at   time.Time
	pods []corev1.Pod
	// metrics are those of the replicas that could be read, by the name of the pod, and running is the number of replicas that run.
	metrics map[string]*replicas.Metrics
	running int
	errs    []error
}

// isComplete reports whether the metrics of all replicas that run are known.
func (s *sample) isComplete() bool { return s.running > 0 && len(s.metrics) == s.running }

// names returns the replicas whose metrics are known, sorted.
func (s *sample) names() []string { return slices.Sorted(maps.Keys(s.metrics)) }

// point is what of a sample is kept: the number of reviews by replica and decision.
type point struct {
	at      time.Time
	reviews map[string]map[string]float64
}

// observer takes samples of the replicas, with the rights of the user of the kubeconfig, while a page shows them.
type observer struct {
	now func() time.Time
	// connect returns a connection to the cluster.
	connect func() (*replicas.Cluster, error)

	taking singleflight.Group

	mu sync.Mutex
	// cluster is the connection: all samples are of one cluster and one user.
	cluster    *replicas.Cluster
	last       *sample
	points     []point
	watching   bool
	watchUntil time.Time
}

// newCluster returns the replicas in the cluster of the flags.
func (f *flags) newCluster() (*replicas.Cluster, error) {
	access, err := f.Connect("--in-cluster in a pod")
	if err != nil {
		return nil, err
	}
	access.UserAgent = "gatehouse-console/" + build.Version()
	return replicas.NewCluster(access)
}

// sample returns what the replicas show, as of a few seconds ago at most. Program is the context of the program: a sample serves
// several requests.
func (o *observer) sample(ctx, program context.Context) (*sample, error) {
	o.mu.Lock()
	last := o.last
	o.mu.Unlock()
	if last != nil && o.now().Sub(last.at) < sampleAge {
		return last, nil
	}
	taken := o.taking.DoChan("", func() (any, error) { return o.take(program) })
	select {
	case result := <-taken:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*sample), nil //nolint:forcetypeassert // take returns it
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// connection returns the connection to the cluster.
func (o *observer) connection() (*replicas.Cluster, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cluster != nil {
		return o.cluster, nil
	}
	var err error
	o.cluster, err = o.connect()
	return o.cluster, err
}

// take takes a sample.
func (o *observer) take(ctx context.Context) (*sample, error) {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	cluster, err := o.connection()
	if err != nil {
		return nil, err
	}
	s := &sample{at: o.now(), metrics: map[string]*replicas.Metrics{}}
	if s.pods, err = cluster.Pods(ctx); err != nil {
		return nil, err
	}
	running, err := cluster.Running(s.pods)
	if err != nil {
		return nil, err
	}
	s.running = len(running)
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, r := range running {
		group.Go(func() {
			metrics, err := r.Metrics(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.errs = append(s.errs, fmt.Errorf("replica %s: %w", r.Name, err))
				return
			}
			s.metrics[r.Name] = metrics
		})
	}
	group.Wait()
	o.keep(s)
	return s, nil
}

// keep adds a sample to those that are kept.
func (o *observer) keep(s *sample) {
	p := point{s.at, map[string]map[string]float64{}}
	for name, m := range s.metrics {
		p.reviews[name] = m.SumBy("gatehouse_reviews_total", "decision")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = s
	if len(p.reviews) > 0 {
		o.points = append(o.points, p)
	}
	if n := len(o.points) - maxPoints; n > 0 {
		o.points = slices.Delete(o.points, 0, n)
	}
}

// watch takes samples for the next minutes, until the program ends.
func (o *observer) watch(program context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watchUntil = o.now().Add(watchTime)
	if o.watching {
		return
	}
	o.watching = true
	go func() {
		for sleep.Context(program, sampleEvery) && o.mayWatch() {
			_, _ = o.sample(program, program) // a page shows why there is none
		}
	}()
}

func (o *observer) mayWatch() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watching = o.now().Before(o.watchUntil)
	return o.watching
}

// rate is the number of decisions a minute between two samples, by decision.
type rate struct {
	At    time.Time
	By    map[string]float64
	Total float64
}

// rates returns the decisions a minute between the samples.
func (o *observer) rates() []rate {
	o.mu.Lock()
	points := slices.Clone(o.points)
	o.mu.Unlock()
	var out []rate
	for i := 1; i < len(points); i++ {
		if minutes := points[i].at.Sub(points[i-1].at).Minutes(); minutes > 0 {
			out = append(out, rateBetween(points[i-1], points[i], minutes))
		}
	}
	return out
}

// rateBetween compares two samples. A replica that is new in the second one may have counted before, and one that counts less
// has started again.
func rateBetween(a, b point, minutes float64) rate {
	r := rate{At: b.at, By: map[string]float64{}}
	for name, after := range b.reviews {
		before, known := a.reviews[name]
		if !known {
			continue
		}
		for decision, n := range after {
			n -= before[decision]
			if n < 0 {
				n += before[decision]
			}
			r.By[decision] += n / minutes
			r.Total += n / minutes
		}
	}
	return r
}
