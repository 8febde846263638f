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
		"certs", command, "--kubeconfig", h.Kubeconfig(), "--secret", h.name + "/" + secret, "--registration", "validating/" + h.name,
	}, flags...)...)
}

// The program rotates its CA when an administrator says so, and no call fails.
func TestGatehouseRotates(t *testing.T) {
	h := newHook(t)
	ps := h.programs(t, 3)
	l := h.load(t, ps.connections)
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
