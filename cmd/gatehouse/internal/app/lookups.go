package app

import (
	"context"
	"fmt"
	"hash/maphash"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/configuration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/events"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// access returns the client configuration of the cluster, nil without one.
func (f *Options) access() (*rest.Config, error) {
	switch {
	case f.InCluster:
		access, err := cluster.InCluster()
		if err != nil {
			return nil, fmt.Errorf("--in-cluster: %w", err)
		}
		return access, nil
	case f.Kubeconfig != "":
		access, err := cluster.FromKubeconfig(f.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return access, nil
	default:
		return nil, nil //nolint:nilnil // there is none
	}
}

// accessOf returns a client configuration of the cluster for a part, whose requests have its name.
func (w *wiring) accessOf(part string) *rest.Config {
	access := rest.CopyConfig(w.access)
	access.UserAgent = "gatehouse-" + part + "/" + build.Version()
	return access
}

// events returns a writer of Events.
func (w *wiring) events(ctx context.Context, client certs.Client) *events.Recorder {
	return events.New(context.WithoutCancel(ctx), events.Config{Client: client.CoreV1(), Replica: replicaName(w.replica), Log: w.log})
}

// recordProblems has Events written about this replica, by its pod, when the configuration is rejected or params do not exist.
func (w *wiring) recordProblems(recorder *events.Recorder) {
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.ownNamespace(), Name: replicaName(w.replica)}
	w.current.Problems.Record = func(warning bool, reason, note string) { recorder.Write(pod, warning, reason, note) }
}

// addLookups adds the cluster in which policies and profiles look up objects.
func (w *wiring) addLookups(context.Context) error {
	if w.access == nil {
		return nil
	}
	cluster.LogLibraries(w.log)
	c, err := cluster.New(w.access, build.Version(), w.log)
	if err != nil {
		return err
	}
	w.lookups, w.reviews.ReadNamespace = c, c.ReadNamespace
	w.add(part{metrics: c, close: c.Close})
	return nil
}

// addConfiguration adds what keeps the configuration active.
func (w *wiring) addConfiguration(context.Context) error {
	providers := configuration.NewIdentityProviders(w.log, w.metrics, server.KeyWaits())
	w.add(part{close: providers.Close})
	w.current = &configuration.Active{
		Dir: w.Config, Log: w.log, Metrics: w.metrics, Seed: maphash.MakeSeed(),
		Activated: func(c *config.Config) { w.deciding.Store(c.Own()) },
	}
	w.reconciler = &configuration.Reconciler{
		Dir: w.Config, Current: w.current, Cluster: w.lookups, Providers: providers, RefuseEmptied: w.OnEmptiedFile == EmptiedFileRefuse,
	}
	problems := &w.current.Problems
	w.add(part{details: problems.Lines, observe: func(o *review.Outcome) {
		if by := o.Audit[policy.DeniedByKey]; by != "" {
			problems.NoteDenied(by, o.Namespace, o.Started)
		}
	}})
	w.reviews.CheckComplete = w.reconciler.CheckComplete
	w.logins.Current = func() *authn.Set { return w.current.Snapshot.Load().Authn }
	return nil
}

// addTokens adds what records the use of access tokens in the status of custom resources.
func (w *wiring) addTokens(context.Context) error {
	if !w.CustomResources {
		return nil
	}
	usage, err := tokens.NewClusterUsage(w.accessOf("tokens"), w.log)
	if err != nil {
		return err
	}
	w.current.KnowTokens = usage.Know
	w.add(part{run: endless(usage.Run), observe: func(o *review.Outcome) {
		if o.Decision == review.Allowed && o.Backend == string(authn.AccessTokens) {
			usage.Note(o.TokenID, o.Started)
		}
	}})
	return nil
}

// addLogouts adds what keeps the revocations that issuers ask for.
func (w *wiring) addLogouts(context.Context) error {
	if w.BackChannelLogout == 0 {
		return nil
	}
	logouts, err := tokens.NewLogouts(w.accessOf("logouts"), w.BackChannelLogout, w.log)
	if err != nil {
		return err
	}
	w.logins.Revoke, w.reviews.Logout = logouts.Revoke, true
	w.add(part{run: endless(logouts.Run)})
	return nil
}
