package json

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"
)

// few is up to how many names comparing with each beats a table of them.
const few = 16

// nameSet finds names that occur twice in an object. It keeps its memory for the next object.
type nameSet struct {
	names []Span
	seed  maphash.Seed
	// slots are indexes of names by their hashes, each one higher; 0 is a free slot.
	slots []int32
}

// duplicate returns a name, as it is written, that occurs twice among those of an object's members, of which number is the
// first and size how many there are. ambiguous reports whether one of them isAmbiguous: if none is, the
// same name is the same text.
func (s *nameSet) duplicate(x *Index, number, size int, ambiguous bool) (name Value, found bool) {
	text := x.Text
	s.names = slices.Grow(s.names[:0], size)
	for range size {
		s.names = append(s.names, x.Nodes[number].Name)
		number = int(x.Nodes[number].Next)
	}
	if ambiguous {
		return s.findDecoded(text)
	}
	return s.find(text)
}

// find is duplicate for names that are written in one way. The seed of the hash is random: an attacker cannot choose names with the same hash.
func (s *nameSet) find(text Value) (name Value, found bool) {
	if s.slots == nil {
		s.seed = maphash.MakeSeed()
	}
	size := 1 << bits.Len(uint(2*len(s.names)))
	s.slots = slices.Grow(s.slots[:0], size)[:size]
	clear(s.slots)
	last := uint64(size - 1) //nolint:gosec // it is positive
	for i, at := range s.names {
		raw := text[at.Start:at.End]
		slot := maphash.Bytes(s.seed, raw) & last
		for s.slots[slot] != 0 {
			if other := s.names[s.slots[slot]-1]; bytes.Equal(raw, text[other.Start:other.End]) {
				return raw, true
			}
			slot = (slot + 1) & last
		}
		s.slots[slot] = int32(i + 1)
	}
	return nil, false
}

// findDecoded is duplicate for names that may be written in several ways.
func (s *nameSet) findDecoded(text Value) (name Value, found bool) {
	seen := make(map[string]struct{}, len(s.names))
	for i, at := range s.names {
		raw := text[at.Start:at.End]
		seen[raw.Text()] = struct{}{}
		if len(seen) == i {
			return raw, true
		}
	}
	return nil, false
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
