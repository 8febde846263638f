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

// ClusterLookup are the cluster in which policies and profiles look things up.
// Without one, they look into the directory.
type ClusterLookup struct {
	// Cluster is nil without.
	Cluster *cluster.Cluster
	// view is that of the configuration in use.
	view *cluster.View
}

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

// provide makes a configuration look things up in the cluster, and gives these a
// moment to be read before it is used. At a start, reviews are not asked for
// before they are; later, what is not there in time is "could not tell".
func (s *ClusterLookup) provide(ctx context.Context, c *config.Config) *cluster.View {
	if s.Cluster == nil {
		return nil
	}
	view := s.Cluster.Provide(&c.Policy, &c.Sidecar) //nolint:contextcheck // what is watched lives longer than this call
	const moment = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	_ = view.Wait(ctx) // what is missing is logged and measured by the cluster
	return view
}

// ReadNamespace reads namespaces of requests, nil without a cluster.
func (s *ClusterLookup) ReadNamespace() func(string, netip.Prefix, bool) {
	if s.Cluster == nil {
		return nil
	}
	return s.Cluster.ReadNamespace
}

// keep notes what belongs to the configuration in use.
func (s *ClusterLookup) keep(view *cluster.View) { s.view = view }

// clean stops what the configuration in use does not look up.
func (s *ClusterLookup) clean() {
	if s.Cluster != nil {
		s.Cluster.Keep(s.view)
	}
}

// ready tells what has not been read since the start.
func (s *ClusterLookup) ready() error {
	if s.Cluster == nil {
		return nil
	}
	return s.Cluster.Ready()
}

func (s *ClusterLookup) Close() {
	if s.Cluster != nil {
		s.Cluster.Close()
	}
}
