package status

import (
	"cmp"
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Peer is another replica that is alive.
type Peer struct {
	// Name is that of its process, and Needs is Report.Needs of its last report.
	Name, Needs string
}

// Peers reads the reports of the other replicas. It belongs to one goroutine.
type Peers struct {
	c      *Controller
	leases typedcoordinationv1.LeasesGetter
	known  map[string]*replica // by the name of the Lease
}

// Peers returns a reader that has read nothing yet, so that every report that it finds counts as new. It does not share the
// rate limit of writes of status.
func (c *Controller) Peers(leases typedcoordinationv1.LeasesGetter) *Peers {
	return &Peers{c: c, leases: leases, known: map[string]*replica{}}
}

// List returns the other replicas that are alive, by name.
func (p *Peers) List(ctx context.Context) ([]Peer, error) {
	found, err := p.c.listReplicas(ctx, p.leases, p.known, "", func(*coordinationv1.Lease) {})
	if err != nil {
		return nil, err
	}
	p.known = found
	now, alive := time.Now(), []Peer(nil)
	for _, one := range found {
		if one.isAlive(now) {
			alive = append(alive, Peer{one.name, one.needs})
		}
	}
	slices.SortFunc(alive, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	return alive, nil
}
