package replicas

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// forwardTransport returns a transport whose requests reach a port of a pod through the port-forward
// of the API server, whatever their host. Each request has a connection of its own, because a
// connection with many streams waits for the slowest. Unlike kubectl port-forward it opens no port
// on this machine, which other users of the machine could read from.
//
// The URL is that of the subresource portforward of the pod.
func forwardTransport(config *rest.Config, pod *url.URL, port int) (*http.Transport, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // it would end a long transfer
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(pod, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	// API servers before 1.31 and some proxies know SPDY alone.
	dialer := portforward.NewFallbackDialerForStreaming(tunnel, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, pod), func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	return &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialPod(ctx, dialer, port) },
	}, nil
}

// dialPod opens a connection to a port of a pod.
func dialPod(ctx context.Context, dialer httpstream.Dialer, port int) (net.Conn, error) {
	type result struct {
		connection httpstream.Connection
		err        error
	}
	dialed := make(chan result, 1)
	go func() { // Dial has no context
		connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		dialed <- result{connection, err}
	}()
	select {
	case r := <-dialed:
		if r.err != nil {
			return nil, r.err
		}
		c, err := newPodConnection(r.connection, port)
		if err != nil {
			_ = r.connection.Close()
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		go func() {
			if r := <-dialed; r.err == nil {
				_ = r.connection.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// podConnection is a connection to a port of a pod as a net.Conn. Deadlines have no effect: the
// context of a request closes it.
type podConnection struct {
	httpstream.Stream

	connection httpstream.Connection
	// explained is closed when the node has said why it cannot connect, or that it has nothing to say: then failure is why, or nil.
	explained chan struct{}
	failure   error
	close     sync.Once
}

// forwardError is a connection that the node cannot make.
type forwardError struct{ text string }

// Error says why.
func (e *forwardError) Error() string { return e.text }

func newPodConnection(connection httpstream.Connection, port int) (*podConnection, error) {
	header := http.Header{}
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	header.Set(corev1.PortHeader, strconv.Itoa(port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	problems, err := connection.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("forward port %d: %w", port, err)
	}
	_ = problems.Close() // nothing is written to it
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("forward port %d: %w", port, err)
	}
	c := &podConnection{Stream: data, connection: connection, explained: make(chan struct{})}
	go func() {
		const most = 1 << 10
		text, err := io.ReadAll(io.LimitReader(problems, most))
		if err == nil && len(text) > 0 {
			c.failure = &forwardError{fmt.Sprintf("forward port %d: %s", port, truncate.Runes(strings.TrimSpace(string(text)), 300))}
			defer func() { _ = c.Close() }() // the node sends nothing more, and leaves the stream open
		}
		close(c.explained)
	}()
	return c, nil
}

// Read implements net.Conn.
func (c *podConnection) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if err != nil && n == 0 {
		err = c.cause(err)
	}
	return n, err
}

// Write implements net.Conn.
func (c *podConnection) Write(p []byte) (int, error) {
	n, err := c.Stream.Write(p)
	if err != nil {
		err = c.cause(err)
	}
	return n, err
}

// cause returns why the node cannot connect, or the error if that is not why: an error of a stream says only that it has ended.
func (c *podConnection) cause(err error) error {
	// The node says why on the other stream, which may arrive a little later.
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-c.explained:
		if c.failure != nil {
			return c.failure
		}
	case <-timer.C:
	}
	return err
}

// Close implements net.Conn.
func (c *podConnection) Close() error {
	c.close.Do(func() { _ = c.connection.Close() }) // the other side may have closed it
	return nil
}

// LocalAddr and the following methods implement net.Conn.
func (*podConnection) LocalAddr() net.Addr              { return podAddress{} }
func (*podConnection) RemoteAddr() net.Addr             { return podAddress{} }
func (*podConnection) SetDeadline(time.Time) error      { return nil }
func (*podConnection) SetReadDeadline(time.Time) error  { return nil }
func (*podConnection) SetWriteDeadline(time.Time) error { return nil }

// podAddress is the address of a podConnection, which has none on this machine.
type podAddress struct{}

func (podAddress) Network() string { return "portforward" }
func (podAddress) String() string  { return "pod" }
