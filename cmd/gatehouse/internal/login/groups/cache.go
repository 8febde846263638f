package groups

import (
	"strings"
	"sync"

	"k8s.io/utils/lru"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// cache holds answers up to a number of bytes. What was not used for the longest time makes
// room, so answers of sources that are gone go first. It is safe for concurrent use.
type cache struct {
	most    int
	entries *lru.Cache

	// mu guards bytes. It is locked to add an entry, which may remove others.
	mu    sync.Mutex
	bytes int
}

// cacheKey identifies a user to a source. A token of the same subject may name another user
// to the source, after a renaming.
type cacheKey struct {
	source        *source
	subject, user string
}

type cacheEntry struct {
	answer authn.GroupAnswer
	bytes  int
}

func newCache(most int) *cache {
	c := &cache{most: most}
	c.entries = lru.NewWithEvictionFunc(0, func(_ lru.Key, e any) { c.bytes -= e.(*cacheEntry).bytes }) //nolint:forcetypeassert // all entries are
	return c
}

// get returns an answer of any age.
func (c *cache) get(key cacheKey) (authn.GroupAnswer, bool) {
	e, ok := c.entries.Get(key)
	if !ok {
		return authn.GroupAnswer{}, false
	}
	return e.(*cacheEntry).answer, true //nolint:forcetypeassert // all entries are
}

// put stores an answer, whose strings it copies: they may be parts of larger ones.
func (c *cache) put(key cacheKey, answer authn.GroupAnswer) authn.GroupAnswer {
	const overhead, each = 400, 16
	key.subject, key.user = strings.Clone(key.subject), strings.Clone(key.user)
	e := &cacheEntry{answer: answer, bytes: overhead + len(key.subject) + len(key.user)}
	e.answer.Groups = make([]string, len(answer.Groups))
	for i, name := range answer.Groups {
		e.answer.Groups[i] = strings.Clone(name)
		e.bytes += each + len(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key)
	c.entries.Add(key, e)
	for c.bytes += e.bytes; c.bytes > c.most && c.entries.Len() > 1; {
		c.entries.RemoveOldest()
	}
	return e.answer
}

// size returns the number of entries and their bytes.
func (c *cache) size() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Len(), c.bytes
}
