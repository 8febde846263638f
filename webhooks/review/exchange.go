package review

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// scratch is one request under way, in memory that it gives back: a fresh one
// for each would be most of what a small review allocates.
type scratch struct {
	out          Outcome
	held         holding
	body, answer []byte
	room         [maxMembers]rawjson.Member

	// One of these is what has been decoded.
	admission  admission.Request
	token      authentication.Request
	apiVersion string
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
