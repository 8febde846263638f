package record

import (
	"regexp"
	"strings"
)

// fileName matches the names that a Recorder gives to files: no directories, no hidden files.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,250}$`)

// IsSegmentName reports whether a file of this name in the directory of a recording is a segment.
func IsSegmentName(name string) bool {
	return fileName.MatchString(name) && strings.HasSuffix(name, SegmentSuffix)
}

// ConfigurationDigest returns the digest of the configuration in a file of this name, and false if
// the file is none.
func ConfigurationDigest(name string) (digest string, ok bool) {
	rest, ok := strings.CutPrefix(name, configurationPrefix)
	if !ok || !fileName.MatchString(name) {
		return "", false
	}
	digest, ok = strings.CutSuffix(rest, configurationSuffix)
	return digest, ok && digest != ""
}

// RedactRequest appends an AdmissionReview with what is to be redacted in it, and reports whether
// there was any. It appends nothing for a request that holds a token, see IsCredential.
func (r *Redactor) RedactRequest(dst, review []byte) (out []byte, redacted bool) {
	var found values
	out, _, _ = r.appendRequest(dst, review, &found, nil, nil) // the error says that nothing was appended
	return out, found.any
}

// IsDamaged reports whether an error that wraps ErrTruncated is about bytes that are no part of a
// recording, and not only about those that are missing at its end.
func IsDamaged(err error) bool {
	several, ok := err.(interface{ Unwrap() []error })
	return ok && len(several.Unwrap()) > 1
}
