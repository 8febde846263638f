package podsecurity

import (
	"fmt"
	"strconv"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// reader reads a text value by value. After an error it goes on, and keeps the
// first.
type reader struct {
	text rawjson.Value
	c    rawjson.Cursor
	err  error
}

// fail notes an error of the value that starts at a place.
func (r *reader) fail(at int, reason error) {
	if r.err == nil {
		r.err = fmt.Errorf("not a pod: %s%w", pathTo(r.text, at), reason)
	}
}

// enters goes into the array or object that comes next. It passes by null, as
// if it were empty, and by any other value, which is an error.
func (r *reader) enters(want rawjson.Kind) bool {
	if r.c.Kind() == want {
		r.c.Enter()
		return true
	}
	r.value(want)
	return false
}

// value returns the value that comes next, if it is of a kind. null is nothing, and
// any other value is nothing and an error.
func (r *reader) value(want rawjson.Kind) rawjson.Value {
	at := r.c.At()
	value := r.c.Skip()
	switch kind := value.Kind(); kind {
	case want:
		return value
	case rawjson.Null:
		return nil
	default:
		r.fail(at, fmt.Errorf("must be %s, not %s", want, kind))
		return nil
	}
}

func (r *reader) string() string { return r.value(rawjson.String).Text() }

// integer returns 0 for null. A number that is not written as an integer, or does not fit, is
// an error.
func (r *reader) integer(bits int) int64 {
	at := r.c.At()
	value := r.value(rawjson.Number)
	if len(value) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(value), 10, bits)
	if err != nil {
		r.fail(at, fmt.Errorf("%.40q is not a %d-bit integer", value, bits))
	}
	return n
}
