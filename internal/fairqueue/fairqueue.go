// Package fairqueue orders what callers of many networks hold by what is taken from them first.
package fairqueue

import "net/netip"

// networkBits is the length of the networks of IPv4 addresses.
const networkBits = 24

// NetworkOf returns the network that an address, or a /64 of IPv6, belongs to: a /24 of IPv4, or the /64.
func NetworkOf(address netip.Prefix) netip.Prefix {
	if !address.Addr().Is4() {
		return address
	}
	network, _ := address.Addr().Prefix(networkBits) // an address of IPv4 has that many bits
	return network
}

// Queue has entries in the order in which they were added. The zero value is empty. It is not safe for concurrent use.
type Queue[T any] struct {
	weight         int64
	networks       map[netip.Prefix]int64
	oldest, newest *Entry[T]
}

// Entry is one that can be in one queue at a time, with a weight.
type Entry[T any] struct {
	// Value is what the entry stands for, and Network whose it is. Both are fixed while the entry is in a queue.
	Value   T
	Network netip.Prefix

	weight       int64
	older, newer *Entry[T]
}

// Weight returns the weight of the entry, 0 if it is in no queue.
func (e *Entry[T]) Weight() int64 { return e.weight }

// Weight returns the weight of all entries.
func (q *Queue[T]) Weight() int64 { return q.weight }

// Add adds to the weight of an entry. It makes the entry the newest if it is in no queue.
func (q *Queue[T]) Add(e *Entry[T], weight int64) {
	if e.weight == 0 {
		q.push(e)
	}
	q.change(e, weight)
}

// Remove removes an entry, if it is in the queue.
func (q *Queue[T]) Remove(e *Entry[T]) {
	if e.weight == 0 {
		return
	}
	q.unlink(e)
	q.change(e, -e.weight)
}

// HasLess reports whether a network has less than the average of the networks in the queue.
func (q *Queue[T]) HasLess(network netip.Prefix) bool {
	return q.networks[network]*int64(len(q.networks)) < q.weight
}

// Expendable returns the oldest entry, but for those of networks that have less than half of the average. These become the
// newest, so that it need not look at them each time: the others have at least half of the weight. The queue must not be empty.
func (q *Queue[T]) Expendable() T {
	for 2*q.networks[q.oldest.Network]*int64(len(q.networks)) < q.weight {
		e := q.oldest
		q.unlink(e)
		q.push(e)
	}
	return q.oldest.Value
}

func (q *Queue[T]) change(e *Entry[T], weight int64) {
	if q.networks == nil {
		q.networks = make(map[netip.Prefix]int64)
	}
	e.weight += weight
	q.weight += weight
	if q.networks[e.Network] += weight; q.networks[e.Network] == 0 {
		delete(q.networks, e.Network)
	}
}

func (q *Queue[T]) push(e *Entry[T]) {
	e.older = q.newest
	if q.newest == nil {
		q.oldest = e
	} else {
		q.newest.newer = e
	}
	q.newest = e
}

func (q *Queue[T]) unlink(e *Entry[T]) {
	if e.older == nil {
		q.oldest = e.newer
	} else {
		e.older.newer = e.newer
	}
	if e.newer == nil {
		q.newest = e.older
	} else {
		e.newer.older = e.older
	}
	e.older, e.newer = nil, nil
}
