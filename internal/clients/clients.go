// Package clients counts for each client what it uses of limited resources. Connections, memory, decisions, log lines and
// lookups all use it.
//
// A client is a certificate, or without one an address, of IPv6 the /64. Addresses also count for their network, a /24.
// One rule holds for every resource: when it runs short, the client that uses the most loses something first, and is
// served last. Clients with a certificate never give way to those without.
package clients

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Kind is something of which an account knows what the client holds.
type Kind int

// The kinds. Each belongs to one Pool, or one limit of connections, whose lock guards it.
const (
	Connections Kind = iota
	Memory
	TokenMemory
	Decisions
	TokenDecisions
	AccessMemory
	AccessDecisions
	Compilations
	kinds
)

const (
	// networkBits is the length of the networks of IPv4 addresses.
	networkBits = 24
	// maxAccounts bounds the accounts of clients without a connection.
	maxAccounts = 4096
	// A client without a certificate may cause so many log lines and look-ups a second, after a burst.
	linesPerSecond, lineBurst     = 10, 100
	lookupsPerSecond, lookupBurst = 5, 10
)

// Client is the account of a client.
type Client struct {
	// Address is the address of a client without a certificate. It is the zero Prefix of any other, and of a client of which nothing is known.
	Address netip.Prefix
	// Certified reports whether the client showed a verified certificate.
	Certified bool
	// Lines and Lookups limit the log lines and the look-ups that a client without a certificate causes.
	Lines, Lookups *rate.Limiter

	known atomic.Bool
	// parent is the account of the network, or of all clients.
	parent *Client
	// open counts what refers to the account: connections, or the addresses of a network. It is guarded by the Table.
	open int
	// held is what the client holds, and members are the accounts below this one that hold any.
	held, members [kinds]int64
}

// Table has the accounts of a server. The zero value is empty. It is safe for concurrent use.
type Table struct {
	mu                   sync.Mutex
	accounts             map[key]*Client
	strangers, certified Client
}

type key struct {
	address     netip.Prefix
	certificate string
}

// Unknown returns the account of a client of which nothing is known.
func Unknown() *Client { return new(Table).Open(netip.Prefix{}, "") }

// Open returns the account of a certificate, or of an address if that is empty, for a connection. The caller closes it.
func (t *Table) Open(address netip.Prefix, certificate string) *Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := key{address: address}
	if certificate != "" {
		k = key{certificate: certificate}
	}
	c := t.account(k)
	c.open++
	return c
}

// Close ends a use of an account. What is not used remains for its limits, while there are few accounts.
func (t *Table) Close(c *Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.open--
}

// account returns the account of a key. The table is locked.
func (t *Table) account(k key) *Client {
	if c := t.accounts[k]; c != nil {
		return c
	}
	if len(t.accounts) >= maxAccounts {
		t.forget()
	}
	c := &Client{Address: k.address, Certified: k.certificate != "", parent: &t.strangers}
	switch address := k.address; {
	case c.Certified:
		c.parent = &t.certified
	case address.Addr().Is4() && address.Bits() > networkBits:
		network, _ := address.Addr().Prefix(networkBits) // an address of IPv4 has that many bits
		c.parent = t.account(key{address: network})
		c.parent.open++
		fallthrough
	default:
		c.Lines, c.Lookups = rate.NewLimiter(linesPerSecond, lineBurst), rate.NewLimiter(lookupsPerSecond, lookupBurst)
	}
	if t.accounts == nil {
		t.accounts = make(map[key]*Client)
	}
	t.accounts[k] = c
	return c
}

// forget removes the accounts that are not used. The table is locked.
func (t *Table) forget() {
	for k, c := range t.accounts {
		if c.open == 0 {
			delete(t.accounts, k)
			c.parent.open--
		}
	}
}

// Add adds n to what the client holds of a kind, whose lock is held.
func (c *Client) Add(k Kind, n int64) {
	for ; c.parent != nil; c = c.parent {
		if c.held[k] == 0 {
			c.parent.members[k]++
		}
		if c.held[k] += n; c.held[k] == 0 {
			c.parent.members[k]--
		}
	}
	c.held[k] += n
}

// Know notes that a whole call has come from the client, or a certificate.
func (c *Client) Know() { c.known.Store(true) }

// IsKnown reports whether Know was called.
func (c *Client) IsKnown() bool { return c.known.Load() }

// Held returns what the client holds of a kind, whose lock is held.
func (c *Client) Held(k Kind) int64 { return c.held[k] }

// IsModest reports whether the client's network holds less than the average of the networks, or the client less than the average in its
// network.
func (c *Client) IsModest(k Kind) bool {
	for ; c.parent != nil; c = c.parent {
		if c.held[k]*c.parent.members[k] < c.parent.held[k] {
			return true
		}
	}
	return false
}

// precedes reports whether a client is served before another one: with a certificate, then of a network that holds less, then as one
// that holds less itself.
func (c *Client) precedes(other *Client, k Kind) bool {
	if c.Certified != other.Certified {
		return c.Certified
	}
	if mine, others := c.network().held[k], other.network().held[k]; mine != others {
		return mine < others
	}
	return c.held[k] < other.held[k]
}

// network returns the account of the client's network, which may be the client.
func (c *Client) network() *Client {
	if c.parent.parent != nil {
		return c.parent
	}
	return c
}
