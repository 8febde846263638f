package login

import "container/list"

// table is a map of bounded size whose entries are in the order in which they
// were used. It is not safe for concurrent use.
type table[K comparable, V any] struct {
	// most is how many entries there are at most, but for those that are in use.
	most int
	// used reports whether an entry must not go now. Few entries are in use.
	used func(*V) bool
	// over reports whether an entry is as good as none; the oldest go then.
	over func(*V) bool
	// gone, if set, is told of each entry that goes.
	gone func(K, *V)

	entries map[K]*list.Element
	// order begins with the entry that was used last.
	order list.List
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// get returns the value of a key, or nil, and uses nothing.
func (t *table[K, V]) get(key K) *V {
	element := t.entries[key]
	if element == nil {
		return nil
	}
	return &element.Value.(*entry[K, V]).value
}

// use returns the value of a key, a new one if there is none, and makes it the
// one that was used last. What is over goes, and the oldest if there is no room.
func (t *table[K, V]) use(key K) *V {
	if element := t.entries[key]; element != nil {
		t.order.MoveToFront(element)
		return &element.Value.(*entry[K, V]).value
	}
	for element := t.order.Back(); element != nil; {
		e := element.Value.(*entry[K, V])
		previous := element.Prev()
		switch {
		case t.used(&e.value):
		case t.over(&e.value), len(t.entries) >= t.most:
			t.remove(e.key)
		default:
			previous = nil
		}
		element = previous
	}
	if t.entries == nil {
		t.entries = make(map[K]*list.Element)
	}
	e := &entry[K, V]{key: key}
	t.entries[key] = t.order.PushFront(e)
	return &e.value
}

// remove removes the entry of a key, if there is one.
func (t *table[K, V]) remove(key K) {
	element := t.entries[key]
	if element == nil {
		return
	}
	t.order.Remove(element)
	delete(t.entries, key)
	if t.gone != nil {
		t.gone(key, &element.Value.(*entry[K, V]).value)
	}
}

// tidy removes the entry of a key if it is over and not in use.
func (t *table[K, V]) tidy(key K) {
	if v := t.get(key); v != nil && !t.used(v) && t.over(v) {
		t.remove(key)
	}
}
