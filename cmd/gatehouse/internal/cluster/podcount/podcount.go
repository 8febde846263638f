// Package podcount counts the pods of each SidecarProfile, for its status.
//
// It lists the pods every few minutes, one page at a time, so that neither its memory nor
// its share of a processor grows with their number. Only the replica that writes status
// runs it. Pods are counted only on request, because the right to list all pods shows a thief
// of the token what runs in the cluster.
package podcount

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	defaultPage = 250
	// pauseFactor is the length of the pause after a page, in the time that the page took:
	// counting takes a tenth of one processor at most.
	pauseFactor = 9
	// maxPause bounds the pause: a continue token of the API server expires after five
	// minutes.
	maxPause = 5 * time.Second
)

// Config says what to count. Every field is required, except Page.
type Config struct {
	// Client is that of the core group, version v1.
	Client rest.Interface
	// Set is the set of active profiles. It may be nil for as long as there is none.
	Set func() *sidecar.Set
	// Left reports whether the API server sends no pods of a namespace, so that they are
	// not counted.
	Left func(namespace string) bool
	// Every is the time from the end of one count to the start of the next.
	Every time.Duration
	// Page is the number of pods in a request; 0 stands for 250.
	Page int64
	// Changed is called after Counts has changed.
	Changed func()
	Log     *slog.Logger
}

// Counter counts pods. Run must not be called while it runs; everything else is safe
// for concurrent use.
type Counter struct {
	config   Config
	problems *problemlog.Log
	counts   atomic.Pointer[map[string]v1alpha1.SidecarPodCounts]
}

// New returns a Counter that has counted nothing.
func New(config Config) *Counter {
	config.Page = cmp.Or(config.Page, defaultPage)
	return &Counter{config: config, problems: problemlog.New(config.Log, "pod counts")}
}

// Counts returns the numbers of the last successful count, by the name of the profile,
// and nil before the first. The caller must not change them.
func (c *Counter) Counts() map[string]v1alpha1.SidecarPodCounts {
	if counts := c.counts.Load(); counts != nil {
		return *counts
	}
	return nil
}

// Run counts at once and then periodically, until the context ends. A count that fails
// leaves the numbers of the earlier one.
func (c *Counter) Run(ctx context.Context) {
	for {
		c.once(ctx)
		if !sleep.Context(ctx, c.config.Every) {
			return
		}
	}
}

// once counts once, and logs problems.
func (c *Counter) once(ctx context.Context) {
	set := c.config.Set()
	if set == nil {
		return
	}
	t := &tally{set: set, left: c.config.Left, counts: map[string]v1alpha1.SidecarPodCounts{}}
	for _, name := range set.Profiles() {
		t.counts[name] = v1alpha1.SidecarPodCounts{}
	}
	const count = "count pods for the status of profiles"
	if err := c.count(ctx, t); err != nil {
		if ctx.Err() == nil {
			c.problems.Report(count, "", "cannot "+count+": "+err.Error(), "the previous counts stay; "+hint(err))
		}
		return
	}
	c.problems.Recover(count)
	at := metav1.Now()
	for name, counts := range t.counts {
		counts.CountedAt = at
		t.counts[name] = counts
	}
	c.counts.Store(&t.counts)
	c.config.Changed()
}

// hint says what to do about pods that cannot be listed.
func hint(err error) string {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return "the service account needs the right to list pods in all namespaces: apply the rights that gatehouse manifests --count-pods prints, or omit --count-pods-every"
	}
	return "Gatehouse retries with the next count"
}

// count counts the pods that have not ended, page by page.
func (c *Counter) count(ctx context.Context, t *tally) error {
	if len(t.counts) == 0 {
		return nil // there is no profile
	}
	list := paging.List{Client: c.config.Client, Resource: "pods", FieldSelector: "status.phase!=Succeeded,status.phase!=Failed", Limit: c.config.Page}
	return list.Each(ctx, func(page paging.Page) error {
		for _, pod := range page.Items {
			if err := ctx.Err(); err != nil {
				return err
			}
			t.pod(ctx, pod)
		}
		if !page.Last && !sleep.Context(ctx, min(pauseFactor*time.Since(page.Began), maxPause)) {
			return context.Cause(ctx)
		}
		return nil
	})
}

// tally is one count.
type tally struct {
	set    *sidecar.Set
	left   func(namespace string) bool
	counts map[string]v1alpha1.SidecarPodCounts
}

func (t *tally) pod(ctx context.Context, pod rawjson.Value) {
	namespace := pod.Get("metadata", "namespace").Text()
	if phase := pod.Get("status", "phase"); t.left(namespace) || phase.Is("Succeeded") || phase.Is("Failed") {
		return
	}
	statuses, _ := t.set.PodStatus(ctx, namespace, pod) // a pod about which nothing can be decided counts by the sidecars that it has
	for _, s := range statuses {
		counts := t.counts[s.Profile]
		if s.Matched {
			counts.Matched++
		}
		if s.Injected {
			counts.Injected++
		}
		if s.Stale {
			counts.Stale++
		}
		t.counts[s.Profile] = counts
	}
}
