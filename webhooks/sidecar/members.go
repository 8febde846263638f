package sidecar

import (
	"bytes"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// maxMembers bounds the memory that one object with its own can ask for. The
// API server allows a pod 256 KiB of annotations.
const maxMembers = 20_000

// outline is rawjson.Outline for a checked value and any number of members up to
// maxMembers.
func outline(dst []rawjson.Member, v rawjson.Value, level, depth int) ([]rawjson.Member, error) {
	var err error
	for name, value := range v.Members() {
		if len(dst) == maxMembers {
			return dst, fmt.Errorf("more than %d members", maxMembers)
		}
		dst = append(dst, rawjson.Member{Depth: level, Name: name, Value: value})
		if level < depth && value.Kind() == rawjson.Object {
			if dst, err = outline(dst, value, level+1, depth); err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
}

// fields are the members of one object, none of which may occur twice.
func fields(room []rawjson.Member, v rawjson.Value) ([]rawjson.Member, error) {
	members, err := outline(room, v, 1, 1)
	if err != nil {
		return members, err
	}
	var seen siblings
	for i := range members {
		if err := seen.check(members, i, i); err != nil {
			return members, err
		}
	}
	return members, nil
}

// siblings finds members that occur twice in one object. Go, JavaScript and the
// API server each have their own idea of which one holds, so an object that is
// looked into must have none.
type siblings struct {
	// seen has a bit for every hash of a name so far: only names that share
	// their bit with an earlier one are compared.
	seen uint64
	// more are the names in an object with too many of them for comparing.
	more map[string]bool
}

// few is how many names are compared with each other rather than put into a
// map.
const few = 64

// check checks the member at i, the n-th of its object. Names written with
// escapes are put into one form first, so that callers can compare the text.
func (s *siblings) check(members []rawjson.Member, i, n int) error {
	m := &members[i]
	if bytes.IndexByte(m.Name, '\\') >= 0 {
		m.Name = rawjson.AppendString(nil, m.Name.Text())
	}
	if n == 0 {
		*s = siblings{}
	}
	if n >= few {
		return s.checkMany(members, i, n)
	}
	bit := uint64(1) << ((len(m.Name)*5 + int(m.Name[1])*3 + int(m.Name[len(m.Name)-2])) & 63)
	known := s.seen&bit != 0
	s.seen |= bit
	if !known {
		return nil
	}
	for k := i - 1; k >= 0 && members[k].Depth >= m.Depth; k-- {
		if members[k].Depth == m.Depth && bytes.Equal(members[k].Name, m.Name) {
			return &rawjson.DuplicateKeyError{Key: m.Name.Text()}
		}
	}
	return nil
}

func (s *siblings) checkMany(members []rawjson.Member, i, n int) error {
	m := &members[i]
	if s.more == nil {
		s.more = make(map[string]bool, 2*n)
		for k := i - 1; k >= 0 && members[k].Depth >= m.Depth; k-- {
			if members[k].Depth == m.Depth {
				s.more[string(members[k].Name)] = true
			}
		}
	}
	if s.more[string(m.Name)] {
		return &rawjson.DuplicateKeyError{Key: m.Name.Text()}
	}
	s.more[string(m.Name)] = true
	return nil
}
