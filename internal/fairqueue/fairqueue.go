// Package fairqueue orders what callers of many addresses hold by what is taken from them first.
package fairqueue

import "net/netip"

// networkBits is the length of the networks of IPv4 addresses.
const networkBits = 24

// Queue has entries in the order in which they were added. The zero value is empty. It is not safe for concurrent use.
type Queue[T any] struct {
	weight              int64
	networks, addresses map[netip.Prefix]*group
	oldest, newest      *Entry[T]
	// unused are groups to be used again, so that an entry needs no memory.
	unused []*group
}

// Entry is one that can be in one queue at a time, with a weight.
type Entry[T any] struct {
	// Value is what the entry stands for, and Address whose it is: an address of IPv4, or a /64 of IPv6. Both are fixed while the
	// entry is in a queue.
	Value   T
	Address netip.Prefix

	weight           int64
	network, address *group
	older, newer     *Entry[T]
}

// group is the weight of an address, or of a network, and the number of its addresses that have any.
type group struct {
	weight, addresses int64
}

// networkOf returns the network that an address belongs to: a /24 of IPv4, or the /64 that it is.
func networkOf(address netip.Prefix) netip.Prefix {
	if !address.Addr().Is4() {
		return address
	}
	network, _ := address.Addr().Prefix(networkBits) // an address of IPv4 has that many bits
	return network
}

// Weight returns the weight of the entry, 0 if it is in no queue.
func (e *Entry[T]) Weight() int64 { return e.weight }

// Weight returns the weight of all entries.
func (q *Queue[T]) Weight() int64 { return q.weight }

// Add adds to the weight of an entry, which becomes the newest if it is in no queue, and leaves the queue if its weight becomes 0.
func (q *Queue[T]) Add(e *Entry[T], weight int64) {
	if e.weight == 0 && weight != 0 {
		q.join(e)
		q.push(e)
	}
	if e.weight+weight == 0 {
		q.Remove(e)
		return
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
	if e.address.weight == 0 {
		delete(q.addresses, e.Address)
		e.network.addresses--
		q.unused = append(q.unused, e.address)
	}
	if e.network.weight == 0 {
		delete(q.networks, networkOf(e.Address))
		q.unused = append(q.unused, e.network)
	}
}

// IsModest reports whether the network of an entry has less than the average of the networks in the queue, or its address less than
// the average of the addresses in its network.
func (q *Queue[T]) IsModest(e *Entry[T]) bool { return q.hasLess(e, 1) }

// Expendable returns the oldest entry, but for those of networks that have less than half of the average, and of addresses that have
// less than half of the average in their network. These become the newest, so that it need not look at them each time: the others
// have at least a quarter of the weight. The queue must not be empty.
func (q *Queue[T]) Expendable() T {
	for q.hasLess(q.oldest, 2) {
		e := q.oldest
		q.unlink(e)
		q.push(e)
	}
	return q.oldest.Value
}

// hasLess is IsModest for a part of the averages.
func (q *Queue[T]) hasLess(e *Entry[T], part int64) bool {
	return part*e.network.weight*int64(len(q.networks)) < q.weight || part*e.address.weight*e.network.addresses < e.network.weight
}

func (q *Queue[T]) change(e *Entry[T], weight int64) {
	e.weight += weight
	e.address.weight += weight
	e.network.weight += weight
	q.weight += weight
}

// join finds the groups of an entry.
func (q *Queue[T]) join(e *Entry[T]) {
	if q.networks == nil {
		q.networks, q.addresses = make(map[netip.Prefix]*group), make(map[netip.Prefix]*group)
	}
	network := networkOf(e.Address)
	e.network, e.address = q.networks[network], q.addresses[e.Address]
	if e.network == nil {
		e.network = q.newGroup()
		q.networks[network] = e.network
	}
	if e.address == nil {
		e.address = q.newGroup()
		q.addresses[e.Address] = e.address
		e.network.addresses++
	}
}

func (q *Queue[T]) newGroup() *group {
	last := len(q.unused) - 1
	if last < 0 {
		return new(group)
	}
	g := q.unused[last]
	q.unused = q.unused[:last]
	return g
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
