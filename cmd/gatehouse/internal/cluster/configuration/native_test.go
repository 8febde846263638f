package configuration

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

// documents are those of a cluster that changes.
type documents struct {
	notifier

	mu  sync.Mutex
	all []compile.Found
	err error
}

func (d *documents) All() ([]compile.Found, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all, d.err
}

func (d *documents) Changed() <-chan struct{} { return d.notifier }

func (d *documents) set(all []compile.Found, err error) {
	d.mu.Lock()
	d.all, d.err = all, err
	d.mu.Unlock()
	d.notify()
}

// madeOf returns what gatehouse compile makes of a configuration.
func madeOf(t *testing.T, c *config.Config) (all []compile.Found) {
	t.Helper()
	out, err := compile.Compile(c, compile.Options{Kubernetes: "1.36", Now: time.Now(), ExcludeNamespaces: []string{"kube-system"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range out.Documents {
		if f, is := compile.Find(out.Documents[i].Object()); is {
			all = append(all, f)
		}
	}
	return all
}

// TestNative follows what the API server enforces itself, through changes of the documents, of the configuration and of the right to read.
func TestNative(t *testing.T) {
	t.Parallel()
	first, second := configured(t, "1", "true").Config, configured(t, "2", "false").Config
	log := new(logbuffer.Buffer)
	d := &documents{notifier: make(notifier, 1), err: cluster.ErrNotReadYet}
	n := NewNative(d, slog.New(slog.NewTextHandler(log, nil)))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	defer running.Wait()
	defer stop()
	is := func(c *config.Config, want string) {
		t.Helper()
		support.Eventually(t, "the condition "+want, func() error {
			n.Use(c, []string{"kube-system"})
			got := "unchanged"
			if found := n.condition(c, "AdmissionPolicy", "p"); found != nil {
				got = strings.Trim(string(found.Status)+" "+found.Reason, " ")
			}
			if got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	is(first, "unchanged")
	d.set(nil, nil)
	is(first, "")
	made := madeOf(t, first)
	d.set(made, nil)
	is(first, "True "+v1alpha1.EnforcedReason)
	if list := n.Use(first, []string{"kube-system"}); len(list) > 0 {
		t.Errorf("at once, before API servers follow, enforced is %+v", list)
	}
	n.mu.Lock()
	for e := range n.last.since {
		n.last.since[e] = time.Now().Add(-linger)
	}
	n.mu.Unlock()
	if list := n.Use(first, []string{"kube-system"}); len(list) != 1 || !list[0].IsWhole() {
		t.Errorf("enforced is %+v", list)
	}
	d.set(made[1:], nil)
	is(first, "False "+v1alpha1.OutOfDateReason)
	d.set(made, nil)
	is(first, "True "+v1alpha1.EnforcedReason)
	if list := n.Use(first, []string{"kube-system"}); len(list) > 0 {
		t.Errorf("again at once, enforced is %+v", list)
	}
	is(second, "False "+v1alpha1.OutOfDateReason)
	if n.condition(first, "AdmissionPolicy", "p") != nil {
		t.Error("a condition is about another configuration")
	}
	d.set(madeOf(t, second), nil)
	is(second, "True "+v1alpha1.EnforcedReason)
	d.set(nil, errors.New("forbidden"))
	is(second, string(metav1.ConditionUnknown)+" "+v1alpha1.NotReadReason)
	if list := n.Use(second, []string{"kube-system"}); len(list) > 0 {
		t.Errorf("without the right to read, enforced is %+v", list)
	}
	d.set(nil, nil)
	is(second, "")
	<-n.Changed()
	for _, text := range []string{"error=forbidden", "the API server itself enforces the policy", "is missing"} {
		if strings.Count(log.String(), text) == 0 {
			t.Errorf("%q is not in the log:\n%s", text, log.String())
		}
	}
}
