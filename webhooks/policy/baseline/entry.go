// Package baseline reads, writes and merges the entries of PolicyBaselines, and determines what an entry is about: the object that a
// rule is violated by, and the values that the rule reads in it.
package baseline

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
)

// MaxEntries is how many entries one PolicyBaseline has at most. A document of so many is small enough for "kubectl apply", which
// repeats a document in an annotation of at most 256 KiB.
const MaxEntries = 1000

// Digest identifies a violation: the SHA-256 of all that must stay the same for it to be allowed.
type Digest [sha256.Size]byte

// Compare orders digests.
func (d Digest) Compare(other Digest) int { return bytes.Compare(d[:], other[:]) }

// Object names the object that violates a rule. For a pod that a controller made, kind and name are those of the workload. Namespace
// is "" for what is cluster-scoped.
type Object struct{ Namespace, Kind, Name string }

// String returns "NAMESPACE/KIND/NAME", or "KIND/NAME".
func (o Object) String() string {
	text := o.Kind + "/" + o.Name
	if o.Namespace != "" {
		text = o.Namespace + "/" + text
	}
	return text
}

// Entry is an entry of a PolicyBaseline.
type Entry struct {
	// Object is for readers. It may be empty.
	Object string
	Digest
}

const (
	algorithm = "sha256:"
	separator = "@" + algorithm
)

// String returns the entry as a document has it.
func (e Entry) String() string {
	digits := hex.EncodeToString(e.Digest[:])
	if e.Object == "" {
		return algorithm + digits
	}
	return e.Object + separator + digits
}

// Compare orders entries as documents do: by the objects.
func (e Entry) Compare(other Entry) int {
	return cmp.Or(cmp.Compare(e.Object, other.Object), e.Digest.Compare(other.Digest))
}

var errEntry = errors.New(`is not an entry: write NAMESPACE/KIND/NAME@sha256:DIGITS, with 64 hexadecimal digits in lower case`)

// ParseEntry reads an entry of a document.
func ParseEntry(text string) (Entry, error) {
	object, digits, found := text, "", false
	if at := strings.LastIndex(text, separator); at > 0 {
		object, digits, found = text[:at], text[at+len(separator):], true
	} else if digits, found = strings.CutPrefix(text, algorithm); found {
		object = ""
	}
	e := Entry{Object: object}
	if !found || len(digits) != hex.EncodedLen(len(e.Digest)) || digits != strings.ToLower(digits) {
		return Entry{}, badEntry(text)
	}
	if _, err := hex.Decode(e.Digest[:], []byte(digits)); err != nil {
		return Entry{}, badEntry(text)
	}
	return e, nil
}

func badEntry(text string) error {
	const most = 60 // characters of what is shown
	return fmt.Errorf("%q %w", strict.Cut(text, most), errEntry)
}
