package certificates

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

// program is 'gatehouse serve' as a replica of a hook, behind a network so slow that the API server needs many
// connections at one time.
type program struct {
	*gatehouse.Server
	*network
	name string
}

// serve starts 'gatehouse serve'. It ends with the test.
func (h *hook) serve(t *testing.T, name string, flags ...string) *gatehouse.Server {
	t.Helper()
	const config = "../../manifests/examples/log-shipper" // which has nothing to say about ConfigMaps
	server, err := gatehouse.Start(t.Context(), filepath.Join(t.TempDir(), "log"), append([]string{
		"--config", config, "--listen", net.JoinHostPort(cluster.ListenAddress(), "0"), "--ops-listen", "127.0.0.1:0",
		"--kubeconfig", h.Kubeconfig(), "--self-signed", h.host(), "--self-signed-secret", h.name + "/" + secret,
		"--registration", h.name, "--replica", name, "--rotation-hold", lag.String(),
	}, flags...)...)
	must(t, err)
	t.Cleanup(server.Kill)
	return server
}

type programs []*program

func (h *hook) programs(t *testing.T, n int, flags ...string) programs {
	t.Helper()
	var (
		ps    programs
		ports []int
	)
	for i := range n {
		name := fmt.Sprintf("replica-%d", i)
		server := h.serve(t, name, flags...)
		p := &program{server, newNetwork(t, server.Reviews.String()), name}
		ps, ports = append(ps, p), append(ports, p.port())
	}
	h.endpoints(t, ports...)
	return ps
}

// connections is how many have been made to all of them.
func (ps programs) connections() int64 {
	var sum int64
	for _, p := range ps {
		sum += p.connections.Load()
	}
	return sum
}

// certs runs 'gatehouse certs' with a hook's Secret.
func (h *hook) certs(ctx context.Context, command string, flags ...string) (string, error) {
	return gatehouse.Run(ctx, append([]string{
		"certs", command, "--kubeconfig", h.Kubeconfig(), "--secret", h.name + "/" + secret, "--registration", h.name,
	}, flags...)...)
}

// The program rotates its CA when an administrator says so, and no call fails. The second time, the replica that rotates is killed
// in the middle, and another goes on.
func TestGatehouseRotates(t *testing.T) {
	h := newHook(t)
	ps := h.programs(t, 3)
	l := h.load(t, ps.connections)
	l.more(t, enough/10)
	for _, killed := range []bool{false, true} {
		before := h.inPhase(t, certs.Stable)
		target := l.Calls() + enough
		done := make(chan error, 1)
		var said string
		go func() {
			var err error
			said, err = h.certs(t.Context(), "rotate", "--wait")
			done <- err
		}()
		if killed {
			h.inPhase(t, certs.Published)
			h.restartLeader(t, ps, l)
		}
		must(t, <-done)
		if !strings.Contains(said, "done: the old CA is removed") {
			t.Errorf("gatehouse certs rotate says %q", said)
		}
		after := h.inPhase(t, certs.Stable)
		if after.Active.Cert.Equal(before.Active.Cert) {
			t.Error("gatehouse certs rotate came back with the old CA")
		}
		must(t, h.trusts(t.Context(), after))
		l.more(t, max(workers, target-l.Calls()))
	}
	l.noneFailed(t, 2*enough)
	said, err := h.certs(t.Context(), "status")
	if err != nil {
		t.Errorf("gatehouse certs status: %v: %s", err, said)
	}
}

// restartLeader kills the replica that is elected, once it gets no more calls, and starts another.
func (h *hook) restartLeader(t *testing.T, ps programs, l *load) {
	t.Helper()
	lease, err := h.Client().CoordinationV1().Leases(h.name).Get(t.Context(), "gatehouse-leader", metav1.GetOptions{})
	must(t, err)
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	var others []int
	var leader *program
	for _, p := range ps {
		if p.name == name {
			leader = p
		} else {
			others = append(others, p.port())
		}
	}
	if leader == nil {
		t.Fatalf("the leader is %q", name)
	}
	h.endpoints(t, others...)
	l.last(t, lag)
	leader.Kill()
	server := h.serve(t, name)
	leader.Server = server
	leader.set(server.Reviews.String())
	h.endpoints(t, append(others, leader.port())...)
}
