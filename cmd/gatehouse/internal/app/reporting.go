package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	crdadmission "github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/admission"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/configuration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/status"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/compile"
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
	reports = status.New(cfg)
	w.add(part{metrics: reports, run: endless(reports.Run), lead: reports.Lead})
	w.reviews.CustomResources = crdadmission.New(w.current.Config.Load)
	resources, err := w.lookups.Resources()
	if err != nil {
		return err
	}
	w.reconciler.Resources, w.reconciler.Report, w.reconciler.NotSent = resources, reports.Use, w.called.notSent
	native := configuration.NewNative(cluster.FollowCompiled(w.lookups, compile.Find), w.log)
	w.add(part{run: endless(native.Run)})
	w.called.native, w.called.leave, w.called.neverSent = native, w.LeaveCompiled, neverSent(w.ownNamespace())
	w.reconciler.Native, w.reconciler.Renotify[2] = native, native.Changed()
	if w.called.reader != nil {
		w.reconciler.Renotify[0] = w.called.reader.Noticed()
	}
	if w.called.rules != nil {
		w.reconciler.Renotify[1] = w.called.writer.Changed()
	}
	return nil
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
