package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// maxListed bounds the objects of one kind that a page reads.
const (
	listPage  = 500
	maxListed = 5000
)

// statuses returns the custom resources with their status, and what could not be read.
func (c *console) statuses(ctx context.Context) (all map[objectKey]*object, errs []error) {
	access, err := c.Connect("--config DIR")
	if err != nil {
		return nil, []error{err}
	}
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, []error{err}
	}
	all = map[objectKey]*object{}
	for _, of := range []struct{ kind, resource string }{
		{admissionPolicyKind, "admissionpolicies"},
		{admissionPolicyKind + bindingSuffix, "admissionpolicybindings"},
		{profileKind, "sidecarprofiles"},
		{exceptionKind, "policyexceptions"},
		{baselineKind, "policybaselines"},
	} {
		namespaces := []string{""}
		isNamespaced := of.kind == exceptionKind || of.kind == baselineKind
		if isNamespaced && len(c.namespaces) > 0 {
			namespaces = c.namespaces
		}
		for _, namespace := range namespaces {
			objects, err := listObjects(ctx, client, of.kind, of.resource, namespace)
			if err != nil && isNamespaced && namespace == "" {
				err = fmt.Errorf("%w (hint: gatehouse console --namespace NAME lists those of a namespace)", err)
			}
			if err != nil {
				errs = append(errs, err)
			}
			for _, one := range objects {
				all[one.key()] = one
			}
		}
	}
	return all, errs
}

// listObjects reads custom resources of a kind, at most maxListed. The error says which right is missing.
func listObjects(ctx context.Context, client dynamic.Interface, kind, resource, namespace string) (all []*object, err error) {
	options := metav1.ListOptions{Limit: listPage}
	for {
		page, err := client.Resource(v1alpha1.GroupVersion.WithResource(resource)).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, apierr.Explain(resource+"."+v1alpha1.GroupVersion.Group+" cannot be listed", err)
		}
		for i := range page.Items {
			one, err := newObject(kind, page.Items[i].Object)
			if err != nil {
				return nil, fmt.Errorf("%s cannot be read: %w", resource, err)
			}
			all = append(all, one)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" || len(all) >= maxListed {
			return all, nil
		}
	}
}

// explain says for people why something could not be read.
func explain(err error) string {
	if text := apierr.MissingRight(err); text != "" {
		return text
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "there was no answer in " + partTimeout.String()
	}
	return err.Error()
}

// explainAll explains errors, each text once, sorted.
func explainAll(errs []error) []string {
	var out []string
	for _, err := range errs {
		if err != nil {
			out = append(out, strings.TrimSpace(explain(err)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sampleAge is how long one sample serves.
const sampleAge = 5 * time.Second

// sample is what the replicas show at one time. It is immutable.
type sample struct {
	at   time.Time
	pods []corev1.Pod
	// metrics are those of the replicas that could be read, by the name of the pod.
	metrics map[string]*replicas.Metrics
	errs    []error
}

// observer reads the replicas, with the rights of the user of the kubeconfig.
type observer struct {
	// sampling allows one sample at a time, and guards last.
	sampling sync.Mutex
	last     *sample

	// mu guards the following. The mirror follows the recordings of the replicas while a page shows them.
	mu      sync.Mutex
	cluster *replicas.Cluster
	mirror  *replicas.Mirror
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

// sample returns what the replicas show, as of a few seconds ago at most.
func (c *console) sample(ctx context.Context) (*sample, error) {
	o := &c.observer
	o.sampling.Lock()
	defer o.sampling.Unlock()
	if o.last != nil && c.now().Sub(o.last.at) < sampleAge {
		return o.last, nil
	}
	cluster, err := o.connection(ctx, c.flags)
	if err != nil {
		return nil, err
	}
	s := &sample{at: c.now(), metrics: map[string]*replicas.Metrics{}}
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
	replicas.Each(running, func(r *replicas.Replica) {
		metrics, err := r.Metrics(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("replica %s: %w", r.Name, err))
			return
		}
		s.metrics[r.Name] = metrics
	})
	o.last = s
	return s, nil
}

// isMirrored reports whether the recordings are those of the replicas.
func (c *console) isMirrored() bool { return !c.isOffline() && len(c.recordings) == 0 }

// followReplicas makes the mirror follow the recordings of the replicas for the next minute, and says what is known of them.
func (c *console) followReplicas() (notes []string) {
	if !c.isMirrored() {
		return nil
	}
	o := &c.observer
	cluster, err := o.connection(c.ctx, c.flags)
	if err != nil {
		return []string{explain(err)}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mirror == nil {
		o.mirror = replicas.NewMirror(cluster, c.recordingPaths()[0], c.now)
	}
	o.mirror.Look(c.ctx, c.background.Go)
	state := o.mirror.State()
	missing := explainAll(state.Problems)
	state.Problems = nil
	notes = state.Text()
	for _, text := range missing {
		notes = append(notes, "Not read: "+text)
	}
	return notes
}
