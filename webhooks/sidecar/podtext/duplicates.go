package podtext

import (
	"bytes"
	"fmt"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

const (
	// maxMembers bounds the memory that one object can ask for. The API server
	// allows a pod 256 KiB of annotations.
	maxMembers = 20_000
	// fewMembers is how many names are compared with each other rather than put
	// into a map.
	fewMembers = 32
)

// memberNames finds members that occur twice in one object. Decoders differ in which of
// the two they take, so an object that is read must have none.
type memberNames struct {
	// seen has a bit for every hash of a name so far: only names that share
	// their bit with an earlier one are compared.
	seen  uint64
	count int
	// first are the first names, and more all of an object that has more.
	first [fewMembers]rawjson.Value
	more  map[string]bool
}

func (s *memberNames) clear() {
	clear(s.first[:min(s.count, fewMembers)])
	s.seen, s.count, s.more = 0, 0, nil
}

// add takes the name of the next member of the object. Names must have one form,
// as rawjson.Cursor.PlainName gives them.
func (s *memberNames) add(name rawjson.Value) error {
	n := s.count
	if n >= fewMembers {
		return s.addToSet(name)
	}
	s.first[n] = name
	s.count++
	bit := uint64(1) << ((len(name)*5 + int(name[1])*3 + int(name[len(name)-2])) & 63)
	if s.seen&bit != 0 {
		for _, before := range s.first[:n] {
			if bytes.Equal(before, name) {
				return &rawjson.DuplicateKeyError{Key: name.Text()}
			}
		}
	}
	s.seen |= bit
	return nil
}

func (s *memberNames) addToSet(name rawjson.Value) error {
	if s.count == maxMembers {
		return fmt.Errorf("more than %d members", maxMembers)
	}
	if s.more == nil {
		s.more = make(map[string]bool, 2*fewMembers)
		for _, before := range s.first {
			s.more[string(before)] = true
		}
	}
	if s.more[string(name)] {
		return &rawjson.DuplicateKeyError{Key: name.Text()}
	}
	s.more[string(name)] = true
	s.count++
	return nil
}
