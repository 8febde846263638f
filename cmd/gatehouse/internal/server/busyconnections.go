package server

import (
	"context"
	"sync/atomic"
)

// busyConnections counts the connections on which a call is in progress or may be about
// to arrive: new ones, and active ones. It exists because http.Server.Shutdown drops a
// request that it reads while it shuts down, and its caller does not know whether it was
// served (measured: most stops under load lost one call on HTTP/1.1).
type busyConnections struct {
	count atomic.Int64
	// none has an element once no connection is busy. It may be from an earlier time.
	none chan struct{}
}

// set notes whether a connection is busy.
func (b *busyConnections) set(c *connection, busy bool) {
	switch {
	case c.busy.Swap(busy) == busy:
	case busy:
		b.count.Add(1)
	case b.count.Add(-1) == 0:
		select {
		case b.none <- struct{}{}:
		default:
		}
	}
}

// wait returns when no connection is busy, or with ctx. It is called once, after
// the listener has been closed.
func (b *busyConnections) wait(ctx context.Context) {
	for b.count.Load() > 0 {
		select {
		case <-b.none:
		case <-ctx.Done():
			return
		}
	}
}
