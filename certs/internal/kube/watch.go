package kube

import (
	"context"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// watchTime is how long one watch lasts at least, and at most twice as long: a lost
	// event and a connection that died without a sign are noticed then.
	watchTime = time.Minute
	// steadyTime is after how long a watch counts as successful.
	steadyTime = 10 * time.Second
)

// Open begins a watch of one object, see SelectName.
type Open func(context.Context) (watch.Interface, error)

// Watch calls changed when a watch begins and for every event of it, and begins the
// next one when it ends, until the context ends. It ignores the content of events: the
// caller reads what has changed, and ends the watch by returning false. Pauses after a
// watch that ended soon grow to eight seconds.
//
// began is called after each attempt to begin a watch, before changed, with the error
// if it failed. An attempt takes at most the timeout.
func Watch(ctx context.Context, timeout time.Duration, open Open, began func(error), changed func() bool) {
	first := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32, Cap: 5 * time.Second}
	for pauses := first; ctx.Err() == nil; {
		start := time.Now()
		watchOnce(ctx, timeout, open, began, changed)
		if time.Since(start) > steadyTime {
			pauses = first
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauses.Step()):
		}
	}
}

// watchOnce returns when the watch ends.
func watchOnce(ctx context.Context, timeout time.Duration, open Open, began func(error), changed func() bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*watchTime+timeout)
	defer cancel()
	unanswered := time.AfterFunc(timeout, cancel)
	stream, err := open(ctx)
	if err == nil {
		defer stream.Stop()
	}
	if !unanswered.Stop() {
		err = context.DeadlineExceeded
	}
	began(err)
	if err != nil {
		return
	}
	for changed() {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-stream.ResultChan():
			if !ok || event.Type == watch.Error {
				return
			}
		}
	}
}

// SelectName selects one object, so that a Role may allow to watch that name alone.
// Without a resource version the watch begins with what is there, so that no right
// to list is needed and no change is missed.
func SelectName(name string) metav1.ListOptions {
	seconds := int64(wait.Jitter(watchTime, 1) / time.Second)
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), TimeoutSeconds: &seconds}
}
