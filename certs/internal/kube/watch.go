package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// WatchOnce begins a watch, and calls changed then and for every event, until the
// watch ends. The error tells that it did not begin. It does not wait for that
// longer than for any request, and not for the end longer than watches last.
func WatchOnce(ctx context.Context, open func(context.Context) (watch.Interface, error), changed func()) error {
	ctx, cancel := context.WithTimeout(ctx, 2*WatchTime+Timeout)
	defer cancel()
	impatient := time.AfterFunc(Timeout, cancel)
	stream, err := open(ctx)
	if err != nil {
		return err
	}
	defer stream.Stop()
	if !impatient.Stop() {
		return ctx.Err()
	}
	changed()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-stream.ResultChan():
			if !ok || event.Type == watch.Error {
				return nil
			}
			changed()
		}
	}
}

func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// SelectName selects one object, so that watching can be allowed for one name. The
// watch begins with what is there, and ends from time to time: a connection that
// died without a sign is noticed then.
func SelectName(name string) metav1.ListOptions {
	seconds := int64(wait.Jitter(WatchTime, 1) / time.Second)
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), TimeoutSeconds: &seconds}
}

const (
	// WatchTime is how long one watch lasts at least, and at most twice as long: a
	// connection that died without a sign is noticed then.
	WatchTime = 5 * time.Minute
	// SteadyTime is how long a watch lasts that was not in vain.
	SteadyTime = 10 * time.Second
)
