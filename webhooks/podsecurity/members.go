package podsecurity

import (
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// members iterates over the members of an object. A name that occurs twice is an error,
// whether the member is read or not.
type members struct {
	r *reader
	// at is where the object starts.
	at int
	// none is true if there is no object.
	none bool
}

// object goes into the object that comes next. null is one without members.
func (r *reader) object() members {
	at := r.c.At()
	return members{r: r, at: at, none: !r.enters(rawjson.Object)}
}

// next reports whether another member follows.
func (o *members) next() bool {
	if o.none {
		return false
	}
	if o.r.c.Next() {
		return true
	}
	if !o.r.c.IsUnique() {
		if key, twice := o.r.text[o.at:].DuplicateKey(); twice {
			o.r.fail(o.at, &rawjson.DuplicateKeyError{Key: key})
		}
	}
	return false
}

// name reads the name of the next member, in quotes and without escapes that it
// does not need.
func (o *members) name() rawjson.Value { return o.r.c.PlainName() }
