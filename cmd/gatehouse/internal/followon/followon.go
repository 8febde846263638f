// Package followon tells findings that follow from others from those that are worth
// reading.
package followon

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// unread are the places of documents that could not be read as their authors
// mean them. What else is said about such a place follows from that, and would
// lead whoever mends the document astray.
type unread map[string]places // from sources to fields

// places are fields of one document, and parents those that they are directly in.
type places struct{ fields, parents map[string]bool }

// newUnread collects the places of errors that were found in reading.
func newUnread(found diagnostic.List) unread {
	out := unread{}
	for _, f := range found {
		if f.Severity != diagnostic.Error {
			continue
		}
		places := []string{f.Field}
		// A field that is misspelt is not missing.
		if meant := meantField(f); meant != "" {
			places = append(places, meant)
		}
		// Either of these makes a policy without validations complete.
		if slices.Contains(places, "spec.podSecurity") || slices.Contains(places, "spec.auditAnnotations") {
			places = append(places, "spec.validations")
		}
		of, known := out[f.Source]
		if !known {
			of = newPlaces()
			out[f.Source] = of
		}
		for _, place := range places {
			of.fields[place], of.parents[parent(place)] = true, true
		}
	}
	return out
}

func newPlaces() places { return places{map[string]bool{}, map[string]bool{}} }

// didYouMean is the hint of finding.DidYouMean.
var didYouMean = regexp.MustCompile(`^did you mean "([^"]+)"\?$`)

// meantField is the path of the field that the author of an unknown one has
// meant, and "" if that is not known.
func meantField(f diagnostic.Diagnostic) string {
	match := didYouMean.FindStringSubmatch(f.Hint)
	if match == nil {
		return ""
	}
	if strings.Contains(match[1], ".") {
		return match[1] // The hint gives the whole path.
	}
	if at := strings.LastIndexByte(f.Field, '.'); at >= 0 {
		return f.Field[:at+1] + match[1]
	}
	return match[1]
}

// covers reports whether a finding follows from what could not be read: it is about
// such a place, what is below it, or what it is directly in, or about the
// document as a whole. That nothing else names a document is not said while there
// are others that could not be read.
func (u unread) covers(f diagnostic.Diagnostic) bool {
	if f.Field == "" && f.Severity == diagnostic.Warning && len(u) > 0 {
		return true
	}
	of, known := u[f.Source]
	if !known || f.Field == "" {
		return known
	}
	if of.fields[f.Field] || of.parents[f.Field] {
		return true
	}
	for i := 1; i < len(f.Field); i++ {
		if (f.Field[i] == '.' || f.Field[i] == '[') && of.fields[f.Field[:i]] {
			return true
		}
	}
	return false
}

// Without is list without the findings that follow from errors which were found in
// reading the documents: those are about places that could not be read as their
// authors mean them.
func Without(reading, list diagnostic.List) diagnostic.List {
	u := newUnread(reading)
	out := make(diagnostic.List, 0, len(list))
	for _, f := range list {
		if !u.covers(f) {
			out = append(out, f)
		}
	}
	return out
}

// parent is the path of what a field is in, and a list for an element of it.
func parent(field string) string {
	at := strings.LastIndexAny(field, ".[")
	return field[:max(at, 0)]
}
