package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

// unreadPlaces are the places of documents that could not be read as intended. Other diagnostics
// about such a place are consequences of that, and misleading.
type unreadPlaces map[string]places // from sources to fields

// places are fields of one document, and parents those that they are directly in.
type places struct{ fields, parents map[string]bool }

// newUnreadPlaces returns the places of errors of reading.
func newUnreadPlaces(found diagnostic.List) unreadPlaces {
	out := unreadPlaces{}
	for _, f := range found {
		if f.Severity != diagnostic.Error {
			continue
		}
		places := []string{f.Field}
		// A misspelt field is not missing.
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

// didYouMean matches the hint of diagnostic.DidYouMean.
var didYouMean = regexp.MustCompile(`^did you mean "([^"]+)"\?$`)

// meantField returns the path of the field that an unknown one stands for, "" if that is not
// known.
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

// covers reports whether a diagnostic is a consequence of what could not be read: it is about
// such a place, what is below it, its parent, or the document as a whole. A warning about a
// whole document is covered by errors in any other, since it may be that nothing names it.
func (u unreadPlaces) covers(f diagnostic.Diagnostic) bool {
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

// WithoutConsequences returns a list of diagnostics without the consequences of errors in reading the
// documents.
func WithoutConsequences(reading, list diagnostic.List) diagnostic.List {
	u := newUnreadPlaces(reading)
	out := make(diagnostic.List, 0, len(list))
	for _, f := range list {
		if !u.covers(f) {
			out = append(out, f)
		}
	}
	return out
}

// parent returns the path of what a field is in, which is a list for an element of it.
func parent(field string) string {
	at := strings.LastIndexAny(field, ".[")
	return field[:max(at, 0)]
}
