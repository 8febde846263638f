package groups

import (
	"container/list"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// cache holds answers up to a number of bytes. What was not used for the longest time makes
// room, so answers of sources that are gone go first. It is safe for concurrent use.
type cache struct {
	most int

	mu      sync.Mutex
	bytes   int
	entries map[cacheKey]*list.Element
	// order has the entries, the one that was used last in front.
	order list.List
}

// cacheKey identifies a user to a source. A token of the same subject may name another user
// to the source, after a renaming.
type cacheKey struct {
	source        *source
	subject, user string
}

type cacheEntry struct {
	key    cacheKey
	answer authn.GroupAnswer
	bytes  int
}

func newCache(most int) *cache { return &cache{most: most, entries: map[cacheKey]*list.Element{}} }

// get returns an answer of any age.
func (c *cache) get(key cacheKey) (authn.GroupAnswer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return authn.GroupAnswer{}, false
	}
	c.order.MoveToFront(element)
	return element.Value.(*cacheEntry).answer, true //nolint:forcetypeassert // all elements are
}

// put stores an answer, whose strings it copies: they may be parts of larger ones.
func (c *cache) put(key cacheKey, answer authn.GroupAnswer) authn.GroupAnswer {
	const overhead, each = 400, 16
	key.subject, key.user = strings.Clone(key.subject), strings.Clone(key.user)
	e := &cacheEntry{key: key, answer: answer, bytes: overhead + len(key.subject) + len(key.user)}
	e.answer.Groups = make([]string, len(answer.Groups))
	for i, name := range answer.Groups {
		e.answer.Groups[i] = strings.Clone(name)
		e.bytes += each + len(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.entries[key]; ok {
		c.remove(before)
	}
	c.entries[key] = c.order.PushFront(e)
	c.bytes += e.bytes
	for c.bytes > c.most && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
	return e.answer
}

// remove removes an entry. The caller holds the lock.
func (c *cache) remove(element *list.Element) {
	e := c.order.Remove(element).(*cacheEntry) //nolint:forcetypeassert // all elements are
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}

// size returns the number of entries and their bytes.
func (c *cache) size() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len(), c.bytes
}
