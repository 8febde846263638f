package incluster

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
	"github.com/gatehouse-dev/gatehouse/test/support/load"
)

// An upgrade of the release, its rollback and a restart replace all replicas while the API server calls them all
// the time: no call fails, the CA stays, and pods come out as before.
func TestRollout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	helm := func(command string, args ...string) {
		t.Helper()
		_, err := s.helm(t.Context(), t.TempDir(), append([]string{command, "gatehouse", "--namespace", system}, args...)...)
		must(t, err)
	}
	helm("install", chart, "--create-namespace", "--set", "replicaCount=2,minReadySeconds=2")
	s.rolledOut(t)
	s.waitForReplicas(t, 2)
	s.createWorkloads(t)
	ca := s.authority(t)
	l := s.traffic(t)
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"upgrade", func() {
			helm("upgrade", chart, "--reset-then-reuse-values", "--set", "image.repository=registry.example/gatehouse,logLevel=debug")
		}},
		{"rollback", func() { helm("rollback", "1") }},
		{"restart", func() {
			err := s.kubectl(t.Context(), "", "rollout", "restart", "deployment/gatehouse", "--namespace", system)
			must(t, err)
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.change()
			s.rolledOut(t)
			s.waitForReplicas(t, 2)
			waitForSuccesses(t, l.Load)
			if s.authority(t) != ca {
				t.Error("the CA is another")
			}
		})
	}
	l.noneFailed(t)
}

// authority is the CA that the replicas share, with its key.
func (s *site) authority(t *testing.T) string {
	t.Helper()
	secret, err := s.Client().CoreV1().Secrets(system).Get(t.Context(), "gatehouse-ca", metav1.GetOptions{})
	must(t, err)
	if len(secret.Data) == 0 {
		t.Fatal("the Secret of the CA is empty")
	}
	return fmt.Sprintf("%q", secret.Data)
}

// traffic is calls without an end.
type traffic struct {
	*load.Load
	site *site
	// failedOpen is what the API server had let pass unanswered when the calls began.
	failedOpen float64
}

// traffic begins to make calls. It ends with the test.
func (s *site) traffic(t *testing.T) *traffic {
	t.Helper()
	l := &traffic{site: s, failedOpen: s.failedOpen(t)}
	c := s.caller(t)
	callers := make([]int, load.Callers)
	l.Load = load.Start(t.Context(), func(ctx context.Context, caller int) error {
		callers[caller]++ // each has its own
		return c.call(ctx, caller+callers[caller])
	})
	t.Cleanup(func() { l.End() })
	return l
}

// noneFailed ends the calls, of which none may have failed.
func (l *traffic) noneFailed(t *testing.T) {
	t.Helper()
	l.End()
	t.Log(l.Load)
	if l.Failed() > 0 {
		t.Errorf("%d of %d calls failed: %s", l.Failed(), l.Calls(), l.Why())
	}
	if n := l.site.failedOpen(t) - l.failedOpen; n > 0 {
		t.Errorf("the API server let %.0f requests pass because Gatehouse did not answer", n)
	}
}

// failedOpen is how many requests the API server has let pass because a webhook that fails open did not answer.
func (s *site) failedOpen(t *testing.T) float64 {
	t.Helper()
	text, err := s.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	n, err := gatehouse.Sum(string(text), "apiserver_admission_webhook_fail_open_count")
	must(t, err)
	return n
}
