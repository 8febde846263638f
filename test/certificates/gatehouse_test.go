package certificates

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/certs/rotation"
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
		"--registration", "validating/" + h.name, "--replica", name, "--rotation-hold", lag.String(),
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
		p := &program{server, newNetwork(t, cluster.ListenAddress(), server.Reviews.String(), thinking), name}
		ps, ports = append(ps, p), append(ports, p.port())
	}
	h.endpoints(t, ports...)
	return ps
}

// work is that of all.
func (ps programs) work() work {
	var sum work
	for _, p := range ps {
		sum = sum.and(p.work())
	}
	return sum
}

// certs runs 'gatehouse certs' with a hook's Secret.
func (h *hook) certs(ctx context.Context, command string, flags ...string) (string, error) {
	return gatehouse.Run(ctx, append([]string{
		"certs", command, "--kubeconfig", h.Kubeconfig(), "--secret", h.name + "/" + secret, "--registration", "validating/" + h.name,
	}, flags...)...)
}

// The program rotates its CA when an administrator says so, and no call fails.
func TestGatehouseRotates(t *testing.T) {
	h := newHook(t)
	ps := h.programs(t, 3)
	l := h.load(t, ps.work)
	l.more(t, enough/10)
	for _, flags := range [][]string{{"--wait"}, {"--wait", "--emergency"}} {
		before := h.inPhase(t, rotation.Stable)
		target := l.Calls() + enough
		said, err := h.certs(t.Context(), "rotate", flags...)
		must(t, err)
		if !strings.Contains(said, "done: the old CA is removed") {
			t.Errorf("gatehouse certs rotate %q says %q", flags, said)
		}
		after := h.inPhase(t, rotation.Stable)
		if after.Current.Cert.Equal(before.Current.Cert) {
			t.Errorf("gatehouse certs rotate %q came back with the old CA", flags)
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

// A rotation waits for a replica that was killed, which may as well be isolated and serve its old certificate. Started
// again, it takes over its Lease, and the rotation continues with the new CA.
func TestGatehouseDiesInRotation(t *testing.T) {
	h := newHook(t)
	ps := h.programs(t, 3)
	l := h.load(t, ps.work)
	l.more(t, enough/10)
	// Calls to a program that is killed fail whatever it serves, so nobody calls it any more.
	h.endpoints(t, ps[1].port(), ps[2].port())
	l.last(t, lag)
	_, err := h.certs(t.Context(), "rotate")
	must(t, err)
	before := h.inPhase(t, rotation.Hold)
	ps[0].Kill()
	h.inPhase(t, rotation.Activate)
	l.last(t, 2*lag)
	during := h.inPhase(t, rotation.Activate)

	ps[0].Server = h.serve(t, ps[0].name)
	again := newNetwork(t, cluster.ListenAddress(), ps[0].Reviews.String(), thinking)
	h.endpoints(t, again.port(), ps[1].port(), ps[2].port())
	after := h.inPhase(t, rotation.Stable)
	if !after.Current.Cert.Equal(before.Pending.Cert) || !during.Current.Cert.Equal(before.Pending.Cert) {
		t.Error("the rotation was begun anew")
	}
	l.last(t, lag)
	if again.work().handshakes == 0 {
		t.Error("the program that was started again is not called")
	}
	l.noneFailed(t, enough)
}
