package clients

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

const mebibyte = 1 << 20

func memory() *Pool {
	return &Pool{Kind: Memory, Size: 64 * mebibyte, Reserved: 8 * mebibyte, Spare: 8 * mebibyte, Small: 64 << 10, Share: 3}
}

func address(text string) netip.Prefix {
	ip := netip.MustParseAddr(text)
	if ip.Is6() {
		return netip.PrefixFrom(ip, 64).Masked()
	}
	return netip.PrefixFrom(ip, 32)
}

// hold takes n at a time until there is no more, and returns how much that was.
func (p *Pool) hold(c *Client, n int64) (held int64) {
	for p.Try(c, n) {
		held += n
	}
	return held
}

// TestShares has hostile clients take all that they get: alone one gets most of it, and something is left for others.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// format makes the addresses of n hostile clients, and each is what they take at one time.
		format string
		n      int
		each   int64
		// least is what another address gets after that, and neighbour what one in the network of the first does.
		least, neighbour int64
	}{
		{"an address", "198.51.100.1", 1, 64 << 10, 8 * mebibyte, 6 * mebibyte},
		{"an address with large takes", "198.51.100.1", 1, 8 * mebibyte, 8 * mebibyte, 6 * mebibyte},
		{"200 addresses of a network", "198.51.100.%d", 200, 64 << 10, 4 * mebibyte, 0},
		{"200 addresses of a network of IPv6", "2001:db8::%x", 200, 64 << 10, 8 * mebibyte, 0},
		{"20 networks with large takes", "198.51.%d.1", 20, 8 * mebibyte, 512 << 10, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var table Table
			pool := memory()
			for round := range 20 { // as requests end, others take their place
				for i := range test.n {
					text := test.format
					if test.n > 1 {
						text = fmt.Sprintf(test.format, i+1)
					}
					c := table.Open(address(text), "")
					if held := c.Held(Memory); held > 0 {
						pool.Release(c, held)
					}
					if held := pool.hold(c, test.each); round == 0 && i == 0 && held < 32*mebibyte {
						t.Errorf("alone, a client gets %d bytes", held)
					}
				}
			}
			for text, least := range map[string]int64{"198.51.100.250": test.neighbour, "192.0.2.1": test.least} {
				c := table.Open(address(text), "")
				got := pool.hold(c, 64<<10)
				if got < least {
					t.Errorf("%s gets %d bytes, want %d", text, got, least)
				}
				pool.Release(c, got)
			}
			if got := pool.hold(table.Open(address("198.51.100.1"), "CN=kube-apiserver"), 64<<10); got < 8*mebibyte {
				t.Errorf("a certificate gets %d bytes", got)
			}
		})
	}
}

// TestLargest: the largest take fits, and a small one beside it.
func TestLargest(t *testing.T) {
	t.Parallel()
	for certificate, certified := range map[string]bool{"": false, "CN=kube-apiserver": true} {
		var table Table
		c, pool := table.Open(address("192.0.2.1"), certificate), memory()
		if !pool.Try(c, pool.Largest(certified)) || !pool.Try(c, 64<<10) {
			t.Errorf("certified %v: %d bytes do not fit, or none beside them", certified, pool.Largest(certified))
		}
		if pool.Release(c, c.Held(Memory)); pool.used != 0 || pool.strangers != 0 || table.certified.members[Memory]+table.strangers.members[Memory] != 0 {
			t.Errorf("certified %v: something is left", certified)
		}
	}
}

// TestWhoHoldsLeastIsNext has many of one client wait for a decision, and then one of each other.
func TestWhoHoldsLeastIsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var table Table
		certified := table.Open(address("198.51.100.1"), "CN=kube-apiserver")
		hostile, neighbour, ordinary := table.Open(address("198.51.100.1"), ""), table.Open(address("198.51.100.2"), ""), table.Open(address("192.0.2.1"), "")
		pool := &Pool{Kind: Decisions, Size: 3, Reserved: 1}
		if pool.hold(hostile, 1) != 2 || pool.Try(ordinary, 1) || !pool.Try(certified, 1) {
			t.Fatal("the decision that is reserved for certificates is not kept for them")
		}
		order := make(chan *Client, 8)
		for _, c := range []*Client{hostile, hostile, neighbour, ordinary, certified} {
			go func() {
				if pool.Acquire(context.Background(), c, 1, time.Hour) {
					order <- c
				}
			}()
			synctest.Wait()
		}
		pool.Release(hostile, 1)
		for i, want := range []*Client{certified, ordinary, neighbour, hostile, hostile} {
			if got := <-order; got != want {
				t.Errorf("decision %d goes to %v, want %v", i, got.Address, want.Address)
			}
			pool.Release(want, 1)
		}
	})
}

// TestWaitersLeave has those who wait give up, and nothing is left of them.
func TestWaitersLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, pool := Unknown(), &Pool{Kind: Decisions, Size: 1}
		if !pool.Try(c, 1) {
			t.Fatal("a free decision is not taken")
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go pool.Acquire(ctx, c, 1, time.Hour)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if pool.Acquire(t.Context(), c, 1, time.Second) {
			t.Error("what is taken is taken again")
		}
		if pool.Release(c, 1); len(pool.waiting) != 0 || pool.used != 0 || c.Held(Decisions) != 0 {
			t.Errorf("%d wait, %d are used", len(pool.waiting), pool.used)
		}
	})
}

// TestAccountsAreBounded opens more accounts than are kept. One in use is kept, and limits with it.
func TestAccountsAreBounded(t *testing.T) {
	t.Parallel()
	var table Table
	used := table.Open(address("192.0.2.1"), "")
	for i := range 5 * maxAccounts {
		table.Close(table.Open(address(fmt.Sprintf("198.%d.%d.%d", i>>16, i>>8&255, i&255)), ""))
		if len(table.accounts) > maxAccounts+1 {
			t.Fatalf("%d accounts are kept", len(table.accounts))
		}
	}
	if table.Open(address("192.0.2.1"), "") != used || used.parent.open != 1 {
		t.Error("an account in use was forgotten")
	}
	if a, b := table.Open(address("192.0.2.1"), "CN=a"), table.Open(address("203.0.113.1"), "CN=a"); a != b || a == used || a.Lines != nil {
		t.Error("a certificate is not one client")
	}
}
