package console

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replicas"
)

// sampleAge is how long one sample serves the parts of a page.
const sampleAge = 5 * time.Second

// sample is what the replicas show at one time. It is immutable.
type sample struct {
	at   time.Time
	pods []corev1.Pod
	// metrics are those of the replicas that could be read, by the name of the pod.
	metrics map[string]*replicas.Metrics
	errs    []error
}

// observer takes samples of the replicas, with the rights of the user of the kubeconfig. All are of one cluster and one user.
type observer struct {
	// sampling allows one sample at a time, and guards last.
	sampling sync.Mutex
	last     *sample

	// mu guards the following. The mirror follows the recordings of the replicas once a page has shown them.
	mu      sync.Mutex
	cluster *replicas.Cluster
	mirror  *replicas.Mirror
	err     error
}

// connection returns the connection to the servers of the cluster. If they cannot be found, they are where the manifests put them.
func (o *observer) connection(ctx context.Context, f *flags) (*replicas.Cluster, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cluster != nil {
		return o.cluster, nil
	}
	access, err := f.Connect("--in-cluster in a pod")
	if err != nil {
		return nil, err
	}
	access.UserAgent = "gatehouse-console/" + build.Version()
	found, err := replicas.Find(ctx, access)
	if err != nil {
		return replicas.NewCluster(access)
	}
	o.cluster = found
	return found, nil
}

// sample returns what the replicas show, as of a few seconds ago at most, and what it lacks.
func (c *console) sample(ctx context.Context) (s *sample, notes []string, err error) {
	o := &c.observer
	o.sampling.Lock()
	defer o.sampling.Unlock()
	if s = o.last; s == nil || c.now().Sub(s.at) >= sampleAge {
		cluster, err := o.connection(ctx, c.flags)
		if err != nil {
			return nil, nil, err
		}
		if s, err = takeSample(ctx, cluster, c.now()); err != nil {
			return nil, nil, err
		}
		o.last = s
	}
	return s, explainAll(s.errs), nil
}

// takeSample reads the pods and the metrics of all replicas.
func takeSample(ctx context.Context, cluster *replicas.Cluster, now time.Time) (s *sample, err error) {
	s = &sample{at: now, metrics: map[string]*replicas.Metrics{}}
	if s.pods, err = cluster.Pods(ctx); err != nil {
		return nil, err
	}
	if len(s.pods) == 0 {
		s.errs = append(s.errs, fmt.Errorf("there is no pod with %s", cluster))
	}
	running, err := cluster.Running(s.pods)
	if err != nil {
		return nil, err
	}
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
	return s, nil
}
