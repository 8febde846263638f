package review

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitingIsBoundedOnce checks that a request which waits for bytes and then
// for a slot has one patience for both.
func TestWaitingIsBoundedOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	full := &Budget{pool: pool{size: 1}}
	h := reservation{budget: full, maxWait: 20 * time.Millisecond, now: func() time.Time { now = now.Add(15 * time.Millisecond); return now }}
	if err := h.grow(t.Context(), 1); err != nil {
		t.Fatalf("an empty budget has no room: %v", err)
	}
	other := reservation{budget: full, maxWait: h.maxWait, now: h.now}
	if err := other.grow(t.Context(), 1); !errors.Is(err, errOverload) {
		t.Errorf("a full budget has room: %v", err)
	}
	if want := 5 * time.Millisecond; other.maxWait != want {
		t.Errorf("after waiting 15 of 20 milliseconds %s are left, want %s", other.maxWait, want)
	}
	if NewSlots(0).acquire(t.Context(), &other, 1) || other.maxWait > 0 {
		t.Errorf("after waiting twice %s are left", other.maxWait)
	}
	if _, impossible := errors.AsType[tooLargeError](h.grow(t.Context(), 1)); !impossible {
		t.Error("more than the whole budget is taken")
	}
	h.release()
	h.release()
	if !full.try(Caller{}, 1) || full.try(Caller{}, 1) {
		t.Error("what was held is not given back exactly once")
	}
	if full.release(Caller{}, 1); len(full.callers) != 0 {
		t.Errorf("callers that hold nothing are kept: %v", full.callers)
	}
}

var (
	attacker = Caller{Address: netip.MustParsePrefix("198.51.100.1/32")}
	ordinary = Caller{Address: netip.MustParsePrefix("192.0.2.1/32")}
	verified = Caller{Address: netip.MustParsePrefix("198.51.100.1/32"), Certified: true}
)

// TestShares has one address take all that it gets.
func TestShares(t *testing.T) {
	t.Parallel()
	const bytes = 64 << 20
	for _, test := range []struct {
		name string
		// each is what is taken at a time, and addresses how many take.
		each      int64
		addresses int
		// least is what an ordinary caller gets after that, at least, and certified what a
		// certified one gets.
		least, certified int64
	}{
		{"requests of one address", requestBytes, 1, 8 << 20, 8 << 20},
		{"requests of twenty addresses", requestBytes, 20, 512 << 10, 8 << 20},
		{"large bodies of one address", 8 << 20, 1, 8 << 20, 8 << 20},
		{"large bodies of twenty addresses", 8 << 20, 20, 512 << 10, 8 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			budget := NewBudget(bytes)
			if most := budget.largest(ordinary); !budget.try(ordinary, most) {
				t.Errorf("the largest take of %d bytes does not fit", most)
			} else {
				if !budget.try(ordinary, requestBytes) {
					t.Error("beside the largest take of an address, a small one of it does not fit")
				}
				budget.release(ordinary, most+requestBytes)
			}
			held := make([]int64, test.addresses)
			// As requests end, others take their place.
			for round := range 20 {
				for i := range held {
					one := Caller{Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 32)}
					for ; held[i] > 0; held[i] -= test.each {
						budget.release(one, test.each)
					}
					for budget.try(one, test.each) {
						held[i] += test.each
					}
					if round == 0 && i == 0 && held[i] < bytes/2 {
						t.Errorf("alone, an address gets %d bytes of %d", held[i], bytes)
					}
				}
			}
			get := func(c Caller) (sum int64) {
				for budget.try(c, requestBytes) {
					sum += requestBytes
				}
				return sum
			}
			if got := get(ordinary); got < test.least {
				t.Errorf("another address gets %d bytes, want %d", got, test.least)
			}
			if got := get(verified); got < test.certified {
				t.Errorf("a certified caller gets %d bytes, want %d", got, test.certified)
			}
		})
	}
}

// TestWhoHoldsLeastIsNext has many requests of one address wait for slots, and then one
// of each other caller.
func TestWhoHoldsLeastIsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(2)
		for range 2 {
			if !slots.try(attacker, 1) {
				t.Fatal("free slots are not taken")
			}
		}
		// The third is kept for certified callers, who take it without waiting.
		if slots.try(ordinary, 1) || !slots.try(verified, 1) {
			t.Fatal("the slot for certified callers is not kept for them")
		}
		order := make(chan Caller, 8)
		wait := func(c Caller) {
			go func() {
				h := &reservation{caller: c, maxWait: time.Hour, now: time.Now}
				if slots.acquire(context.Background(), h, 1) {
					order <- c
				}
			}()
			synctest.Wait()
		}
		for _, c := range []Caller{attacker, attacker, attacker, ordinary, verified} {
			wait(c)
		}
		slots.release(attacker, 1)
		want := []Caller{verified, ordinary, attacker, attacker, attacker}
		for i, w := range want {
			synctest.Wait()
			if got := <-order; got != w {
				t.Errorf("slot %d goes to %v, want %v", i, got, w)
			}
			// Whoever got one ends.
			slots.release(w, 1)
		}
	})
}

// TestWaitersLeave has waiting requests give up, and nothing is left of them.
func TestWaitersLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(1)
		if !slots.try(ordinary, 1) {
			t.Fatal("a free slot is not taken")
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go slots.acquire(ctx, &reservation{caller: attacker, maxWait: time.Hour, now: time.Now}, 1)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if slots.release(ordinary, 1); len(slots.callers) != 0 || slots.used != 0 {
			t.Errorf("left are %v, %d used", slots.callers, slots.used)
		}
	})
}

// TestBuffers: a buffer is at most bufferGrowth times as large as what arrived, until that
// is large, and the last one is not made beside one that is almost as large.
func TestBuffers(t *testing.T) {
	t.Parallel()
	for _, announced := range []bool{true, false} {
		for _, limit := range []int64{1, 100, minBuffer, 5_000, 60_001, 1<<20 + 1, 4 << 20, MaxAdmissionBytes + 1} {
			var full, before int64
			for full < limit {
				next := nextBuffer(full, limit, announced)
				grown := next > max(bufferGrowth*(full+1), bufferGrowth*minBuffer)
				if next <= full || next > limit || grown && (!announced || full < largeBuffer) {
					t.Fatalf("for %d bytes, announced %v, a buffer of %d follows one of %d", limit, announced, next, full)
				}
				before, full = full, next
			}
			if before > limit/bufferGrowth+1 && before > largeBuffer*bufferGrowth {
				t.Errorf("for %d bytes, announced %v, the last buffer follows one of %d", limit, announced, before)
			}
		}
		for _, limit := range []int64{10, 300 << 10} {
			if next := nextBuffer(256<<10, limit, announced); next <= 256<<10 || next > 300<<10 {
				t.Errorf("a pooled buffer of 256 KiB is followed by one of %d for %d bytes", next, limit)
			}
		}
	}
}

// TestLargestBody fits, in as many buffers as it takes.
func TestLargestBody(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int64{1 << 20, 8 << 20, 16 << 20, 64 << 20, 1 << 30} {
		budget := NewBudget(bytes)
		limit := budget.LargestBody() + 1
		h := reservation{budget: budget, used: requestOverhead}
		if !budget.enter(&h) || h.place(t.Context()) != nil {
			t.Fatal("an empty budget has no room")
		}
		for full := int64(0); full < limit; {
			next := nextBuffer(full, limit, true)
			if !h.tryGrow(next) {
				t.Errorf("of %d bytes, a buffer of %d beside one of %d does not fit, for a body of %d", bytes, next, full, limit-1)
				break
			}
			h.shrink(full)
			full = next
		}
		if limit < bytes*2/5 {
			t.Errorf("of %d bytes, a body has at most %d", bytes, limit-1)
		}
		if h.release(); budget.used != 0 {
			t.Errorf("%d bytes are not given back", budget.used)
		}
	}
}
