package record

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

const (
	// minLong is the size of the smallest value that is searched for everywhere in an answer, in bytes. Shorter ones are searched
	// for as values of environment variables of the same name.
	minLong = 8
	// maxSearch bounds the work of the search: the bytes of the answer times the number of values. A review beyond it is too large.
	maxSearch = 1 << 30
)

// Answer appends the response of an AdmissionReview, with its patch as JSON. Where values that were redacted in the request occur in
// texts and in the patch, they are redacted too. The error is errTooLarge.
func (r *Redactor) Answer(dst, answer []byte, found *Found) ([]byte, error) {
	response := rawjson.Value(answer).Get("response")
	if response.Kind() != rawjson.Object {
		return append(dst, "null"...), nil
	}
	if len(answer)*found.count() > maxSearch {
		return dst, errTooLarge
	}
	s := searcher{redactor: r, found: found}
	return appendMembers(dst, response, func(dst []byte, name, v rawjson.Value) []byte {
		switch {
		case name.Is("patch"):
			patch, err := base64.StdEncoding.DecodeString(v.Text())
			if err != nil {
				return append(dst, "null"...) // it is our own, so that this does not happen
			}
			return s.append(dst, patch)
		case name.Is("uid") || name.Is("allowed") || name.Is("patchType"):
			return append(dst, v...)
		default:
			return s.append(dst, v)
		}
	}), nil
}

// StatusAnswer appends the status of a TokenReview or a SubjectAccessReview. The extra values of the user are redacted.
func (r *Redactor) StatusAnswer(dst, answer []byte) []byte {
	text := append([]byte(`{"status":`), rawjson.Value(answer).Get("status")...)
	return r.walk(dst, append(text, '}'), userStatus).dst
}

//nolint:gochecknoglobals // constant
var userStatus = &place{members: []member{{"status", &place{members: []member{{"user", &place{members: []member{{"extra", everything}}}}}}}}}

// appendMembers appends an object whose values are appended by a function. Anything else is
// appended as it is.
func appendMembers(dst []byte, v rawjson.Value, value func(dst []byte, name, v rawjson.Value) []byte) []byte {
	if v.Kind() != rawjson.Object {
		return append(dst, v...)
	}
	dst = append(dst, '{')
	begin := len(dst)
	for name, member := range v.Members() {
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		dst = value(dst, name, member)
	}
	return append(dst, '}')
}

// searcher finds redacted values in an answer.
type searcher struct {
	redactor *Redactor
	found    *Found
	// long are the values that are searched for everywhere, the longest first, and env are names and values of environment variables. They
	// are nil until they are needed.
	long []string
	env  map[[2]string]bool
}

// append appends a value in which the redacted values are redacted wherever they occur.
func (s *searcher) append(dst []byte, v rawjson.Value) []byte {
	if s.found.count() == 0 {
		return append(dst, v...)
	}
	if s.env == nil {
		s.collect()
	}
	if s.isFree(v) {
		return append(dst, v...)
	}
	return s.appendFound(dst, v)
}

// isFree reports whether no redacted value occurs in a value for sure, which a search in its bytes shows for most answers. It does not
// where a text may be written in several ways.
func (s *searcher) isFree(v rawjson.Value) bool {
	if bytes.Contains(v, []byte(`\u`)) || bytes.Contains(v, []byte(`\/`)) || bytes.Contains(v, []byte(originals)) || bytes.IndexByte(v, '\n') >= 0 {
		return false
	}
	for _, value := range s.long {
		if !isPlain(value) || bytes.Contains(v, []byte(value)) {
			return false
		}
	}
	for pair := range s.env {
		if value := pair[1]; value != "" && (!isPlain(value) || bytes.Contains(v, []byte(value))) {
			return false
		}
	}
	return true
}

// isPlain reports whether a text has one form in JSON without escapes of the forms \u and \/.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// collect sets what is searched for.
func (s *searcher) collect() {
	s.env = map[[2]string]bool{}
	s.add(s.found)
	slices.SortFunc(s.long, func(a, b string) int { return cmp.Or(-cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	s.long = slices.Compact(s.long)
}

// add adds what was found in a text, and in the copies in it.
func (s *searcher) add(found *Found) {
	for _, span := range found.values {
		// What is part of the mark would be found in it.
		if text := found.text[span.Start:span.End].Text(); len(text) >= minLong && !strings.Contains(Mark, text) {
			s.long = append(s.long, text)
		}
	}
	for _, span := range found.env {
		one := found.text[span.Start:span.End]
		s.env[[2]string{one.Get("name").Text(), one.Get("value").Text()}] = true
	}
	for i := range found.copies {
		s.add(&found.copies[i])
	}
}

// count returns how many values were found.
func (f *Found) count() int {
	n := len(f.values)
	for i := range f.copies {
		n += f.copies[i].count()
	}
	return n
}

// appendFound is append for a value that may hold a redacted one.
func (s *searcher) appendFound(dst []byte, v rawjson.Value) []byte {
	switch v.Kind() {
	case rawjson.Object:
		value := v.Get("value").Text()
		isEnv := value != "" && s.env[[2]string{v.Get("name").Text(), value}]
		return appendMembers(dst, v, func(dst []byte, name, v rawjson.Value) []byte {
			if isEnv && name.Is("value") {
				return rawjson.AppendString(dst, Mark)
			}
			return s.appendFound(dst, v)
		})
	case rawjson.Array:
		dst = append(dst, '[')
		for i, element := range v.Elements() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = s.appendFound(dst, element)
		}
		return append(dst, ']')
	case rawjson.String:
		text, changed := v.Text(), false
		if strings.Contains(text, `"`+originals+`":`) {
			if redacted, copies, ok := s.redactor.statusOf(v); ok && len(copies) > 0 {
				text, changed = string(redacted), true
			}
		}
		for _, value := range s.long {
			if strings.Contains(text, value) {
				text, changed = strings.ReplaceAll(text, value, Mark), true
			}
		}
		if changed {
			return rawjson.AppendString(dst, text)
		}
	}
	return append(dst, v...)
}
