package review

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// scratch is the memory that one request needs and gives back: a fresh one for
// each would be most of what a small review allocates.
type scratch struct {
	out          Outcome
	body, answer []byte
	// reserved is how much of the budget for bodies the request holds.
	reserved int64
	room     [maxMembers]rawjson.Member
}

//nolint:gochecknoglobals // a pool is shared by its nature
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// free gives the scratch back. It keeps nothing of the request but the memory,
// and not that of a large one.
func (s *scratch) free() {
	body, answer := s.body[:0], s.answer[:0]
	if cap(body) > maxPooled {
		body = nil
	}
	if cap(answer) > maxPooled {
		answer = nil
	}
	*s = scratch{body: body, answer: answer}
	scratches.Put(s)
}
