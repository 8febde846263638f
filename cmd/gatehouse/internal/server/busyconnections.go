package server

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// busyConnections counts the connections on which a call is in progress or may be about
// to arrive: new ones, and active ones. It exists because http.Server.Shutdown drops a
// request that it reads while it shuts down, and its caller does not know whether it was
// served (measured: most stops under load lost one call on HTTP/1.1).
type busyConnections struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	// none is closed when no connection is busy. It is set by wait.
	none chan struct{}
}

// setState follows http.Server.ConnState.
func (b *busyConnections) setState(conn net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state {
	case http.StateNew, http.StateActive:
		if b.conns == nil {
			b.conns = make(map[net.Conn]struct{})
		}
		b.conns[conn] = struct{}{}
	case http.StateIdle, http.StateHijacked, http.StateClosed:
		delete(b.conns, conn)
		if len(b.conns) == 0 && b.none != nil {
			close(b.none)
			b.none = nil
		}
	}
}

// wait returns when no connection is busy, or with ctx. It is called once, after
// the listener has been closed.
func (b *busyConnections) wait(ctx context.Context) {
	b.mu.Lock()
	if len(b.conns) == 0 {
		b.mu.Unlock()
		return
	}
	none := make(chan struct{})
	b.none = none
	b.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}
