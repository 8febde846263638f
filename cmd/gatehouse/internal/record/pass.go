package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/maphash"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// The bounds of a partCache.
const (
	// minPart and maxPart bound the text of a part, in bytes. Shorter ones are not worth a
	// reference.
	minPart, maxPart = 48, 64 << 10
	// maxCacheBytes bounds the texts of all parts. A cache that is full is emptied.
	maxCacheBytes = 2 << 20
	// maxSlots bounds the places that have parts of their own, and slotParts the parts of each.
	maxSlots, slotParts = 256, 4
	// maxPatches bounds the patches that are kept.
	maxPatches = 8
)

// part is a text of a review that was seen before, such as the containers of a pod. The reviews of
// a rollout consist of such texts: each is redacted once, and written to a segment once.
type part struct {
	raw, redacted []byte
	// at is the place that the text is at: at others, other values are redacted.
	at    *pathNode
	found values
	// parts are those whose values were redacted, if this is a patch.
	parts []*part
	// id is the number of the object that holds the redacted text in a segment.
	id      int
	segment uint64
}

// partCache finds parts. Its memory is bounded, whatever reviews hold.
type partCache struct {
	seed maphash.Seed
	// slots are the parts that were met last at a place, named by the members of the object.
	slots map[string]map[string]*slot
	count int
	// byHash are all parts, and seen are the hashes of texts that were met: a text becomes a part
	// when it is met again.
	byHash map[uint64]*part
	seen   [4096]uint64
	bytes  int
	// patches are those that were met last.
	patches []*part
}

type slot struct{ recent [slotParts]*part }

func newPartCache() *partCache {
	c := &partCache{seed: maphash.MakeSeed()}
	c.empty()
	return c
}

func (c *partCache) empty() {
	c.slots, c.count, c.byHash, c.bytes, c.patches = map[string]map[string]*slot{}, 0, map[uint64]*part{}, 0, nil
}

// slot returns the place of a member of a member of the object, nil if there are too many.
func (c *partCache) slot(outer, inner []byte) *slot {
	of := c.slots[string(outer)]
	if s := of[string(inner)]; s != nil {
		return s
	}
	if c.count++; c.count > maxSlots || len(outer)+len(inner) > minPart {
		return nil
	}
	if of == nil {
		of = map[string]*slot{}
		c.slots[string(outer)] = of
	}
	s := new(slot)
	of[string(inner)] = s
	return s
}

// next returns the part that comes next at the cursor, which passes by it. It is nil if none of the
// parts that were met last does.
func (s *slot) next(c *rawjson.Cursor, at *pathNode) *part {
	if s == nil {
		return nil
	}
	for i, p := range s.recent {
		if p == nil {
			return nil
		}
		if p.at == at && c.SkipIf(p.raw) {
			s.toFront(p, i)
			return p
		}
	}
	return nil
}

func (s *slot) toFront(p *part, from int) {
	copy(s.recent[1:from+1], s.recent[:from])
	s.recent[0] = p
}

// find returns the part of a text at a place. It is nil for one that is no part: redact makes it one if
// the text was met before.
func (c *partCache) find(s *slot, raw []byte, at *pathNode, redact func(dst []byte, found *values) []byte) *part {
	if len(raw) < minPart || len(raw) > maxPart {
		return nil
	}
	hash := maphash.Bytes(c.seed, raw) ^ maphash.Comparable(c.seed, at)
	p := c.byHash[hash]
	if p != nil && (p.at != at || !bytes.Equal(p.raw, raw)) {
		return nil
	}
	if p == nil {
		if at := &c.seen[hash%uint64(len(c.seen))]; *at != hash {
			*at = hash
			return nil
		}
		p = &part{raw: bytes.Clone(raw), at: at}
		p.redacted = redact(nil, &p.found)
		c.reserve(len(p.raw) + len(p.redacted))
		c.byHash[hash] = p
	}
	if s != nil {
		s.toFront(p, slotParts-1)
	}
	return p
}

func (c *partCache) reserve(n int) {
	if c.bytes+n > maxCacheBytes {
		c.empty()
	}
	c.bytes += n
}

// patch returns the part of a patch in the answer to a review with these values, made by redact. It is
// nil if not all values are those of parts.
func (c *partCache) patch(raw []byte, found *values, redact func(dst []byte) []byte) *part {
	if found.own() || len(raw) < minPart || len(raw) > maxPart {
		return nil
	}
	for i, p := range c.patches {
		if bytes.Equal(p.raw, raw) && slices.Equal(p.parts, found.parts) {
			copy(c.patches[1:i+1], c.patches[:i])
			c.patches[0] = p
			return p
		}
	}
	hash := maphash.Bytes(c.seed, raw)
	if at := &c.seen[hash%uint64(len(c.seen))]; *at != hash {
		*at = hash
		return nil
	}
	p := &part{raw: bytes.Clone(raw), parts: slices.Clone(found.parts), redacted: redact(nil)}
	c.patches = append([]*part{p}, c.patches[:min(len(c.patches), maxPatches-1)]...)
	return p
}

// pass redacts one review in one pass over its text.
type pass struct {
	*Redactor

	text   rawjson.Value
	cursor rawjson.Cursor
	// dst has the redacted text up to the place copied of text.
	dst    []byte
	copied int
	found  *values
	// refer returns the number of the object that holds a part, 0 if it must be written in place. It may be nil. cuts are the
	// places of dst where a part was left out.
	refer func(*part) int
	cuts  []cut
	// secret is true if the request is about a Secret, and credential if its objects hold tokens.
	secret, credential bool
}

// cut is a place where a part was left out of a line.
type cut struct{ at, id int }

// placeholder stands where a part was left out.
const placeholder = '0'

// appendRequest appends a redacted AdmissionReview. Parts that refer returns an object for are left
// out; the cuts are behind those given. It returns errCredential for a request that must not be recorded.
func (r *Redactor) appendRequest(dst, body []byte, found *values, refer func(*part) int, cuts []cut) ([]byte, []cut, error) {
	// A line of a segment has one end. API servers end bodies with one.
	if body = bytes.TrimSpace(body); bytes.IndexByte(body, '\n') >= 0 {
		var compact bytes.Buffer
		if json.Compact(&compact, body) == nil {
			body = compact.Bytes()
		}
	}
	p := pass{Redactor: r, text: body, cursor: rawjson.Value(body).Cursor(), dst: dst, found: found, refer: refer, cuts: cuts}
	c := &p.cursor
	if c.Kind() != rawjson.Object {
		return append(dst, "null"...), cuts, nil
	}
	r.limit(body)
	for c.Enter(); c.Next(); {
		if c.Name().Is("request") && c.Kind() == rawjson.Object {
			p.request()
		} else {
			c.Skip()
		}
	}
	if p.credential {
		return dst, cuts, errCredential
	}
	return append(p.dst, body[p.copied:]...), p.cuts, nil
}

// IsCredential reports whether requests for a resource hold tokens in their objects. They are never
// recorded.
func IsCredential(group, resource, subresource string) bool {
	return group == "authentication.k8s.io" || resource == "serviceaccounts" && subresource == "token"
}

// errCredential is the error for a request that holds a token.
var errCredential = errors.New("the request holds a token")

func (p *pass) request() {
	c := &p.cursor
	var resource, subresource rawjson.Value
	for c.Enter(); c.Next(); {
		switch name := c.Name(); {
		case (name.Is("object") || name.Is("oldObject")) && c.Kind() == rawjson.Object:
			p.members()
		case name.Is("userInfo"):
			p.part(nil, name, p.bound(p.next(), p.user))
		case name.Is("kind"):
			kind := c.Skip()
			p.secret = p.secret || kind.Get("kind").Is("Secret")
			p.credential = p.credential || IsCredential(kind.Get("group").Text(), "", "")
		case name.Is("resource"):
			resource = c.Skip()
		case name.Is("subResource"):
			subresource = c.Skip()
		default:
			c.Skip()
		}
	}
	p.credential = p.credential || IsCredential(resource.Get("group").Text(), resource.Get("resource").Text(), subresource.Text())
}

// next returns the value that comes next if it may be too large, without passing by it.
func (p *pass) next() rawjson.Value {
	if !p.bounded {
		return nil
	}
	ahead := p.cursor
	return ahead.Skip()
}

// members redacts an object: each member of its members is a part, and so is each member that has none.
func (p *pass) members() {
	c := &p.cursor
	root := p.root(p.text[c.At():])
	if p.secret {
		root = p.Redactor.secret
	}
	for c.Enter(); c.Next(); {
		outer := c.Name()
		at := p.bound(p.next(), root.find(outer))
		if c.Kind() != rawjson.Object || at == asOne {
			p.part(nil, outer, at)
			continue
		}
		for c.Enter(); c.Next(); {
			inner := c.Name()
			p.part(outer, inner, at.below(inner, p.Redactor))
		}
	}
}

// part redacts the value that comes next, which is at a place: the text is referred to if it was met
// before.
func (p *pass) part(outer, inner rawjson.Value, at *pathNode) {
	c := &p.cursor
	start := c.At()
	kind := c.Kind()
	var place *slot
	var known *part
	if kind == rawjson.Object || kind == rawjson.Array {
		place = p.cache.slot(outer, inner)
		known = place.next(c, at)
	}
	if known == nil {
		raw := c.Skip()
		if place != nil {
			known = p.cache.find(place, raw, at, func(dst []byte, found *values) []byte { return p.appendValue(dst, raw, at, found) })
		}
		if known == nil {
			if at != nil {
				p.dst = append(p.dst, p.text[p.copied:start]...)
				p.copied = c.At()
				p.dst = p.appendValue(p.dst, raw, at, p.found)
			}
			return
		}
	}
	p.found.addPart(known)
	id := 0
	if p.refer != nil {
		id = p.refer(known)
	}
	if id == 0 && at == nil {
		return // it is as it came
	}
	p.dst = append(p.dst, p.text[p.copied:start]...)
	p.copied = c.At()
	if id == 0 {
		p.dst = append(p.dst, known.redacted...)
		return
	}
	p.cuts = append(p.cuts, cut{len(p.dst), id})
	p.dst = append(p.dst, placeholder)
}
