package login

import (
	"net/netip"
	"sync"
	"time"
)

// ClientOf returns what identifies a caller: the address that the connection comes
// from, of IPv6 the /64, which is what one machine has at least. A header such as
// X-Forwarded-For is not evaluated: anybody can write one. Whatever has no such
// address is one client.
func ClientOf(remoteAddr string) netip.Prefix {
	from, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	address := from.Addr().Unmap().WithZone("")
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits) // the address is valid and has that many bits
	return prefix
}

// clientName returns the name of a client: an address, or a prefix of IPv6.
func clientName(client netip.Prefix) string {
	switch {
	case !client.IsValid():
		return "unknown"
	case client.IsSingleIP():
		return client.Addr().String()
	default:
		return client.String()
	}
}

const (
	// mostAddressesKnown bounds the table of addresses, which takes 3.3 MiB then. An
	// address that is driven out begins anew, with no more than a further address
	// would bring to whoever has that many: what bounds guessing is Attempts.
	mostAddressesKnown = 1 << 14
	// addressAtOnce is how many logins, and questions about tokens, an address has at one
	// time.
	addressAtOnce = 8
)

// addresses bounds what one address asks of an endpoint. It is safe for concurrent
// use.
type addresses struct {
	rate Rate
	// atOnce is how many calls an address has at one time.
	atOnce int

	mu    sync.Mutex
	known table[netip.Prefix, tally]
}

func newAddresses(rate Rate, atOnce int, now func() time.Time) *addresses {
	return &addresses{rate: rate, atOnce: atOnce, known: table[netip.Prefix, tally]{
		most: mostAddressesKnown,
		used: func(t *tally) bool { return t.pending > 0 },
		over: func(t *tally) bool { return t.bucket.idle(now()) },
	}}
}

// enter counts a call, and returns how long the caller has to wait if it may not
// be made. Who entered leaves.
func (a *addresses) enter(client netip.Prefix, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if wait := a.known.get(client).wait(now, a.rate, a.atOnce); wait > 0 {
		return wait
	}
	t := a.known.use(client)
	t.pending++
	t.bucket.take(now, a.rate)
	return 0
}

func (a *addresses) leave(client netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.get(client).pending--
}
