package source

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
)

// watchProblems are the reasons why changes are not noticed at once, by kind.
type watchProblems struct {
	mu    sync.Mutex
	wrong map[string]error
}

func (w *watchProblems) set(kind string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong == nil {
		w.wrong = map[string]error{}
	}
	w.wrong[kind] = err
}

func (w *watchProblems) list() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []error
	for _, kind := range slices.Sorted(maps.Keys(w.wrong)) {
		if err := w.wrong[kind]; err != nil {
			list = append(list, fmt.Errorf("changes are detected only every %s: %w", issuedInterval, err))
		}
	}
	return list
}

// watch calls changed soon after every change, and when one may have been missed,
// until the context ends.
func (w *watchProblems) watch(ctx context.Context, kind string, open kube.Open, changed func()) {
	defer w.set(kind, nil)
	kube.Watch(ctx, kube.Timeout, open, func(err error) {
		if ctx.Err() == nil {
			w.set(kind, err)
		}
	}, func() bool {
		changed()
		return true
	})
}

func (m *CertManager) watchCertificate(ctx context.Context) (watch.Interface, error) {
	stream, err := m.cfg.Dynamic.Resource(certificates()).Namespace(m.cfg.Namespace).Watch(ctx, kube.SelectName(m.cfg.Name))
	if err != nil {
		return nil, m.failed(ctx, m.String(), "watch", "certificates", err)
	}
	return stream, nil
}

func (m *CertManager) watchSecret(name string) kube.Open {
	return func(ctx context.Context) (watch.Interface, error) {
		stream, err := m.cfg.Client.CoreV1().Secrets(m.cfg.Namespace).Watch(ctx, kube.SelectName(name))
		if err != nil {
			return nil, m.failed(ctx, m.secret(name), "watch", "secrets", err)
		}
		return stream, nil
	}
}
