package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/certs"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/podcount"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/status"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

// Requests of status have a client of their own, so that they never delay
// lookups of reviews. Its rate is that of writes of status.
const (
	reportingQPS, reportingBurst = 20, 40
	reportingTimeout             = 10 * time.Second
)

// addStatus adds custom resources to the configuration, and what writes their status. The cluster need not be reachable yet.
func (w *wiring) addStatus(ctx context.Context) error {
	if !w.CustomResources {
		return nil
	}
	access := w.accessOf("status")
	access.QPS, access.Burst, access.Timeout = reportingQPS, reportingBurst, reportingTimeout
	client, err := certs.NewClient(access)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		return fmt.Errorf("cannot create a client for %s: %w", access.Host, err)
	}
	cfg := status.Config{
		Client: objects, Leases: client.CoordinationV1(), Namespace: w.ownNamespace(), Replica: replicaName(w.replica),
		Log: w.log, Problems: w.problems,
	}
	recorder := w.events(ctx, client)
	cfg.Record = recorder.Write
	w.recordProblems(recorder)
	var reports *status.Controller
	changed := func() { reports.Recheck() }
	if cfg.Audits, err = w.addAudits(changed); err != nil {
		return err
	}
	if cfg.Pods, err = w.addPodCounts(changed); err != nil {
		return err
	}
	reports = status.New(cfg)
	w.add(part{metrics: reports, run: endless(reports.Run), lead: reports.Lead})
	w.reviews.CustomResources = crdadmission.New(w.current.Config.Load)
	w.reconciler.Resources, w.reconciler.Report, w.reconciler.NotSent = w.lookups.Resources(), reports.Use, w.called.notSent
	if w.called.reader != nil {
		w.reconciler.Renotify[0] = w.called.reader.Noticed()
	}
	if w.called.rules != nil {
		w.reconciler.Renotify[1] = w.called.writer.Changed()
	}
	return nil
}

// addPodCounts adds what counts the pods of profiles, without those of namespaces that are never sent, and returns the
// counts: nil without --count-pods-every.
func (w *wiring) addPodCounts(changed func()) (func() map[string]v1alpha1.SidecarPodCounts, error) {
	if w.CountPods == 0 {
		return nil, nil //nolint:nilnil // nothing is counted
	}
	client, err := certs.NewClient(w.accessOf("status"))
	if err != nil {
		return nil, err
	}
	left := neverSent(w.ownNamespace())
	counter := podcount.New(podcount.Config{
		Client: client.CoreV1().RESTClient(), Every: w.CountPods, Changed: changed, Log: w.log,
		Set: func() *sidecar.Set {
			if s := w.current.Snapshot.Load(); s != nil {
				return s.Sidecar
			}
			return nil
		},
		Left: func(namespace string) bool { return slices.Contains(left, namespace) },
	})
	w.add(part{lead: counter.Run})
	return counter.Counts, nil
}

// ownNamespace returns the namespace that this process runs in.
func (f *Options) ownNamespace() string {
	if f.Namespace != "" {
		return f.Namespace
	}
	if f.InCluster {
		text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if name := string(bytes.TrimSpace(text)); err == nil && len(validation.IsDNS1123Label(name)) == 0 {
			return name
		}
	}
	return install.DefaultNamespace
}
