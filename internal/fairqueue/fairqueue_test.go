package fairqueue_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/fairqueue"
)

// TestExpendable takes all entries of a queue, one after the other.
func TestExpendable(t *testing.T) {
	t.Parallel()
	const us, them, neighbours = "192.0.2.1/32", "198.51.100.1/32", "198.51.100.2/32"
	type entry struct {
		address string
		weight  int64
	}
	for _, test := range []struct {
		name    string
		entries []entry
		// modest are those that have less than the average, and order is that in which entries are taken.
		modest, order []int
	}{
		{"the oldest first", []entry{{us, 1}, {us, 1}, {us, 1}}, nil, []int{0, 1, 2}},
		{"equal networks", []entry{{us, 1}, {them, 1}, {us, 1}, {them, 1}}, nil, []int{0, 1, 2, 3}},
		{"a network with little", []entry{{us, 1}, {them, 1}, {them, 1}, {them, 1}, {them, 1}}, []int{0}, []int{1, 2, 3, 4, 0}},
		{"half of the average is not little", []entry{{us, 1}, {them, 1}, {them, 1}, {them, 1}}, []int{0}, []int{0, 1, 2, 3}},
		{"a heavy entry", []entry{{us, 1}, {them, 8}}, []int{0}, []int{1, 0}},
		{"an address with little in its network", []entry{{neighbours, 1}, {them, 1}, {them, 1}, {them, 1}, {them, 1}}, []int{0}, []int{1, 2, 3, 4, 0}},
		{
			"addresses of one network and another network",
			[]entry{{us, 1}, {us, 1}, {them, 2}, {neighbours, 2}, {them, 2}, {neighbours, 2}},
			[]int{0, 1},
			[]int{2, 3, 4, 5, 0, 1},
		},
		{"networks of IPv6", []entry{{"2001:db8::/64", 1}, {"2001:db8:0:1::/64", 4}}, []int{0}, []int{1, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var queue fairqueue.Queue[int]
			entries := make([]fairqueue.Entry[int], len(test.entries))
			var sum int64
			for i, e := range test.entries {
				entries[i].Value, entries[i].Address = i, netip.MustParsePrefix(e.address)
				queue.Add(&entries[i], e.weight)
				sum += e.weight
			}
			if queue.Weight() != sum {
				t.Errorf("the weight is %d, want %d", queue.Weight(), sum)
			}
			var modest, order []int
			for i := range entries {
				if queue.IsModest(&entries[i]) {
					modest = append(modest, i)
				}
			}
			for queue.Weight() > 0 {
				i := queue.Expendable()
				order = append(order, i)
				queue.Remove(&entries[i])
				queue.Remove(&entries[i]) // does nothing
			}
			if !slices.Equal(modest, test.modest) || !slices.Equal(order, test.order) {
				t.Errorf("less than the average have %v, want %v; the order is %v, want %v", modest, test.modest, order, test.order)
			}
		})
	}
}

// TestWeights changes the weight of an entry, which leaves the queue without any.
func TestWeights(t *testing.T) {
	t.Parallel()
	var queue fairqueue.Queue[string]
	e := fairqueue.Entry[string]{Value: "a", Address: netip.MustParsePrefix("192.0.2.1/32")}
	for range 2 {
		for _, step := range []struct{ change, want int64 }{{0, 0}, {2, 2}, {-1, 1}, {3, 4}, {-4, 0}} {
			queue.Add(&e, step.change)
			if e.Weight() != step.want || queue.Weight() != step.want {
				t.Errorf("after %d the entry weighs %d and the queue %d, want %d", step.change, e.Weight(), queue.Weight(), step.want)
			}
		}
	}
}
