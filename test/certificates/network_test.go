package certificates

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support/cluster"
)

// thinking is how long an answer takes: so long that most of the load's calls are under way at one time, and the API server makes
// connections that it then does not keep.
const thinking = 15 * time.Millisecond

// network is a slow way to one server, which counts connections.
type network struct {
	listener net.Listener
	target   atomic.Pointer[string]
	// connections are how many there have been.
	connections atomic.Int64
}

// newNetwork begins at a free port.
func newNetwork(t *testing.T, target string) *network {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(cluster.ListenAddress(), "0"))
	must(t, err)
	n := &network{listener: listener}
	n.set(target)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
	})
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			n.connections.Add(1)
			go n.carry(ctx, connection)
		}
	}()
	return n
}

// set changes where it leads.
func (n *network) set(target string) { n.target.Store(&target) }

func (n *network) port() int { return n.listener.Addr().(*net.TCPAddr).Port }

func (n *network) carry(ctx context.Context, client net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = client.Close() })
	server, err := new(net.Dialer).DialContext(ctx, "tcp", *n.target.Load())
	if err != nil {
		return
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		defer cancel()
		transfer(server, client, 0)
	}()
	transfer(client, server, thinking)
}

func transfer(to io.Writer, from io.Reader, latency time.Duration) {
	buffer := make([]byte, 32<<10)
	for {
		read, err := from.Read(buffer)
		if err != nil {
			return
		}
		time.Sleep(latency)
		_, err = to.Write(buffer[:read])
		if err != nil {
			return
		}
	}
}
