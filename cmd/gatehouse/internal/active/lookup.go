package active

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/source/cluster"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
)

// maxLookupWait bounds how long the activation of a configuration waits for what it looks up. What is not there in time is
// logged and measured by its source; until it is there, decisions that need it are "cannot decide".
const maxLookupWait = 5 * time.Second

// ClusterLookup is the cluster in which policies and profiles look up objects. Without one, they look into the directory.
type ClusterLookup struct {
	// Cluster is nil without one.
	Cluster *cluster.Cluster
}

// NewClusterLookup returns the lookup in the cluster of access, which may be nil.
func NewClusterLookup(access *rest.Config, log *slog.Logger, metrics *telemetry.Telemetry) (*ClusterLookup, error) {
	if access == nil {
		return &ClusterLookup{}, nil
	}
	cluster.LogLibraries(log)
	c, err := cluster.New(access, build.Version(), log)
	if err != nil {
		return nil, err
	}
	metrics.Registry.MustRegister(c)
	return &ClusterLookup{Cluster: c}, nil
}

// provide connects a configuration with the cluster, and waits for the objects that it names to be read. At a start no review
// comes before they are.
func (l *ClusterLookup) provide(ctx context.Context, c *config.Config) *cluster.View {
	if l.Cluster == nil {
		return nil
	}
	view := l.Cluster.Provide(&c.Policy, &c.Sidecar) //nolint:contextcheck // what is watched lives longer than this call
	ctx, cancel := context.WithTimeout(ctx, maxLookupWait)
	defer cancel()
	_ = view.Wait(ctx)
	return view
}

// ReadNamespace returns the function that reads the namespace of a request, nil without a cluster.
func (l *ClusterLookup) ReadNamespace() func(string, netip.Prefix, bool) {
	if l.Cluster == nil {
		return nil
	}
	return l.Cluster.ReadNamespace
}

// release stops watching what the active configuration, which has this view, does not look up.
func (l *ClusterLookup) release(active *cluster.View) {
	if l.Cluster != nil {
		l.Cluster.Keep(active)
	}
}

// ready returns an error that names what has not been read since the start.
func (l *ClusterLookup) ready() error {
	if l.Cluster == nil {
		return nil
	}
	return l.Cluster.Ready()
}

// Close stops all watches.
func (l *ClusterLookup) Close() {
	if l.Cluster != nil {
		l.Cluster.Close()
	}
}
