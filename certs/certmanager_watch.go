package certs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// rewatchTime is how long to wait for the next watch when one cannot be had.
const rewatchTime = 10 * time.Second

// watching is what keeps changes from being noticed at once.
type watching struct {
	mu    sync.Mutex
	wrong map[string]error
}

func (w *watching) set(kind string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = map[string]error{}
	}
	w.wrong[kind] = err
}

func (w *watching) problems() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []error
	for _, kind := range slices.Sorted(maps.Keys(w.wrong)) {
		if err := w.wrong[kind]; err != nil {
			list = append(list, fmt.Errorf("changes are noticed every %s only: %w", issuedInterval, err))
		}
	}
	return list
}

// follow calls changed soon after every change, and when one may have been
// missed, until the context ends. What has changed is read afterwards by whoever
// is told, so nothing of a watch is kept.
func (w *watching) follow(ctx context.Context, kind string, open func(context.Context) (watch.Interface, error), changed func()) {
	defer w.set(kind, nil)
	for ctx.Err() == nil {
		began := time.Now()
		err := watchOnce(ctx, open, changed)
		if ctx.Err() == nil {
			w.set(kind, err)
		}
		if err == nil && time.Since(began) > steadyTime {
			continue
		}
		pause(ctx, rewatchTime)
	}
}

// watchOnce begins a watch, and calls changed then and for every event, until the
// watch ends. The error tells that it did not begin. It does not wait for that
// longer than for any request, and not for the end longer than watches last.
func watchOnce(ctx context.Context, open func(context.Context) (watch.Interface, error), changed func()) error {
	ctx, cancel := context.WithTimeout(ctx, 2*watchTime+requestTime)
	defer cancel()
	impatient := time.AfterFunc(requestTime, cancel)
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

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// named selects one object, so that watching can be allowed for one name. The
// watch begins with what is there, and ends from time to time: a connection that
// died without a sign is noticed then.
func named(name string) metav1.ListOptions {
	seconds := int64(wait.Jitter(watchTime, 1) / time.Second)
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), TimeoutSeconds: &seconds}
}

func (m *CertManager) watchCertificate(ctx context.Context) (watch.Interface, error) {
	stream, err := m.cfg.Dynamic.Resource(certificates()).Namespace(m.cfg.Namespace).Watch(ctx, named(m.cfg.Name))
	if err != nil {
		return nil, m.failed(ctx, m.String(), "watch", "certificates", err)
	}
	return stream, nil
}

func (m *CertManager) watchSecret(name string) func(context.Context) (watch.Interface, error) {
	return func(ctx context.Context) (watch.Interface, error) {
		stream, err := m.cfg.Client.CoreV1().Secrets(m.cfg.Namespace).Watch(ctx, named(name))
		if err != nil {
			return nil, m.failed(ctx, m.secret(name), "watch", "secrets", err)
		}
		return stream, nil
	}
}
