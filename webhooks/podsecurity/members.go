package podsecurity

import (
	"hash/maphash"
	"slices"

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
	// unique is true if, or once, all names have been compared.
	unique bool
	// names is how many of the reader's hashes are of objects around this one.
	names int
}

// maxHashes is how many names of an object, and of those around it, are compared
// by their hashes.
const maxHashes = 64

// object goes into the object that comes next. null is one without members.
func (r *reader) object() members {
	at := r.c.At()
	return members{r: r, at: at, none: !r.enters(rawjson.Object), unique: r.c.IsUnique(), names: r.names}
}

// next reports whether another member follows.
func (o *members) next() bool {
	if !o.none && o.r.c.Next() {
		return true
	}
	o.r.names = o.names
	return false
}

// name reads the name of the next member, in quotes and without escapes that it
// does not need.
func (o *members) name() rawjson.Value {
	name := o.r.c.PlainName()
	if !o.unique {
		o.note(name)
	}
	return name
}

// note looks for a hash that was there before. If there is one, or there are too
// many, the names of all members are compared, once.
func (o *members) note(name rawjson.Value) {
	r := o.r
	hash := uint32(maphash.Bytes(r.seed, name)) //nolint:gosec // half of it will do
	if r.names < maxHashes && !slices.Contains(r.hashes[o.names:r.names], hash) {
		r.hashes[r.names] = hash
		r.names++
		return
	}
	o.unique = true
	if key, twice := r.text[o.at:].DuplicateKey(); twice {
		r.fail(o.at, &rawjson.DuplicateKeyError{Key: key})
	}
}
