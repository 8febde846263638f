package source

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
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
		err := kube.WatchOnce(ctx, open, changed)
		if ctx.Err() == nil {
			w.set(kind, err)
		}
		if err == nil && time.Since(began) > kube.SteadyTime {
			continue
		}
		kube.Sleep(ctx, rewatchTime)
	}
}

func (m *CertManager) watchCertificate(ctx context.Context) (watch.Interface, error) {
	stream, err := m.cfg.Dynamic.Resource(certificates()).Namespace(m.cfg.Namespace).Watch(ctx, kube.SelectName(m.cfg.Name))
	if err != nil {
		return nil, m.failed(ctx, m.String(), "watch", "certificates", err)
	}
	return stream, nil
}

func (m *CertManager) watchSecret(name string) func(context.Context) (watch.Interface, error) {
	return func(ctx context.Context) (watch.Interface, error) {
		stream, err := m.cfg.Client.CoreV1().Secrets(m.cfg.Namespace).Watch(ctx, kube.SelectName(name))
		if err != nil {
			return nil, m.failed(ctx, m.secret(name), "watch", "secrets", err)
		}
		return stream, nil
	}
}
