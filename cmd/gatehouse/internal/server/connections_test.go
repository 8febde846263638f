package server

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// silentConn is a connection from an address over which nothing comes.
type silentConn struct {
	net.Conn

	address string
	closed  atomic.Bool
}

func (c *silentConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.address), 1))
}

func (c *silentConn) Close() error {
	c.closed.Store(true)
	return nil
}

// connect adds a connection, a nanosecond after the one before.
func connect(l *connections, address string) (*silentConn, *connection) {
	time.Sleep(time.Nanosecond)
	conn := &silentConn{address: address}
	return conn, l.add(conn, time.Time{})
}

// checkNoneLeft closes all connections.
func checkNoneLeft(t *testing.T, l *connections) {
	t.Helper()
	for c := range l.all {
		connState(c, http.StateClosed)
	}
	if len(l.all) != 0 || l.weight != 0 {
		t.Errorf("left are %d connections that weigh %d", len(l.all), l.weight)
	}
}

// TestStalledConnections has 200 addresses, of a network or of 200, make connections over which calls begin and
// none arrives. No connection of another address is closed before its call arrives, nor later.
func TestStalledConnections(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		format string
		http2  bool
	}{
		"of one network":            {"198.51.100.%", false},
		"of 200 networks":           {"198.51.%.1", false},
		"HTTP/2, of one network":    {"198.51.100.%", true},
		"HTTP/2, of 200 networks":   {"198.51.%.1", true},
		"of the others' network":    {"192.0.2.%", false},
		"HTTP/2, of their network":  {"192.0.2.%", true},
		"of one address":            {"198.51.100.1", false},
		"of one of IPv6":            {"2001:db8::%", false},
		"HTTP/2, of a neighbour":    {"192.0.2.250", true},
		"HTTP/2, of one of network": {"198.51.100.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				closed := 0
				l := &connections{limit: 464, firstCall: time.Hour, onLimit: func(n int, _ netip.Prefix) { closed += n }}
				const us = "192.0.2.251"
				first, kept := connect(l, us)
				kept.Begin()
				kept.End()
				attack := func(i int) {
					_, c := connect(l, replaceLast(test.format, i%200))
					if test.http2 {
						c.weigh(maxWeight)
					}
					connState(c, http.StateActive)
				}
				for i := range 4000 {
					if attack(i); i%20 != 0 {
						continue
					}
					// This one's call arrives after the next ten connections have been made.
					other, c := connect(l, us)
					for j := range 10 {
						attack(i + j)
					}
					if other.closed.Load() || first.closed.Load() {
						t.Fatalf("beside %d, a connection is closed: the new one %v, the old one %v", len(l.all), other.closed.Load(), first.closed.Load())
					}
					c.Begin()
					c.End()
					connState(c, http.StateClosed)
				}
				if closed == 0 || l.weight > l.limit {
					t.Errorf("%d connections were closed, and others weigh %d", closed, l.weight)
				}
				checkNoneLeft(t, l)
			})
		})
	}
}

// replaceLast replaces % by a number.
func replaceLast(format string, n int) string {
	if i := slices.Index([]byte(format), '%'); i >= 0 {
		return format[:i] + strconv.Itoa(n) + format[i+1:]
	}
	return format
}

// TestIdleConnections checks when connections without a call in progress are closed.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	for whole, want := range map[bool]time.Duration{false: firstCallTimeout, true: idleTimeout} {
		synctest.Test(t, func(t *testing.T) {
			l := &connections{limit: 16, firstCall: firstCallTimeout}
			conn, c := connect(l, "192.0.2.1")
			if whole {
				c.Begin()
				c.End()
			}
			for range 3 {
				connState(c, http.StateActive)
				time.Sleep(2 * want)
				connState(c, http.StateIdle)
				time.Sleep(want - time.Second)
			}
			connState(c, http.StateActive)
			connState(c, http.StateIdle)
			time.Sleep(want - time.Nanosecond)
			if synctest.Wait(); conn.closed.Load() {
				t.Error("the connection is closed before its time, or with a call in progress")
			}
			time.Sleep(time.Nanosecond)
			if synctest.Wait(); !conn.closed.Load() || len(l.all) != 0 {
				t.Errorf("after %s without a call, the connection is closed: %v", want, conn.closed.Load())
			}
		})
	}
}

// TestClosingOrder checks which connection is closed for the last one.
func TestClosingOrder(t *testing.T) {
	t.Parallel()
	type made struct {
		address string
		// whole reports whether a call arrives, and busy whether it is still in progress.
		whole, busy bool
		// calls is how many begin and do not arrive.
		calls int
	}
	const us, them, theirs = "192.0.2.1", "198.51.100.1", "198.51.100.2"
	for _, test := range []struct {
		name  string
		limit int64
		made  []made
		// closed is the index of the one that is closed, which may be the last.
		closed int
	}{
		{"of one without a whole call", 3, []made{{address: us, whole: true}, {address: them}, {address: them}, {address: us}}, 1},
		{"of one with a whole call, if most are", 3, []made{{address: us, whole: true}, {address: us, whole: true}, {address: us}, {address: them}}, 0},
		{"the oldest", 3, []made{{address: them}, {address: them}, {address: them}, {address: theirs}}, 0},
		{"of the network with the most", 4, []made{{address: us}, {address: them}, {address: them}, {address: them}, {address: theirs}}, 1},
		{"of the address with the most", 5, []made{{address: theirs}, {address: them}, {address: them}, {address: them}, {address: them}, {address: them}}, 1},
		{"the one whose last call is oldest", 2, []made{{address: them, whole: true}, {address: them, whole: true}, {address: us, whole: true}}, 0},
		{"the heaviest", 7, []made{{address: us, calls: 3}, {address: them, calls: 4}, {address: theirs}}, 1},
		{"no call in progress of the same address", 2, []made{{address: us, whole: true, busy: true}, {address: us, whole: true, busy: true}, {address: us}}, 2},
		{"no only call in progress", 2, []made{{address: us, whole: true, busy: true}, {address: them, whole: true, busy: true}, {address: theirs}}, 2},
		{"a call in progress of another address", 2, []made{{address: them, whole: true, busy: true}, {address: them, whole: true, busy: true}, {address: us}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &connections{limit: test.limit, firstCall: time.Hour, onLimit: func(int, netip.Prefix) {}}
				var conns []*silentConn
				for _, m := range test.made {
					conn, c := connect(l, m.address)
					conns = append(conns, conn)
					for range m.calls {
						c.begin()
					}
					if m.whole {
						if c.Begin(); !m.busy {
							c.End()
						}
					}
				}
				for i, conn := range conns {
					if conn.closed.Load() != (i == test.closed) {
						t.Errorf("connection %d is closed: %v", i, conn.closed.Load())
					}
				}
				checkNoneLeft(t, l)
			})
		})
	}
}
