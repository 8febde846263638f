package record

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

// kind is the kind of the configuration.
const kind = "RecordingConfiguration"

// Rules say which reviews to record, and what to redact in them.
type Rules struct {
	// Share is the share of allowed reviews without warnings to record, from 0 to 1.
	Share float64
	// Redactor replaces what is to be redacted.
	Redactor *Redactor
}

// CompileRules compiles a RecordingConfiguration. With an error there are no Rules.
func CompileRules(source string, c *v1alpha1.RecordingConfiguration) (Rules, diagnostic.List) {
	var found diagnostic.List
	report := func(field, message, hint string) {
		found = append(found, diagnostic.Diagnostic{Severity: diagnostic.Error, Source: source, Object: kind, Field: field, Message: message, Hint: hint})
	}
	r := Rules{Share: 1}
	if c.Sampling.Default != nil {
		r.Share = *c.Sampling.Default
	}
	if !(r.Share >= 0 && r.Share <= 1) { // not a number is neither
		report("sampling.default", fmt.Sprintf("%g must be from 0 to 1", r.Share), "0.01 records one of a hundred reviews")
	}
	var errs []error
	if r.Redactor, errs = NewRedactor(c.Redaction.Paths, c.Redaction.Annotations); len(errs) > 0 {
		for _, err := range errs {
			report("redaction.paths", err.Error(), "")
		}
	}
	return r, found
}

// ReadRules reads and compiles the RecordingConfiguration of a file, which holds nothing else. Without a file, everything is
// recorded. It returns every error and warning; with an error there are no Rules.
func ReadRules(path string) (Rules, diagnostic.List) {
	if path == "" {
		return CompileRules("", new(v1alpha1.RecordingConfiguration))
	}
	c, found := config.InspectFile(path)
	if found.Err() != nil && (c == nil || c.Documents > 0) {
		return Rules{}, found
	}
	if c.Recording == nil || c.Documents > 1 {
		return Rules{}, diagnostic.List{{
			Severity: diagnostic.Error, Source: filepath.ToSlash(path), Message: "must hold one document, a " + kind,
			Hint: "write apiVersion: " + v1alpha1.GroupVersion.String() + " and kind: " + kind,
		}}
	}
	rules, compiled := CompileRules(filepath.ToSlash(path), &c.Recording.RecordingConfiguration)
	found = append(found, compiled...)
	found.Sort()
	return rules, found
}

// hasShare reports whether a review belongs to the share of all. The same review always does.
func (r *Rules) hasShare(id string) bool {
	if r.Share >= 1 {
		return true
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(id))     // it does not fail
	const golden = 0x9e3779b97f4a7c15 // it mixes the bits, which of short texts are similar
	return float64(hash.Sum64()*golden)/math.MaxUint64 < r.Share
}

// errTooLarge is the error for a review that a Reader would refuse.
var errTooLarge = errors.New("the review is too large for a recording")
