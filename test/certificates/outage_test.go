package certificates

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/test/support"
)

// While the API server or its store is away, replicas stay ready and serve what they have. Nothing is written when it
// comes back: no Secret, no bundle, no other CA.
func TestAPIServerOutage(t *testing.T) {
	for _, test := range []struct {
		name        string
		outage      time.Duration
		begin, over func(context.Context, *hook) error
	}{
		{
			"API server killed", 5 * time.Second,
			func(_ context.Context, h *hook) error { return h.APIServer().Kill() },
			func(ctx context.Context, h *hook) error { return h.APIServer().Start(ctx) },
		},
		{
			"etcd suspended", 15 * time.Second, // longer than a request may take
			func(_ context.Context, h *hook) error { return h.Etcd().Signal(syscall.SIGSTOP) },
			func(_ context.Context, h *hook) error { return h.Etcd().Signal(syscall.SIGCONT) },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHook(t)
			ps := h.programs(t, 2)
			caller := h.caller(t)
			support.Eventually(t, "a first call", func() error { return caller.call(t.Context()) })
			h.inPhase(t, certs.Stable)
			stored, err := h.secret(t.Context())
			must(t, err)
			registered, err := h.configurations().Get(t.Context(), h.name, metav1.GetOptions{})
			must(t, err)
			bundle := registered.Webhooks[0].ClientConfig.CABundle

			must(t, test.begin(t.Context(), h))
			t.Cleanup(func() {
				if t.Failed() {
					_ = test.over(context.WithoutCancel(t.Context()), h) // for other tests' sake
				}
			})
			support.Throughout(t, "replicas serve", test.outage, func() error {
				err := ps.ready(t.Context())
				for _, p := range ps {
					_, looked := look(t.Context(), p.Reviews.String(), h.host(), bundle)
					err = errors.Join(err, looked)
				}
				return err
			})
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = h.secret(short)
			cancel()
			if err == nil {
				t.Error("the API server answered all the time: this test has not seen an outage")
			}

			must(t, test.over(t.Context(), h))
			support.Eventually(t, "calls go on", func() error { return caller.call(t.Context()) })
			l := h.load(t, ps.connections)
			l.last(t, lag)
			l.noneFailed(t, enough/10)
			must(t, ps.ready(t.Context()))
			now, err := h.secret(t.Context())
			must(t, err)
			if now.UID != stored.UID || now.ResourceVersion != stored.ResourceVersion {
				t.Error("the Secret was written")
			}
			again, err := h.configurations().Get(t.Context(), h.name, metav1.GetOptions{})
			must(t, err)
			if again.ResourceVersion != registered.ResourceVersion {
				t.Error("the registration was written")
			}
		})
	}
}

// ready returns an error unless all programs are ready.
func (ps programs) ready(ctx context.Context) error {
	var errs []error
	for _, p := range ps {
		code, body, err := p.Get(ctx, "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}
