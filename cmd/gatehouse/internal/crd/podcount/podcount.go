// Package podcount counts the pods that SidecarProfiles are about, for their status.
//
// It lists the pods every few minutes, a page at a time, and forgets each page: the
// memory that it takes does not depend on how many pods there are, and neither does
// the part of a processor that it uses. Only the replica that writes status runs it.
package podcount

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

const (
	// usual is how long after one count the next one begins, if nobody says otherwise.
	usual       = 5 * time.Minute
	defaultPage = 250
	// restFactor is how much longer than a page took the pause behind it is, so that
	// counting takes a tenth of one processor at most.
	restFactor = 9
	// mostRest bounds the pause: the API server forgets where a list was after five
	// minutes, and a page that took longer than this was waited for.
	mostRest = 5 * time.Second
	// pageTimeout bounds how long one page is waited for.
	pageTimeout = 30 * time.Second
)

// Config says what to count. Client and Set are required.
type Config struct {
	// Client is that of the core group, version v1.
	Client rest.Interface
	// Set is the set of profiles in use. It may be nil for as long as there is none.
	Set func() *sidecar.Set
	// Left tells whether pods of a namespace are never sent, so that they are not
	// counted. If it is nil, all are counted.
	Left func(namespace string) bool
	// Every is how long after one count the next one begins; 0 stands for 5 minutes.
	Every time.Duration
	// Page is how many pods are asked for at a time; 0 stands for 250.
	Page int64
	// Log may be nil.
	Log *slog.Logger
}

// Counter counts pods. Run must not be called while it runs; everything else is safe
// for concurrent use.
type Counter struct {
	config  Config
	counts  atomic.Pointer[map[string]v1alpha1.SidecarPodCounts]
	changed chan struct{}
	// failing is true after a count that failed, untold after one with pods that
	// could not be told about.
	failing, untold bool
}

// New is a Counter that has counted nothing.
func New(config Config) *Counter {
	if config.Left == nil {
		config.Left = func(string) bool { return false }
	}
	if config.Every <= 0 {
		config.Every = usual
	}
	if config.Page <= 0 {
		config.Page = defaultPage
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Counter{config: config, changed: make(chan struct{}, 1)}
}

// Counts are those of the last count that went through, by the name of the profile,
// and nil before the first. The caller does not change them.
func (c *Counter) Counts() map[string]v1alpha1.SidecarPodCounts {
	if counts := c.counts.Load(); counts != nil {
		return *counts
	}
	return nil
}

// Changed has a value to receive after Counts changed.
func (c *Counter) Changed() <-chan struct{} { return c.changed }

// Run counts at once and again and again, until the context ends. A count that fails
// leaves the earlier one in place.
func (c *Counter) Run(ctx context.Context) {
	for {
		c.once(ctx)
		if !wait(ctx, c.config.Every) {
			return
		}
	}
}

// once counts once, and logs what is new of how that went.
func (c *Counter) once(ctx context.Context) {
	set := c.config.Set()
	if set == nil {
		return
	}
	t := &tally{set: set, left: c.config.Left, counts: map[string]v1alpha1.SidecarPodCounts{}}
	for _, name := range set.Profiles() {
		t.counts[name] = v1alpha1.SidecarPodCounts{}
	}
	if err := c.count(ctx, t); err != nil {
		if ctx.Err() == nil && !c.failing {
			c.failing = true
			c.config.Log.Error("pods cannot be counted for the status of profiles; the numbers stay as they are", "error", err.Error(), "hint", hint(err))
		}
		return
	}
	if c.failing {
		c.failing = false
		c.config.Log.Info("pods are counted again for the status of profiles")
	}
	if t.err == nil {
		c.untold = false
	} else if !c.untold {
		c.untold = true
		c.config.Log.Warn("of some pods it cannot be told what they would get: they are counted only if they are injected",
			"pods", t.untold, "first", t.err.Error())
	}
	at := metav1.Now()
	for name, counts := range t.counts {
		counts.CountedAt = at
		t.counts[name] = counts
	}
	c.counts.Store(&t.counts)
	select {
	case c.changed <- struct{}{}:
	default: // it has not been received since the last change
	}
}

// hint is what to do about pods that cannot be listed.
func hint(err error) string {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return "the service account needs the right to list pods in all namespaces: apply the rights that gatehouse manifests --count-pods prints, or leave out --count-pods-every"
	}
	return "it is tried again with the next count"
}

// count counts the pods, page by page.
func (c *Counter) count(ctx context.Context, t *tally) error {
	if len(t.counts) == 0 {
		return nil // nobody wants to know
	}
	for next := ""; ; {
		start := time.Now()
		text, err := c.page(ctx, next)
		if expired := whereExpired(err); expired != "" && expired != next {
			// What is left of the list is as of now.
			next = expired
			continue
		}
		if err != nil {
			return err
		}
		if next, err = t.page(ctx, text); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		if !wait(ctx, min(restFactor*time.Since(start), mostRest)) {
			return context.Cause(ctx)
		}
	}
}

// page is a page of the pods that have not ended, as JSON.
func (c *Counter) page(ctx context.Context, next string) ([]byte, error) {
	request := c.config.Client.Get().Resource("pods").
		SetHeader("Accept", "application/json").
		// A list as of any resource version would come in one piece.
		Param("limit", strconv.FormatInt(c.config.Page, 10)).
		Param("fieldSelector", "status.phase!=Succeeded,status.phase!=Failed").
		Timeout(pageTimeout)
	if next != "" {
		request = request.Param("continue", next)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // unlike that of Raw, it is what the answer says
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return result.Raw()
}

// whereExpired is where to go on with a list that the API server has forgotten, and
// "" for any other error.
func whereExpired(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// tally is one count.
type tally struct {
	set    *sidecar.Set
	left   func(namespace string) bool
	counts map[string]v1alpha1.SidecarPodCounts
	// untold is how many pods there are of which it cannot be told what they would
	// get, and err why, of the first.
	untold int
	err    error
}

// page counts the pods of a page, and returns where the next one is, "" behind the
// last.
func (t *tally) page(ctx context.Context, text []byte) (next string, err error) {
	list, err := rawjson.Parse(text)
	if err != nil {
		return "", fmt.Errorf("list pods: the answer is not JSON: %w", err)
	}
	if items := list.Get("items").Kind(); list.Get("kind").Text() != "PodList" || items != rawjson.Array && items != rawjson.Null {
		return "", errors.New("list pods: the answer is not a list of pods")
	}
	for _, pod := range list.Get("items").Elements() {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		t.pod(ctx, pod)
	}
	return list.Get("metadata", "continue").Text(), nil
}

func (t *tally) pod(ctx context.Context, pod rawjson.Value) {
	namespace := pod.Get("metadata", "namespace").Text()
	if phase := pod.Get("status", "phase"); t.left(namespace) || phase.Is("Succeeded") || phase.Is("Failed") {
		return
	}
	standings, err := t.set.Census(ctx, namespace, pod)
	if err != nil {
		if t.untold++; t.err == nil {
			t.err = fmt.Errorf("pod %q in namespace %q: %w", pod.Get("metadata", "name").Text(), namespace, err)
		}
	}
	for _, s := range standings {
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

// wait waits, and is false if the context ended meanwhile.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
