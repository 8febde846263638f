package rawcel

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// few is up to how many names comparing with each beats a map of them.
const few = 16

// nameSet finds names that occur twice. It keeps its memory for the next object.
type nameSet struct {
	seed maphash.Seed
	// slots are indexes of names by their hashes, each one higher; 0 is a free slot.
	slots []int32
}

// duplicate returns a name that occurs twice among those of the members. ambiguous
// reports whether one of them isAmbiguous: if none is, the same name is the same
// text.
func (s *nameSet) duplicate(text rawjson.Value, members []entry, ambiguous bool) (name string, found bool) {
	switch {
	case ambiguous:
		return decodedDuplicate(text, members)
	case len(members) > few:
		return s.find(text, members)
	}
	for i := range members {
		a := members[i].name
		for k := range i {
			b := members[k].name
			if a.end-a.start == b.end-b.start && text[a.start+1] == text[b.start+1] && bytes.Equal(text[a.start:a.end], text[b.start:b.end]) {
				return text[a.start:a.end].Text(), true
			}
		}
	}
	return "", false
}

// find is duplicate for many names. The hash has a seed, so that nobody can choose names that share one.
func (s *nameSet) find(text rawjson.Value, members []entry) (name string, found bool) {
	if s.slots == nil {
		s.seed = maphash.MakeSeed()
	}
	size := 1 << bits.Len(uint(2*len(members)))
	s.slots = slices.Grow(s.slots[:0], size)[:size]
	clear(s.slots)
	last := uint64(size - 1) //nolint:gosec // it is positive
	for i := range members {
		at := members[i].name
		raw := text[at.start:at.end]
		slot := maphash.Bytes(s.seed, raw) & last
		for s.slots[slot] != 0 {
			if other := members[s.slots[slot]-1].name; bytes.Equal(raw, text[other.start:other.end]) {
				return raw.Text(), true
			}
			slot = (slot + 1) & last
		}
		s.slots[slot] = int32(i + 1)
	}
	return "", false
}

// decodedDuplicate is duplicate for names that may be written in several ways.
func decodedDuplicate(text rawjson.Value, members []entry) (name string, found bool) {
	seen := make(map[string]struct{}, len(members))
	for i := range members {
		at := members[i].name
		name := text[at.start:at.end].Text()
		seen[name] = struct{}{}
		if len(seen) == i {
			return name, true
		}
	}
	return "", false
}

// isAmbiguous reports whether a name with an escape can be written in another way: any character as \uXXXX, and a slash as
// it is. All others that have an escape cannot be written without.
func isAmbiguous(name []byte) bool {
	for {
		i := bytes.IndexByte(name, '\\')
		if i < 0 {
			return false
		}
		if name[i+1] == 'u' || name[i+1] == '/' {
			return true
		}
		name = name[i+2:]
	}
}
