package certificates

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// network is the way to one server. Cut, it swallows what is sent without a word, as networks do; mended, it delivers
// that.
type network struct {
	listener net.Listener
	target   string
	// latency is how long an answer takes.
	latency time.Duration

	mu sync.Mutex
	// open is closed while the way is open.
	open chan struct{}
	// connections are how many there have been.
	connections int
}

// newNetwork begins at a free port of a host.
func newNetwork(t *testing.T, host, target string, latency time.Duration) *network {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	must(t, err)
	n := &network{listener: listener, target: target, latency: latency, open: make(chan struct{})}
	close(n.open)
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
			n.mu.Lock()
			n.connections++
			n.mu.Unlock()
			go n.carry(ctx, connection)
		}
	}()
	return n
}

// work is that of a server of TLS at the end.
func (n *network) work() work {
	n.mu.Lock()
	defer n.mu.Unlock()
	return work{handshakes: n.connections}
}

func (n *network) port() int { return n.listener.Addr().(*net.TCPAddr).Port }

// url is that of a server of HTTPS at the end.
func (n *network) url() string { return "https://" + n.listener.Addr().String() }

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = make(chan struct{})
}

func (n *network) mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.open)
}

// pass waits until the way is open.
func (n *network) pass(ctx context.Context) error {
	n.mu.Lock()
	open := n.open
	n.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *network) carry(ctx context.Context, client net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = client.Close() })
	if n.pass(ctx) != nil {
		return
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp", n.target)
	if err != nil {
		return
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		defer cancel()
		n.copy(ctx, server, client, 0)
	}()
	n.copy(ctx, client, server, n.latency)
}

func (n *network) copy(ctx context.Context, to io.Writer, from io.Reader, latency time.Duration) {
	buffer := make([]byte, 32<<10)
	for {
		read, err := from.Read(buffer)
		if err != nil || n.pass(ctx) != nil {
			return
		}
		time.Sleep(latency)
		_, err = to.Write(buffer[:read])
		if err != nil {
			return
		}
	}
}
