package podcount_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/crd/podcount"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// TestCountsInCluster counts some hundred pods that a real API server lists, in pages,
// and says what is missing where it has no right to.
func TestCountsInCluster(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Options{})
	set := profiles(t, 2)
	current, stale := revision(t, set), revision(t, profiles(t, 1))
	access := rest.CopyConfig(c.Config())
	access.QPS = -1
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody makes it without a controller manager.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const each = 60
	var group sync.WaitGroup
	for i := range 5 {
		group.Go(func() {
			for n := range each {
				made := []map[string]any{
					pod("default", "shop", "", "", ""), pod("default", "shop", "", "shop", current), pod("default", "shop", "", "shop", stale),
					pod("kube-system", "shop", "", "shop", stale), pod("default", "other", "", "", ""),
				}[i]
				text, err := json.Marshal(made)
				if err != nil {
					t.Error(err)
					return
				}
				var p corev1.Pod
				if err := json.Unmarshal(text, &p); err != nil {
					t.Error(err)
					return
				}
				p.Name = fmt.Sprintf("pod-%d-%d", i, n)
				if _, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), &p, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	stranger, err := c.ConfigFor("stranger")
	if err != nil {
		t.Fatal(err)
	}
	unable, err := kubernetes.NewForConfig(stranger)
	if err != nil {
		t.Fatal(err)
	}
	log := make(lines, 1)
	count := func(client kubernetes.Interface) (counter *podcount.Counter, stop func()) {
		counter = podcount.New(podcount.Config{
			Client: client.CoreV1().RESTClient(), Set: func() *sidecar.Set { return set }, Page: 100,
			Left: func(namespace string) bool { return namespace == metav1.NamespaceSystem }, Log: slog.New(slog.NewTextHandler(log, nil)),
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var running sync.WaitGroup
		running.Go(func() { counter.Run(ctx) })
		return counter, func() { cancel(); running.Wait() }
	}
	counter, stop := count(client)
	select {
	case <-counter.Changed():
	case line := <-log:
		t.Fatal(line)
	case <-time.After(time.Minute):
		t.Fatal("nothing was counted")
	}
	stop()
	got := counter.Counts()["shop"]
	if want := (v1alpha1.SidecarPodCounts{Matched: 3 * each, Injected: 2 * each, Stale: each, CountedAt: got.CountedAt}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	_, stop = count(unable)
	defer stop()
	select {
	case line := <-log:
		if !strings.Contains(line, "the right to list pods") {
			t.Errorf("it says %s", line)
		}
	case <-time.After(time.Minute):
		t.Error("nothing is said about the right that is missing")
	}
}

// lines are those of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}
